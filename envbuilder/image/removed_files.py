"""Files that an image of the variant ``runtime`` lacks of its locked wheels: made from the catalogue, kept as a list.

The list of a package is ``removed.tsv`` beside its lock in ``images/shared/packages/``. A build carries it out, and
validation compares the image with it.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import msgspec

from envbuilder.catalog.rows import LeaveOut, RemovalReason
from envbuilder.image import lockfile
from envbuilder.image.lockfile import Locked
from envbuilder.probes.slimming import remove_files
from envbuilder.probes.slimming.remove_files import Row
from envbuilder.pypi.package_index import DistFile, PackageIndex
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
"""What an installer leaves out of a path."""

_OBJECT = re.compile(r"\.so(?:\.[\d.]+)?\Z")

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]
"""Files or bytes: a list may come with an image, from anybody."""


class LeftOut(msgspec.Struct, frozen=True):
    """A file, or all of a package's files below a folder (``path`` ends with a slash), that is removed.

    ``path`` is as RECORD writes it, ``size`` in bytes; ``digest`` is of the paths and digests of all the files.
    """

    path: str
    files: Count
    size: Count
    digest: str
    reason: RemovalReason


class Cut(msgspec.Struct, frozen=True):
    """A shared object without its symbol tables: bytes and digest before (``size``), and afterwards (``left``)."""

    path: str
    size: Count
    digest: str
    left: Count
    becomes: str
    reason: RemovalReason = "symbols"


class OfPackage(msgspec.Struct, frozen=True):
    """What one package lacks; ``name`` is normalised."""

    name: str
    version: str
    left_out: tuple[LeftOut, ...] = ()
    cut: tuple[Cut, ...] = ()

    def sums(self) -> tuple[Omitted, ...]:
        """Add up by reason, in the order of the reasons' names."""
        return _sums((self,))


class Omitted(msgspec.Struct, frozen=True):
    """What is removed for one reason, in sum: files and bytes; of a file that was cut, the bytes cut off."""

    reason: RemovalReason
    files: int
    size: int


class RemovedFiles(msgspec.Struct, frozen=True):
    """All that an image lacks of what its lock pins."""

    packages: tuple[OfPackage, ...] = ()

    def of(self, name: str, version: str) -> OfPackage | None:
        """Return what a package lacks; None if it is complete."""
        return next((one for one in self.packages if (one.name, one.version) == (name, version)), None)

    def sums(self) -> tuple[Omitted, ...]:
        """Add up by reason, in the order of the reasons' names."""
        return _sums(self.packages)


def _sums(packages: Iterable[OfPackage]) -> tuple[Omitted, ...]:
    found: dict[RemovalReason, tuple[int, int]] = {}
    for package in packages:
        rows = [(row.reason, row.files, row.size) for row in package.left_out]
        rows += [(cut.reason, 1, cut.size - cut.left) for cut in package.cut]
        for reason, more, size in rows:
            files, bytes_ = found.get(reason, (0, 0))
            found[reason] = (files + more, bytes_ + size)
    return tuple(Omitted(reason, *found[reason]) for reason in sorted(found))


def parse(text: str) -> RemovedFiles:
    """Read a list, or several joined. Raises DamagedError for anything else."""
    packages: dict[tuple[str, str], tuple[list[LeftOut], list[Cut]]] = {}
    with decoding.damaged("not a list of removed files"):
        if len(text) > _MOST_OF_A_LIST:
            raise ValueError("it is too long")
        for line in filter(None, text.split("\n")):
            row = remove_files.parse_row(line)
            left_out, cuts = packages.setdefault((row.package, row.version), ([], []))
            fields = {"path": row.path, "size": row.size, "digest": row.digest, "reason": row.reason}
            if row.left:
                cuts.append(decoding.converted({**fields, "left": int(row.left), "becomes": row.becomes}, Cut))
            else:
                left_out.append(decoding.converted({**fields, "files": row.files}, LeftOut))
    found = (OfPackage(*key, tuple(left_out), tuple(cuts)) for key, (left_out, cuts) in packages.items())
    return RemovedFiles(tuple(found))


def named(label: str, lock: str, text: str) -> str:
    """Return a list if it is the one that an image's label names, about packages of the image's lock; '' otherwise."""
    if not label or lockfile.digest(text) != label:
        return ""
    try:
        pinned = {(package.name, package.version) for package in lockfile.parse(lock)}
        return text if all((one.name, one.version) in pinned for one in parse(text).packages) else ""
    except (decoding.DamagedError, ValueError):
        return ""


@dataclass(frozen=True)
class Wheel:
    """A locked wheel on an index: its files by path in the environment, and how to read one of them."""

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
    """List what a wheel's installation can do without, by the catalogue.

    Of packages that are ``asked_for`` by name only what compilers and tests read is removed.
    """
    name, files = wheel.package.name, wheel.files
    own = [row for row in rows if row.paths and re.fullmatch(row.package, name)]
    if name in asked_for:
        own = [row for row in own if row.reason in {"compilers", "tests"}]
    gone = {path: row.reason for path in files if (row := _first(own, path)) is not None}
    yield from _folded(wheel.package, files, gone)


def cuts(wheel: Wheel) -> Iterator[Row]:
    """List the shared objects of a wheel whose symbol tables are worth cutting off; reads each from the index."""
    for path, (_, size) in sorted(wheel.files.items()):
        if _OBJECT.search(path) and size >= remove_files.WORTH:
            yield from _cut(wheel, path)


def _first(rows: Iterable[LeaveOut], path: str) -> LeaveOut | None:
    if path.split("/", maxsplit=1)[0].endswith(".dist-info") or ".." in path or path.endswith(".pyc"):
        return None
    found = next((row for row in rows if re.search(row.paths, path)), None)
    return None if found is None or (found.keep and re.search(found.keep, path)) else found


def _cut(wheel: Wheel, path: str) -> Iterator[Row]:
    """Yield the row of a shared object whose symbol tables are worth cutting off; reads the object from the index."""
    members = wheel.index.members(wheel.file)
    member = next((one for one in members if _INSTALLED.sub("", one.name) == path), None)
    if member is None:
        return
    with temporary_folder("object") as folder, Path(folder, "object").open("w+b") as file:
        file.writelines(wheel.index.stream(wheel.file, member))
        file.flush()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as image:
            cut = remove_files.symbols_cut(image)
            if cut is not None:
                digest = wheel.files[path][0]
                name, version = wheel.package.name, wheel.package.version
                becomes = cut.digest(image)
                yield Row(name, version, "symbols", path, 1, len(image), digest, str(cut.size), becomes)


def _folded(package: Locked, files: Mapping[str, tuple[str, int]], gone: Mapping[str, RemovalReason]) -> Iterator[Row]:
    """Write folders of which all files go for one reason as one row each, the topmost such."""
    reasons: dict[str, set[str]] = {}
    for path in files:
        for folder in _above(path):
            reasons.setdefault(folder, set()).add("" if path.endswith(".pyc") else gone.get(path, "kept"))
    rows: dict[str, list[str]] = {}
    for path in sorted(gone):
        top = next((folder for folder in _above(path) if reasons[folder] - {""} == {gone[path]}), path)
        rows.setdefault(top, []).append(path)
    for top, paths in sorted(rows.items()):
        digest = remove_files.digest_of_rows((path, files[path][0]) for path in paths)
        size = sum(files[path][1] for path in paths)
        yield Row(package.name, package.version, gone[paths[0]], top, len(paths), size, digest)


def _above(path: str) -> Iterator[str]:
    parts = path.split("/")
    return ("/".join(parts[:depth]) + "/" for depth in range(1, len(parts)))
