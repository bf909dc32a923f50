"""Files of the locked wheels that an image of the variant ``runtime`` lacks: made from the catalogue, stored as a list.

The list of a package is ``removed.tsv`` next to its lock in ``images/shared/packages/``. A build carries it out, and
validation compares the image with it.
"""

import itertools
import mmap
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import msgspec

from envbuilder import versions
from envbuilder.catalog.rows import LeaveOut, RemovalReason
from envbuilder.image import lockfile
from envbuilder.image.lockfile import Locked
from envbuilder.probes.slimming import remove_files
from envbuilder.probes.slimming.remove_files import Row
from envbuilder.pypi.client import PackageIndex
from envbuilder.pypi.pages import DistFile
from envbuilder.support import decoding
from envbuilder.workspace import temporary_folder

REMOVED = "removed.tsv"
"""The list's name in a package's folder."""

CARRIED = "opt/envbuilder/removed/"
"""The folder of an image that has the list of each package, as ``<name>.tsv``."""

LABEL = "org.envbuilder.removed"
"""The label of an image with the digest of all lists together."""

_MOST_OF_A_LIST = 32 << 20
_INSTALLED = re.compile(r"^[^/]+\.data/(?:purelib|platlib)/")
"""The part of a path that an installer leaves out."""

_OBJECT = re.compile(r"\.so(?:\.[\d.]+)?\Z")

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]
"""Files or bytes; bounded, because a list may come with an image from anybody."""


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a list: a file, or all of a package's files below a folder (``path`` ends with a slash).

    ``path`` is as RECORD writes it, ``size`` in bytes; ``digest`` is of the paths and digests of all the files.
    ``left`` and ``becomes`` are bytes and digest of a shared object without its symbol tables; None if the files go.
    """

    reason: RemovalReason
    path: str
    files: Count
    size: Count
    digest: str
    left: Count | None = None
    becomes: str = ""


class Omitted(msgspec.Struct, frozen=True):
    """The sum of all removed for one reason: files and bytes; of a cut object, the bytes cut off."""

    reason: RemovalReason
    files: int
    size: int


RemovedFiles = Mapping[tuple[str, str], Sequence[Removed]]
"""All that an image lacks of its lock's packages, by their normalised name and version."""


def sums(packages: Iterable[Sequence[Removed]]) -> tuple[Omitted, ...]:
    """Add up the rows of packages by reason, in the order of the reasons' names."""
    found: dict[RemovalReason, Omitted] = {}
    for row in itertools.chain.from_iterable(packages):
        before = found.get(row.reason, Omitted(row.reason, 0, 0))
        found[row.reason] = Omitted(row.reason, before.files + row.files, before.size + row.size - (row.left or 0))
    return tuple(found[reason] for reason in sorted(found))


def parse(text: str) -> RemovedFiles:
    """Read a list, or several joined. Raises DamagedError for anything else."""
    found: dict[tuple[str, str], list[Removed]] = {}
    with decoding.damaged("not a list of removed files"):
        if len(text) > _MOST_OF_A_LIST:
            raise ValueError("it is too long")
        for line in filter(None, text.split("\n")):
            row = remove_files.parse_row(line)
            values = {**row._asdict(), "left": int(row.left) if row.left else None}
            found.setdefault((row.package, row.version), []).append(decoding.converted(values, Removed))
    return found


def named(label: str, lock: str, text: str) -> str:
    """Return a list if it is the one that an image's label names, about packages of the image's lock; '' otherwise."""
    if not label or lockfile.digest(text) != label:
        return ""
    try:
        pinned = {(package.name, package.version) for package in lockfile.parse(lock)}
        return text if parse(text).keys() <= pinned else ""
    except ValueError:
        return ""


@dataclass(frozen=True)
class Wheel:
    package: Locked
    file: DistFile
    record: bytes
    index: PackageIndex

    @cached_property
    def files(self) -> dict[str, tuple[str, int]]:
        """Digest and size of each file that it puts among the packages, by its path there."""
        rows = ((_INSTALLED.sub("", row[0]), *row[1:]) for row in decoding.csv_rows(self.record))
        return {row[0]: (row[1], int(row[2] or 0)) for row in rows if len(row) == 3 and ".data/" not in row[0]}  # noqa: PLR2004


def removed(wheel: Wheel, rows: Iterable[LeaveOut], *, asked_for: Container[str]) -> Iterator[Row]:
    """Yield the files that a wheel's installation does not need, by the catalogue.

    Packages that are ``asked_for`` by name lose only what compilers and tests read. A folder of which all files go for
    one reason is one row: the topmost such folder.
    """
    name, version, files = wheel.package.name, wheel.package.version, wheel.files
    own = [row for row in rows if row.paths and re.fullmatch(row.package, name)]
    own = [row for row in own if not row.tensorflow or versions.minor(version) in row.tensorflow]
    if name in asked_for:
        own = [row for row in own if row.reason in {"compilers", "tests"}]
    gone = {path: row.reason for path in files if (row := _first(own, path)) is not None}
    reasons: dict[str, set[str]] = {}
    for path in files:
        for folder in _above(path):
            reasons.setdefault(folder, set()).update([] if path.endswith(".pyc") else [gone.get(path, "kept")])
    rows_of: dict[str, list[str]] = {}
    for path in sorted(gone):
        top = next((folder for folder in _above(path) if reasons[folder] == {gone[path]}), path)
        rows_of.setdefault(top, []).append(path)
    for top, paths in sorted(rows_of.items()):
        digest = remove_files.digest_of_rows((path, files[path][0]) for path in paths)
        size = sum(files[path][1] for path in paths)
        yield Row(name, version, gone[paths[0]], top, len(paths), size, digest)


def _first(rows: Iterable[LeaveOut], path: str) -> LeaveOut | None:
    if path.split("/", maxsplit=1)[0].endswith(".dist-info") or ".." in path or path.endswith(".pyc"):
        return None
    found = next((row for row in rows if re.search(row.paths, path)), None)
    return None if found is None or (found.keep and re.search(found.keep, path)) else found


def cuts(wheel: Wheel) -> Iterator[Row]:
    """Yield the shared objects of a wheel whose symbol tables are worth cutting off; reads each from the index."""
    members = {_INSTALLED.sub("", member.filename): member for member in wheel.index.members(wheel.file)}
    for path in sorted(members):
        digest, size = wheel.files.get(path, ("", 0))
        if not _OBJECT.search(path) or size < remove_files.WORTH:
            continue
        with temporary_folder("object") as folder, Path(folder, "object").open("w+b") as file:
            file.writelines(wheel.index.stream(wheel.file, members[path]))
            file.flush()
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as image:
                if (cut := remove_files.symbols_cut(image)) is not None:
                    pin = (wheel.package.name, wheel.package.version)
                    yield Row(*pin, "symbols", path, 1, len(image), digest, str(cut.size), cut.digest(image))


def _above(path: str) -> Iterator[str]:
    parts = path.split("/")
    return ("/".join(parts[:depth]) + "/" for depth in range(1, len(parts)))
