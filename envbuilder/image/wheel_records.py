"""RECORDs of locked wheels: stored by the wheel's hash, with the proof for each; pins of them in `images/wheels.json`.

A build installs every wheel by its hash, so that an image with just the files of a RECORD proves that RECORD. Its pin
proves it on other hosts, where neither the index nor the image is trusted for it.
"""

import hashlib
import io
import itertools
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from envbuilder.image.lockfile import Locked, supported_tags
from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.client import MAX_MEMBER, IndexUnavailableError, PackageIndex
from envbuilder.pypi.pages import DistFile
from envbuilder.support import decoding
from envbuilder.versions import distribution, same
from envbuilder.workspace import Workspace, cache_dir, digest, read_document, write_atomically

_KIND = "wheel-record-2"

_WHOLE = 24 << 20
"""A wheel up to this many bytes is read completely, once, and hashed: nine of ten packages of a lock. Of a larger one
only the RECORD is read, which no hash proves; a build by envbuilder that installs it by its hash does."""

_BY_INSTALLERS = frozenset({"RECORD", "RECORD.jws", "RECORD.p7s", "INSTALLER", "REQUESTED", "direct_url.json"})

Proof = Literal["", "whole", "built"]
"""Why a RECORD is the locked wheel's: '' because the index says so, else because the complete wheel was hashed, here or
by a build of envbuilder."""

_PROOFS: Mapping[str, Proof] = {"whole": "whole", "built": "built"}


class Pin(msgspec.Struct, frozen=True):
    """A wheel's name, and the digest of the rows of its RECORD (`rows_digest`)."""

    filename: str
    rows: str


class WheelPins(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = "envbuilder/wheels/v1"
    wheels: dict[str, Pin] = {}


def read_pins(workspace: Workspace) -> Mapping[str, Pin]:
    return (read_document(workspace.wheels, WheelPins) or WheelPins()).wheels


def add_pins(workspace: Workspace, proved: Iterable[tuple[str, str, bytes]]) -> None:
    """Add proved wheels (hash, name and RECORD) to the document; a pin in it never changes.

    A wheel that puts files elsewhere than among its packages gets no pin, which would not cover them.
    """
    before = read_pins(workspace)
    found = dict(before)
    for wheel, name, record in proved:
        elsewhere = any(row[0].partition("/")[0].endswith(".data") for row in decoding.csv_rows(record) if row)
        if wheel not in before and not elsewhere and (rows := rows_digest(record)):
            found[wheel] = Pin(name, rows)
    if found != before:
        lines = (f'    "{wheel}": {decoding.to_json(pin).decode()}' for wheel, pin in sorted(found.items()))
        head = f'{{\n  "schema": "{WheelPins().schema}",\n  "wheels": {{\n'
        write_atomically(workspace.wheels, (head + ",\n".join(lines) + "\n  }\n}\n").encode())


def rows_digest(record: bytes) -> str:
    """Return one digest of the files that a RECORD names inside the packages' folder; '' if it cannot tell them.

    A wheel's RECORD and the one that an installer leaves have the same: its notes, byte code and files elsewhere are
    left out. A wheel that brings files of packages by its ``.data`` has none.
    """
    own = _hashed(record)
    return digest("".join(f"{_quoted(path)},{written}\n" for path, written in sorted(own)).encode()) if own else ""


def hashed_rows(record: bytes) -> bytes:
    """Return a RECORD of only those rows that `rows_digest` covers: a pin proves no other."""
    return "".join(f"{_quoted(path)},{written},\n" for path, written in _hashed(record)).encode()


def _hashed(record: bytes) -> list[tuple[str, str]]:
    """Return path and digest of each row that is hashed; none if a row has not three fields, or a path occurs twice."""
    rows = [row for row in decoding.csv_rows(record) if row]
    if any(len(row) != 3 or not row[0] for row in rows):  # noqa: PLR2004 - path, digest, size: no installer differs
        return []
    moved = any(path.partition(".data/")[2].startswith(("purelib", "platlib")) for path, _, _ in rows)
    own = [(path, written) for path, written, _ in rows if ".data/" not in path and not _is_of_installers(path)]
    return own if not moved and len(dict(own)) == len(own) else []


def _quoted(path: str) -> str:
    """Write a path as all writers of RECORDs do."""
    return '"' + path.replace('"', '""') + '"' if set(path) & set(',"') else path


def _is_of_installers(path: str) -> bool:
    folder, _, leaf = path.rpartition("/")
    if path.startswith(("../", "/")) or (folder.endswith("__pycache__") and leaf.endswith(".pyc")):
        return True
    return folder.endswith(".dist-info") and leaf in _BY_INSTALLERS


@dataclass(frozen=True)
class WheelRecord:
    """The RECORD of a locked wheel; ``content`` is None if it is not available, for the reason ``why``.

    ``refuted`` is ``lock`` if the index has a wheel of this version for this Python that is not the locked one;
    ``image`` if the locked wheel's RECORD is pinned and the image has another one.
    """

    filename: str = ""
    content: bytes | None = None
    why: str = ""
    proof: Proof = ""
    refuted: Literal["", "lock", "image"] = ""


class WheelRecords:
    """RECORDs of locked wheels: from the cache, else from ``index`` if there is one.

    ``pins`` are by hash: a RECORD that differs from its pin is not used. ``own`` are a matrix's own indexes, which are
    queried too. Answers without proof are stored for those who query the same indexes: an index of one matrix must not
    decide about the wheels of others.
    """

    def __init__(
        self,
        index: PackageIndex | None,
        cache: Cache | None = None,
        pins: Mapping[str, Pin] | None = None,
        own: tuple[str, ...] = (),
    ) -> None:
        self._index = index.with_indexes(own) if index is not None else None
        self._unproved = f"{_KIND} of {' '.join(own)}" if own else _KIND
        self._pins = pins or {}
        self._cache = cache or Cache(cache_dir() / "wheels")
        self._silent = "" if index is not None else "no package index was asked"

    def of(self, package: Locked, tags: frozenset[str]) -> WheelRecord:
        """Return the RECORD of the package's wheel that has one of these tags (``cp311-cp311-manylinux2014_x86_64``).

        After its first failure, an index is not queried again.
        """
        for _, stored in self._all_stored(package, tags):
            return stored
        if self._index is None or self._silent:
            return WheelRecord(why=self._silent)
        try:
            return self._ask(self._index, package, tags)
        except IndexUnavailableError as error:
            self._silent = f"the package index does not answer: {error}"
            return WheelRecord(why=self._silent)

    def published(self, name: str, version: str, tags: frozenset[str]) -> Locked | None:
        """Return the wheel of a version, with one of these tags, as a lock would name it: by its pin or the index."""
        begin = f"{distribution(name).replace('-', '_')}-{version}-"
        wheels = [
            wheel for wheel, pin in self._pins.items() if pin.filename.startswith(begin) and _has(pin.filename, tags)
        ]
        if not wheels and self._index is not None and not self._silent:
            with suppress(IndexUnavailableError):
                files = [one for one in self._index.files(name) if one.filename.startswith(begin) and one.sha256]
                wheels = [f"sha256:{one.sha256}" for one in files if _has(one.filename, tags)]
        return Locked(distribution(name), version, tuple(wheels), "") if wheels else None

    def store(self, locked: Iterable[Locked], python: str, arch: str) -> int:
        """Store the RECORD of each wheel for this Python, for a validation without an index; return their number."""
        tags = frozenset(map(str, supported_tags(python, arch)))
        return sum(self.of(package, tags).content is not None for package in locked)

    def built(self, package: Locked, tags: frozenset[str]) -> None:
        """Note that a build by envbuilder installed this wheel by its hash, with exactly the files of its RECORD."""
        for wheel, stored in self._all_stored(package, tags):
            if not stored.proof:
                self._put(wheel, replace(stored, proof="built"))

    def proved(self, locked: Iterable[Locked]) -> Iterator[tuple[str, str, bytes]]:
        """Yield hash, name and RECORD of each locked wheel that a build of this host proved."""
        for wheel in (wheel for package in locked for wheel in package.hashes):
            stored = self._stored(wheel)
            if stored is not None and stored.proof == "built" and stored.content is not None:
                yield wheel, stored.filename, stored.content

    def as_pinned(self, package: Locked, tags: frozenset[str], record: bytes) -> WheelRecord | None:
        """Return the rows of an installed RECORD that its pin covers; None if no such wheel is pinned."""
        pins = [self._pins[wheel] for wheel in package.hashes if wheel in self._pins]
        names = {pin.rows: pin.filename for pin in pins if pin.rows and _has(pin.filename, tags)}
        if not names:
            return None
        name = names.get(rows_digest(record))
        if name is None:
            why = "its RECORD is not the one that a build proved of the locked wheel"
            return WheelRecord(why=why, refuted="image")
        return WheelRecord(name, hashed_rows(record), proof="built")

    def _all_stored(self, package: Locked, tags: frozenset[str]) -> Iterator[tuple[str, WheelRecord]]:
        for wheel in package.hashes:
            stored = self._stored(wheel)
            if stored is not None and _has(stored.filename, tags):
                yield wheel, stored

    def _stored(self, wheel: str) -> WheelRecord | None:
        for kind in dict.fromkeys((_KIND, self._unproved)):
            head, found, content = (self._cache.get(wheel, kind) or b"").partition(b"\n")
            name, _, proof = decoding.lossy(head).partition("\t")
            record = self._checked(wheel, WheelRecord(name, content, proof=_PROOFS.get(proof, "")))
            if found and record.content is not None and (record.proof or kind == self._unproved):
                return record
        return None

    def _checked(self, wheel: str, record: WheelRecord) -> WheelRecord:
        """Compare a RECORD with its wheel's pin: one that differs is not used, an equal one is proved."""
        pin = self._pins.get(wheel)
        if pin is None or record.content is None or record.proof == "whole":
            return record
        if rows_digest(record.content) == pin.rows:
            return replace(record, content=hashed_rows(record.content), proof="built")
        return WheelRecord(why=f"the index gives another RECORD of {pin.filename} than the one that a build proved")

    def _put(self, wheel: str, record: WheelRecord) -> None:
        if record.content is not None:
            kind = _KIND if record.proof else self._unproved
            self._cache.put(wheel, kind, f"{record.filename}\t{record.proof}\n".encode() + record.content)

    def _ask(self, index: PackageIndex, package: Locked, tags: frozenset[str]) -> WheelRecord:
        found = WheelRecord(why="no locked wheel on the index has its tags: it was built from its source")
        for file in index.files(package.name):
            wheel = f"sha256:{file.sha256}"
            if not (file.filename.endswith(".whl") and _has(file.filename, tags)):
                continue
            if wheel in package.hashes:
                found = self._checked(wheel, _read(index, file, package))
                self._put(wheel, found)
                if found.content is not None:
                    return found
            elif file.sha256 and same("".join(file.filename.split("-")[1:2]), package.version):
                found = WheelRecord(why=f"the index has another {file.filename} than the lock names", refuted="lock")
        return found


def _has(filename: str, tags: frozenset[str]) -> bool:
    """Return True if a wheel's name has one of these tags (it has compressed sets of them: PEP 425)."""
    parts = filename.removesuffix(".whl").split("-")[-3:]
    return any("-".join(tag) in tags for tag in itertools.product(*(part.split(".") for part in parts)))


def read_record(index: PackageIndex, file: DistFile, package: Locked) -> bytes | None:
    """Read a wheel's RECORD, and nothing else of the wheel."""
    folder = "-".join(file.filename.split("-")[:2]) + ".dist-info"
    if (record := index.member(file, f"{folder}/RECORD")) is not None:
        return record
    # Some wheels spell the folder in another way than their own name.
    name = next((one.filename for one in index.members(file) if _is_record(one.filename, package)), None)
    return index.member(file, name) if name is not None else None


def _read(index: PackageIndex, file: DistFile, package: Locked) -> WheelRecord:
    """Read a wheel's RECORD; a small wheel is read completely, and used only if it is the locked one."""
    none = WheelRecord(why=f"{file.filename} holds no RECORD")
    if file.size is not None and file.size > _WHOLE:
        file = msgspec.structs.replace(file, size=None)  # a false page must not spare a small wheel its hash
    if index.size(file) > _WHOLE:
        record = read_record(index, file, package)
        return WheelRecord(file.filename, record) if record is not None else none
    wheel = b"".join(index.whole(file))
    if hashlib.sha256(wheel).hexdigest() != file.sha256:
        return WheelRecord(why=f"the index gives another {file.filename} than the locked one")
    try:
        with decoding.damaged(file.filename), zipfile.ZipFile(io.BytesIO(wheel)) as archive:
            for entry in archive.infolist():
                if _is_record(entry.filename, package) and entry.file_size <= MAX_MEMBER:
                    return WheelRecord(file.filename, archive.read(entry), proof="whole")
    except (decoding.DamagedError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:  # zipfile's own
        return WheelRecord(why=f"the locked wheel is damaged: {error}")
    return none


def _is_record(name: str, package: Locked) -> bool:
    folder, _, leaf = name.partition("/")
    project = distribution(folder.removesuffix(".dist-info").rpartition("-")[0])
    return leaf == "RECORD" and folder.endswith(".dist-info") and project == package.name
