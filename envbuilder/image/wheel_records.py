"""What the locked wheels themselves say of their files: each one's RECORD, kept by its hash, and how far proved."""

from __future__ import annotations

import hashlib
import io
import itertools
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import msgspec
from packaging.tags import compatible_tags, cpython_tags

from envbuilder.image.lockfile import Locked
from envbuilder.image.wheel_pins import Pin, hashed_rows, rows_digest
from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.client import with_own
from envbuilder.pypi.package_index import DistFile, IndexUnavailableError, PackageIndex
from envbuilder.support import decoding
from envbuilder.versions import distribution, minor, numbers, same
from envbuilder.workspace import cache_dir

_NEWEST_GLIBC = 45
"""The last minor version of the GNU C library that a wheel's name may ask for here; there is none of it yet."""

_KIND = "wheel-record-2"

_MOST_OF_A_RECORD = 64 << 20
"""Bytes of a RECORD, unpacked: TensorFlow's has three million."""

_WHOLE = 24 << 20
"""A wheel of so many bytes is read as a whole, once, and hashed: nine of ten packages of a lock. Of a larger one the
RECORD alone is read, which no hash proves; a build of ours that installs it by its hash does."""

Proof = Literal["", "whole", "built"]
"""Why a RECORD is the locked wheel's: '' as the index says, else the whole wheel was hashed, here or by a build of
ours, on this host or on the one that wrote the wheel's pin."""


@dataclass(frozen=True)
class WheelRecord:
    """The RECORD of a locked wheel; ``content`` is None where it cannot be had, and ``why`` says why.

    ``refuted`` is ``lock`` where the index has a wheel of this version for this Python, and it is not the locked one;
    ``image`` where the locked wheel's RECORD is pinned, and the image's own is another one.
    """

    filename: str = ""
    content: bytes | None = None
    why: str = ""
    proof: Proof = ""
    refuted: Literal["", "lock", "image"] = ""


class WheelRecords:
    """Gives the RECORDs of locked wheels: from the cache, else from ``index``, where one is given and answers.

    ``pins`` are what is written down of wheels, by their hash: a RECORD that is not as pinned is none. ``own`` are the
    addresses of a matrix's own indexes, which are asked too. What is read there and not proved is kept for those who
    ask the same ones: else an index of one matrix could say what the wheels of all others hold.
    """

    def __init__(
        self,
        index: PackageIndex | None,
        cache: Cache | None = None,
        pins: Mapping[str, Pin] | None = None,
        own: tuple[str, ...] = (),
    ) -> None:
        self._index = with_own(index, own)
        self._unproved = f"{_KIND} of {' '.join(own)}" if own else _KIND
        self._pins = pins or {}
        self._cache = cache or Cache(cache_dir() / "wheels")
        self._silent = ""

    def of(self, package: Locked, tags: frozenset[str]) -> WheelRecord:
        """Return the RECORD of the package's wheel that has these tags (``cp311-cp311-manylinux2014_x86_64``).

        An index that fails once is not asked again: then only what is kept can be had.
        """
        for _, kept in self._all_kept(package, tags):
            return kept
        if self._index is None or self._silent:
            return WheelRecord(why=self._silent or "no package index was asked")
        try:
            return self._ask(self._index, package, tags)
        except IndexUnavailableError as error:
            self._silent = f"the package index does not answer: {error}"
            return WheelRecord(why=self._silent)

    def keep(self, locked: Iterable[Locked], python: str, arch: str) -> int:
        """Keep the RECORD of each wheel that this Python may be given, while the index is at hand; return how many.

        A later validation then needs no index. What cannot be had now is no error: it is asked for again.
        """
        tags = frozenset(supported_tags(python, arch))
        try:
            return sum(self._keep_all(package, tags) for package in locked) if self._index is not None else 0
        except IndexUnavailableError:
            return 0

    def built(self, package: Locked, tags: frozenset[str]) -> None:
        """Note that a build of ours installed this wheel, by its hash, and left exactly what its RECORD names."""
        for digest, kept in self._all_kept(package, tags):
            if not kept.proof:
                self._put(digest, replace(kept, proof="built"))

    def proved(self, locked: Iterable[Locked]) -> Iterator[tuple[str, str, bytes]]:
        """Yield hash, name and RECORD of each locked wheel that a build of this host proved."""
        for package in locked:
            for digest in package.hashes:
                kept = self._get(digest)
                if kept is not None and kept.proof == "built" and kept.content is not None:
                    yield digest, kept.filename, kept.content

    def as_pinned(self, package: Locked, tags: frozenset[str], record: bytes) -> WheelRecord | None:
        """Return what a pin proves of the RECORD that an installer left; None where no such wheel is pinned.

        It holds the rows that the pin covers and no other: the image may have further rows.
        """
        pins = [self._pins[digest] for digest in package.hashes if digest in self._pins]
        names = {pin.rows: pin.filename for pin in pins if pin.rows and _has(pin.filename, tags)}
        if not names:
            return None
        name = names.get(rows_digest(record))
        if name is None:
            why = "its RECORD is not the one that a build proved of the locked wheel"
            return WheelRecord(why=why, refuted="image")
        return WheelRecord(name, hashed_rows(record), proof="built")

    def _all_kept(self, package: Locked, tags: frozenset[str]) -> Iterator[tuple[str, WheelRecord]]:
        for digest in package.hashes:
            kept = self._get(digest)
            if kept is not None and _has(kept.filename, tags):
                yield digest, kept

    def _get(self, digest: str) -> WheelRecord | None:
        for kind in dict.fromkeys((_KIND, self._unproved)):
            kept = self._kept_as(digest, kind)
            if kept is not None and (kept.proof or kind == self._unproved):
                return kept
        return None

    def _kept_as(self, digest: str, kind: str) -> WheelRecord | None:
        head, found, content = (self._cache.get(digest, kind) or b"").partition(b"\n")
        name, _, proof = decoding.lossy(head).partition("\t")
        known: Proof = "whole" if proof == "whole" else "built" if proof == "built" else ""
        kept = self._held(digest, WheelRecord(name, content, proof=known)) if found else None
        return kept if kept is not None and kept.content is not None else None

    def _held(self, digest: str, record: WheelRecord) -> WheelRecord:
        """Hold a RECORD against its wheel's pin: as pinned it is proved, else it is none."""
        pin = self._pins.get(digest)
        if pin is None or record.content is None or record.proof == "whole":
            return record
        if rows_digest(record.content) == pin.rows:
            return replace(record, content=hashed_rows(record.content), proof="built")
        return WheelRecord(why=f"the index gives another RECORD of {pin.filename} than the one that a build proved")

    def _put(self, digest: str, record: WheelRecord) -> None:
        if record.content is not None:
            kind = _KIND if record.proof else self._unproved
            self._cache.put(digest, kind, f"{record.filename}\t{record.proof}\n".encode() + record.content)

    def _keep_all(self, package: Locked, tags: frozenset[str]) -> int:
        assert self._index is not None  # noqa: S101 - asked by the only caller
        locked = [file for file in self._index.files(package.name) if f"sha256:{file.sha256}" in package.hashes]
        wheels = [file for file in locked if file.filename.endswith(".whl") and _has(file.filename, tags)]
        return sum(self._kept(self._index, file, package).content is not None for file in wheels)

    def _kept(self, index: PackageIndex, file: DistFile, package: Locked) -> WheelRecord:
        digest = f"sha256:{file.sha256}"
        kept = self._get(digest)
        if kept is None:
            kept = self._held(digest, _read(index, file, package))
            self._put(digest, kept)
        return kept

    def _ask(self, index: PackageIndex, package: Locked, tags: frozenset[str]) -> WheelRecord:
        found = WheelRecord(why="no locked wheel on the index has its tags: it was built from its source")
        for file in index.files(package.name):
            if not (file.filename.endswith(".whl") and _has(file.filename, tags)):
                continue
            if f"sha256:{file.sha256}" in package.hashes:
                found = self._kept(index, file, package)
                if found.content is not None:
                    return found
            elif file.sha256 and _is_of(file.filename, package):
                found = WheelRecord(why=f"the index has another {file.filename} than the lock names", refuted="lock")
        return found


def supported_tags(python: str, arch: str, glibc: int = _NEWEST_GLIBC) -> tuple[str, ...]:
    """List the tags of wheels that a CPython takes on Linux: the most specific for Python first, then the oldest glibc.

    So environments on several systems take the same wheel. ``glibc`` is the minor version of the GNU C library.
    """
    version = numbers(minor(python))
    platforms = [f"{old}_{arch}" for old in ("linux", "manylinux1", "manylinux2010", "manylinux2014")]
    platforms += [f"manylinux_2_{number}_{arch}" for number in range(5, glibc + 1)]
    tags = itertools.chain(
        cpython_tags(version, platforms=platforms),
        compatible_tags(version, f"cp{version[0]}{version[1]}", platforms),
    )
    return tuple(dict.fromkeys(map(str, tags)))


def wheel_tags(filename: str) -> frozenset[str]:
    """Return the tags in a wheel's name, each in full (PEP 425's compressed sets)."""
    parts = filename.removesuffix(".whl").split("-")[-3:]
    return frozenset("-".join(tag) for tag in itertools.product(*(part.split(".") for part in parts)))


def _has(filename: str, tags: frozenset[str]) -> bool:
    return not tags.isdisjoint(wheel_tags(filename))


def _is_of(filename: str, package: Locked) -> bool:
    """Tell whether a wheel's name is of the locked version: the second of its parts."""
    return same("".join(filename.split("-")[1:2]), package.version)


def _read(index: PackageIndex, file: DistFile, package: Locked) -> WheelRecord:
    """Read a wheel's RECORD: out of the whole wheel where that is small, and only if it is the locked one."""
    if file.size is not None and file.size > _WHOLE:
        file = msgspec.structs.replace(file, size=None)  # a page's word, by which no small wheel goes without its hash
    if index.size(file) > _WHOLE:
        for member in index.members(file):
            if _is_record(member.name, package):
                return WheelRecord(file.filename, b"".join(index.stream(file, member)))
        return WheelRecord(why=f"{file.filename} holds no RECORD")
    wheel = b"".join(index.whole(file))
    if hashlib.sha256(wheel).hexdigest() != file.sha256:
        return WheelRecord(why=f"the index gives another {file.filename} than the locked one")
    try:
        with decoding.damaged(file.filename), zipfile.ZipFile(io.BytesIO(wheel)) as archive:
            for entry in archive.infolist():
                if _is_record(entry.filename, package) and entry.file_size <= _MOST_OF_A_RECORD:
                    return WheelRecord(file.filename, archive.read(entry), proof="whole")
    except (decoding.DamagedError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:  # zipfile's own
        return WheelRecord(why=f"the locked wheel is damaged: {error}")
    return WheelRecord(why=f"{file.filename} holds no RECORD")


def _is_record(name: str, package: Locked) -> bool:
    folder, _, leaf = name.partition("/")
    project = distribution(folder.removesuffix(".dist-info").rpartition("-")[0])
    return leaf == "RECORD" and folder.endswith(".dist-info") and project == package.name
