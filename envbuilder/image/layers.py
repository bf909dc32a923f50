"""The steps that install an environment's packages: what changes seldom first, each a layer of its own.

A node that holds an image pulls of another the layers that differ. An engine that stacks layers (Docker's own store)
keeps of an image what is below the first layer that differs; one that stores them by digest (containerd) keeps every
layer that is the same. So what differs between releases comes last.

Each step installs one folder of ``images/shared/packages/``: its lock, and the list of what ``runtime`` images remove.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from envbuilder.catalog.model import Catalog
from envbuilder.environment import Environment
from envbuilder.image import lockfile
from envbuilder.image.lockfile import LOCK, Locked
from envbuilder.image.removed_files import REMOVED, Wheel, cuts, removed
from envbuilder.image.wheel_records import read_record
from envbuilder.probes.slimming.remove_files import Row, parse_row
from envbuilder.pypi.client import with_own
from envbuilder.pypi.package_index import PackageIndex
from envbuilder.support import decoding
from envbuilder.versions import pins

PACKAGES = "shared/packages"
"""The folder of all steps, below ``images/``."""

_FOLLOWS_TENSORFLOW = "nvidia-nccl-"
"""Each TensorFlow brings another release of NCCL for the same CUDA: below the CUDA set it would keep four TensorFlow
versions from sharing 2.5 GB."""

_LAST_OF_CUDA = ("nvidia-cusolver-", "nvidia-curand-")
"""Releases of TensorFlow differ in what they take of these, with the same CUDA."""

_HEADER = re.compile(r"# (?P<folder>\S+): (?P<size>\d+) bytes, (?P<removed>\d+) of them removed in runtime images\n")
_CUDA_NAME = re.compile(r"nvidia-(.+)-cu\d+\Z")


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
        found = _CUDA_NAME.match(self.name)
        return found[1] if found else self.name

    def text(self, size: int, removed: int) -> str:
        """Write the lock of the step's folder; both sizes are in bytes."""
        return f"# {self.folder}: {size} bytes, {removed} of them removed in runtime images\n{self.lock}"


@dataclass(frozen=True)
class PackageFolder:
    """What is stored for one step: its lock, the sizes that this names, and the list of removed files ('': none)."""

    lock: str
    removed: str = ""

    @property
    def pinned(self) -> str:
        """The lock without its header."""
        return _HEADER.sub("", self.lock, count=1)

    def megabytes(self, *, complete: bool) -> int:
        """Return the installed size in MB, at least 1; 0 if it is not known."""
        found = _HEADER.match(self.lock)
        if found is None or not int(found["size"]):
            return 0
        return max(1, round((int(found["size"]) - (0 if complete else int(found["removed"]))) / 1e6))

    def files(self, folder: str) -> dict[str, str]:
        """Return its files by their path below ``images/``."""
        found = {f"{PACKAGES}/{folder}/{LOCK}": self.lock}
        return {**found, f"{PACKAGES}/{folder}/{REMOVED}": self.removed} if self.removed else found


def joined(removed: Mapping[str, str]) -> str:
    """Join the lists of an image's steps in the order of their folders' names, as an image has them."""
    return "".join(removed[folder] for folder in sorted(removed))


def package_layers(environment: Environment, lock: str) -> tuple[PackageLayer, ...]:
    """Divide what a lock pins among steps, lowest first. What a matrix adds comes last."""
    return tuple(_layers(environment, lock))


def _layers(environment: Environment, lock: str) -> Iterator[PackageLayer]:
    pinned: Mapping[str, lockfile.Locked] = {package.name: package for package in lockfile.parse(lock)}
    framework, *asked_for = lockfile.names(environment.requirements)
    cuda = pins(environment.cuda_wheels).keys() & pinned.keys()
    arch = "" if environment.arch == "x86_64" else f"-{environment.arch}"
    for name in sorted(
        cuda, key=lambda name: (name.startswith(_FOLLOWS_TENSORFLOW), name.startswith(_LAST_OF_CUDA), name)
    ):
        package = pinned[name]
        yield PackageLayer(f"{name}-{package.version}{arch}", f"{package.text}\n", name, package.version)
    python = environment.python.replace(".", "")
    if framework in pinned:
        package = pinned[framework]
        folder = f"{framework}-{package.version}-py{python}{arch}"
        yield PackageLayer(folder, f"{package.text}\n", "TensorFlow", package.version)
    others = pinned.keys() - cuda - {framework}
    added = (lockfile.added(lock) or frozenset(asked_for)) & others
    if required := others - added:
        yield _group("dependencies", "Python packages that TensorFlow requires", lock, required)
    if added:
        yield _group("added", "Packages that the matrix adds, and what only these require", lock, added)


def _group(kind: str, title: str, lock: str, names: frozenset[str] | set[str]) -> PackageLayer:
    text = lockfile.subset(lock, frozenset(names))
    digest = lockfile.digest(text).removeprefix("sha256:")[:8]
    return PackageLayer(f"{kind}-{digest}", text, f"{title}:", f"{len(names)} wheels")


_STEP = re.compile(
    rf"source={PACKAGES}/(?P<folder>[^,\s]+),target=/run/package sh /run/tools/install \S+(?P<complete> --complete)?"
)


def carried_out(files: Mapping[str, bytes], dockerfile: str) -> str:
    """Return the lists that the steps of a Dockerfile carry out, joined; '' if they remove nothing."""
    text = decoding.lossy(files.get(dockerfile, b""))
    steps = [found["folder"] for found in _STEP.finditer(text) if not found["complete"]]
    return joined({folder: decoding.lossy(files.get(f"{PACKAGES}/{folder}/{REMOVED}", b"")) for folder in steps})


class Wheels:
    """Reads the locked wheels of an environment on an index."""

    def __init__(self, index: PackageIndex, environment: Environment) -> None:
        self._index = with_own(index, environment.added.indexes) or index
        self._asked_for = frozenset(lockfile.names(environment.requirements)[1:])
        self._framework = environment.package

    def folder(self, layer: PackageLayer, catalog: Catalog, before: PackageFolder | None = None) -> PackageFolder:
        """Make the folder of a step. Raises IndexUnavailableError if the index does not answer.

        ``before`` is the folder of the same wheels that is stored: what is cut off of a wheel's objects stays the same.
        """
        size = 0
        rows = list[Row]()
        for package in lockfile.parse(layer.lock):
            wheel = self._wheel(package)
            if wheel is None:
                continue  # an sdist: its files are known only once it is built
            size += sum(one for _, one in wheel.files.values())
            gone = list(removed(wheel, catalog.leave_out, asked_for=self._asked_for))
            rows += gone
            if package.name == self._framework:
                paths = {row.path for row in gone}
                known = [parse_row(line) for line in before.removed.splitlines()] if before else ()
                rows += [row for row in known or cuts(wheel) if row.left and row.path not in paths]
        text = "".join(f"{row.line()}\n" for row in rows)
        return PackageFolder(layer.text(size, sum(row.size - int(row.left or 0) for row in rows)), text)

    def _wheel(self, package: Locked) -> Wheel | None:
        files = self._index.files(package.name)
        file = next((one for one in files if f"sha256:{one.sha256}" in package.hashes), None)
        if file is None or not file.filename.endswith(".whl"):
            return None
        record = read_record(self._index, file, package)
        return Wheel(package, file, record, self._index) if record is not None else None
