"""The steps that install an environment's packages, each a layer: first those that change least between releases.

A node that has one image pulls only the different layers of another. An engine that stacks layers (Docker's own store)
reuses those below the first difference; one that stores them by digest (containerd) reuses every equal layer.

Each step installs one folder of ``images/shared/packages/``: its lock, and the list of what ``runtime`` images remove.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from envbuilder.catalog.model import Catalog
from envbuilder.environment import Environment
from envbuilder.image import lockfile
from envbuilder.image.lockfile import LOCK
from envbuilder.image.removed_files import REMOVED, Wheel, cuts, removed
from envbuilder.image.wheel_records import read_record
from envbuilder.probes.slimming.remove_files import Row, parse_row
from envbuilder.pypi.client import PackageIndex
from envbuilder.support import decoding
from envbuilder.versions import pins

PACKAGES = "shared/packages"
"""The folder of all steps, below ``images/``."""

_FOLLOWS_TENSORFLOW = "nvidia-nccl-"
"""Each TensorFlow brings another release of NCCL for the same CUDA: below the CUDA set it would keep four TensorFlow
versions from sharing 2.5 GB."""

_LAST_OF_CUDA = ("nvidia-cusolver-", "nvidia-curand-")
"""Releases of TensorFlow take different parts of these, with the same CUDA."""

_HEADER = re.compile(r"# (?P<folder>\S+): (?P<size>\d+) bytes, (?P<removed>\d+) of them removed in runtime images\n")
_TOOLS = "pip and uv:"  # of variants that keep everything
_CUDA_NAME = re.compile(r"^nvidia-(.+)-cu\d+\Z")
_STEP = re.compile(
    rf"source={PACKAGES}/(?P<folder>[^,\s]+),target=/run/package sh /run/tools/install \S+(?P<complete> --complete)?"
)


@dataclass(frozen=True)
class PackageLayer:
    """One step: its folder below `PACKAGES`, its part of the lock, and a name and version for people."""

    folder: str
    lock: str
    name: str
    version: str = ""

    @property
    def short(self) -> str:
        """The name of a CUDA library without ``nvidia-`` and ``-cu12``."""
        return _CUDA_NAME.sub(r"\1", self.name)

    def text(self, size: int, removed: int) -> str:
        """Return the lock of the step's folder; both sizes are in bytes."""
        return f"# {self.folder}: {size} bytes, {removed} of them removed in runtime images\n{self.lock}"


@dataclass(frozen=True)
class PackageFolder:
    """The stored files of one step: its lock with the installed sizes, and the list of removed files ('': none)."""

    lock: str
    removed: str = ""

    @property
    def pinned(self) -> str:
        return _HEADER.sub("", self.lock, count=1)

    def files(self, folder: str) -> dict[str, str]:
        files = {LOCK: self.lock, REMOVED: self.removed}
        return {f"{PACKAGES}/{folder}/{name}": text for name, text in files.items() if text}


@dataclass(frozen=True)
class DockerfileStep:
    """A step of a Dockerfile; with ``complete`` it keeps the files that its list names."""

    layer: PackageLayer
    content: PackageFolder
    complete: bool

    @property
    def megabytes(self) -> int:
        """The installed size in MB, at least 1; 0 if it is not known."""
        found = _HEADER.match(self.content.lock)
        if found is None or not int(found["size"]):
            return 0
        return max(1, round((int(found["size"]) - (0 if self.complete else int(found["removed"]))) / 1e6))


def steps_of(environment: Environment, lock: str, packages: Mapping[str, PackageFolder]) -> tuple[DockerfileStep, ...]:
    asked_for = lockfile.names(environment.requirements)
    steps = []
    for layer in package_layers(environment, lock):
        content = packages.get(layer.folder) or PackageFolder(layer.text(0, 0))
        complete = bool(content.removed) and (environment.may_be_changed or layer.name in asked_for)
        steps.append(DockerfileStep(layer, content, complete))
    return tuple(steps)


def package_layers(environment: Environment, lock: str) -> tuple[PackageLayer, ...]:
    """Divide the packages of a lock among steps, lowest first. Additions of a matrix come last."""
    pinned = {package.name: package for package in lockfile.parse(lock)}
    framework, *asked_for = lockfile.names(environment.requirements)
    cuda = pins(environment.cuda_wheels).keys() & pinned.keys()
    arch = "" if environment.arch == "x86_64" else f"-{environment.arch}"
    layers = []
    for name in sorted(cuda, key=lambda one: (one.startswith(_FOLLOWS_TENSORFLOW), one.startswith(_LAST_OF_CUDA), one)):
        package = pinned[name]
        layers.append(PackageLayer(f"{name}-{package.version}{arch}", f"{package.text}\n", name, package.version))
    if framework in pinned:
        package = pinned[framework]
        folder = f"{framework}-{package.version}-py{environment.python.replace('.', '')}{arch}"
        layers.append(PackageLayer(folder, f"{package.text}\n", "TensorFlow", package.version))
    others = pinned.keys() - cuda - {framework}
    added = (lockfile.added(lock) or frozenset(asked_for)) & others
    tools = frozenset(one.name for one in lockfile.parse(lockfile.installer(environment.python))) & (others - added)
    for kind, title, names in (
        ("dependencies", "Python packages that TensorFlow requires:", others - added - tools),
        ("added", "Packages that the matrix or the variant adds, and what only these require:", added),
        ("tools", _TOOLS, tools if environment.may_be_changed else frozenset()),
    ):
        if names:
            text = "".join(f"{pinned[name].text}\n" for name in sorted(names))
            folder = f"{kind}-{lockfile.digest(text).removeprefix('sha256:')[:8]}"
            layers.append(PackageLayer(folder, text, title, f"{len(names)} wheels"))
    return tuple(layers)


def joined(removed: Mapping[str, str]) -> str:
    """Join the lists of an image's steps in the order of their folders' names, as in an image."""
    return "".join(removed[folder] for folder in sorted(removed))


def carried_out(files: Mapping[str, bytes], dockerfile: str) -> str:
    """Return the joined lists that the steps of a Dockerfile carry out; '' if they remove nothing."""
    text = decoding.lossy(files.get(dockerfile, b""))
    steps = [found["folder"] for found in _STEP.finditer(text) if not found["complete"]]
    return joined({folder: decoding.lossy(files.get(f"{PACKAGES}/{folder}/{REMOVED}", b"")) for folder in steps})


def make_folder(
    layer: PackageLayer,
    environment: Environment,
    catalog: Catalog,
    index: PackageIndex,
    before: PackageFolder | None = None,
) -> PackageFolder:
    """Make the folder of a step from its wheels. Raises IndexUnavailableError if the index does not answer.

    ``before`` is the stored folder of the same wheels: the symbol tables that are cut off stay the same.
    """
    asked = lockfile.names(environment.requirements)[1:]
    size, rows = 0, list[Row]()
    for package in lockfile.parse(layer.lock):
        file = next((one for one in index.files(package.name) if f"sha256:{one.sha256}" in package.hashes), None)
        if file is None or not file.filename.endswith(".whl"):
            continue  # an sdist's files are known only after a build
        if (record := read_record(index, file, package)) is None:
            continue
        wheel = Wheel(package, file, record, index)
        size += sum(one for _, one in wheel.files.values())
        gone = [] if layer.name == _TOOLS else list(removed(wheel, catalog.leave_out, asked_for=asked))
        rows += gone
        if package.name == environment.package:
            paths = {row.path for row in gone}
            known = [parse_row(line) for line in before.removed.splitlines()] if before else ()
            rows += [row for row in known or cuts(wheel) if row.left and row.path not in paths]
    text = "".join(f"{row.line()}\n" for row in rows)
    return PackageFolder(layer.text(size, sum(row.size - int(row.left or 0) for row in rows)), text)
