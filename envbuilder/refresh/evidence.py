"""Read a wheel's shared objects: GPU code, RUNPATH, and the functions that open CUDA. Results are cached by digest."""

from __future__ import annotations

import ast
import hashlib
import re
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec

from envbuilder.catalog import library_search
from envbuilder.catalog.library_search import OBJECTS, OPENER, RunpathReader
from envbuilder.catalog.rows import Kernels, Search
from envbuilder.probes.suite import fatbin
from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.package_index import DistFile, IndexUnavailableError, Member, PackageIndex
from envbuilder.refresh import device_code, ptx_text, section_table
from envbuilder.support import decoding
from envbuilder.workspace import packaged

Progress = Callable[[str], None]
"""Called with the name of each object."""


_FUNCTION = re.compile(rb"Get((?:Cu|Nv|Nccl)[A-Za-z]{0,24}?)DsoHandle")
_LONGEST = 64
"""More bytes than such a name and the text around it have."""

_STUBS = {"Nccl": b"nccl_stub", "Nvrtc": b"nvrtc_stub", "Nvshmem": b"nvshmem_stub"}
"""Texts in an object that calls such a function; in others NCCL is linked in, and the function is unused."""


class Openers:
    """Passes an object's pieces on unchanged and collects the functions that open CUDA's libraries."""

    def __init__(self) -> None:
        self._found: set[str] = set()
        self._stubs: set[str] = set()

    def over(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        tail = b""
        for piece in pieces:
            text = tail + piece
            self._found.update(decoding.lossy(name) for name in _FUNCTION.findall(text))
            self._stubs.update(name for name, mark in _STUBS.items() if mark in text)
            tail = text[-_LONGEST:]
            yield piece

    @property
    def names(self) -> tuple[str, ...]:
        """The libraries that the functions open, sorted, without unused ones."""
        return tuple(sorted(self._found - (_STUBS.keys() - self._stubs)))


_LIBRARY = re.compile(r"\.so(?:\.\d+)*$")


def gpu_code(
    file: DistFile,
    index: PackageIndex,
    progress: Callable[[str], None] = lambda _: None,
    watch: Callable[[Member, Iterator[bytes]], Iterator[bytes]] = lambda _, pieces: pieces,
) -> tuple[device_code.LibraryCode, ...]:
    """Read the GPU code of each shared object of a wheel (up to 0.6 GB); objects without it are left out.

    ``watch`` gets each object's pieces and passes them on. Raises IndexUnavailableError if the index fails or an object
    is damaged.
    """
    found = []
    for member in index.members(file):
        if not _LIBRARY.search(member.name):
            continue
        progress(f"{file.filename}: {member.name} ({member.packed / 1e6:.0f} MB)")
        try:
            held = device_code.groups(watch(member, index.stream(file, member)))
        except ValueError as error:
            raise IndexUnavailableError(f"{file.filename}: {member.name}: {error}") from error
        if held:
            found.append(device_code.LibraryCode(member.name, held))
    return tuple(found)


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels by origin, and the folders in the RUNPATH of each library.

    ``libraries`` counts the objects with GPU code. ``bytes_read`` are the packed bytes of all shared objects,
    ``seconds`` the time of reading.
    """

    fat_binaries: int = 0
    libraries: int = 0
    kernels: tuple[Kernels, ...] = ()
    searches: tuple[Search, ...] = ()
    bytes_read: int = 0
    seconds: float = 0.0


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """The libraries that a wheel has functions to open (`Openers`).

    ``bytes_read`` and ``seconds`` are as above, or 0 if they are part of the reading of the complete wheel.
    """

    names: tuple[str, ...] = ()
    bytes_read: int = 0
    seconds: float = 0.0


_Found = TypeVar("_Found", Evidence, Opening)


class Reader:
    """Reads wheels, and caches the results by the wheel's digest and the digest of the reading code."""

    def __init__(self, index: PackageIndex, kept: Cache | None = None, progress: Progress = lambda _: None) -> None:
        self._index = index
        self._kept = kept
        self._progress = progress
        self._passed: dict[str, Opening] = {}

    def read(self, file: DistFile) -> tuple[Evidence, bool]:
        """Read every shared object of a wheel (up to 0.6 GB), or return the cached result (True).

        Raises IndexUnavailableError if the index fails or an object is damaged.
        """
        return self._known(file, _reader(), Evidence, self._read)

    def openers(self, file: DistFile) -> tuple[Opening, bool]:
        """Read the object that opens CUDA (up to 0.23 GB), or return the cached result (True).

        The result is known if this reader has just read the complete wheel. Raises IndexUnavailableError if the index
        fails.
        """
        if file.filename in self._passed:
            return self._passed[file.filename], False
        return self._known(file, _openers_reader(), Opening, self._read_opener)

    def _known(
        self, file: DistFile, kind: str, form: type[_Found], read: Callable[[DistFile], _Found]
    ) -> tuple[_Found, bool]:
        if self._kept is None or not file.sha256:  # without a digest it may be another wheel
            return read(file), False
        known = _decoded(self._kept.get(file.sha256, kind), form)
        if known is not None:
            return known, True
        found = read(file)
        self._kept.put(file.sha256, kind, msgspec.msgpack.encode(found))
        return found, False

    def _read_opener(self, file: DistFile) -> Opening:
        openers, packed, began = Openers(), 0, time.monotonic()
        for member in self._index.members(file):
            if member.name.rpartition("/")[2].startswith(OPENER):
                packed += member.packed
                self._progress(f"{file.filename}: {member.name} ({member.packed / 1e6:.0f} MB)")
                for _ in openers.over(self._index.stream(file, member)):
                    pass
        return Opening(names=openers.names, bytes_read=packed, seconds=round(time.monotonic() - began, 1))

    def _read(self, file: DistFile) -> Evidence:
        readers: dict[str, RunpathReader] = {}
        openers, packed = Openers(), 0

        def watched(member: Member, pieces: Iterator[bytes]) -> Iterator[bytes]:
            nonlocal packed
            packed += member.packed
            name = member.name.rpartition("/")[2]
            if not name.startswith(OBJECTS):
                return pieces
            readers[name] = RunpathReader()
            return readers[name].over(openers.over(pieces) if name.startswith(OPENER) else pieces)

        began = time.monotonic()
        libraries = gpu_code(file, self._index, self._progress, watched)
        self._passed[file.filename] = Opening(names=openers.names)
        if self._kept is not None and file.sha256:
            self._kept.put(file.sha256, _openers_reader(), msgspec.msgpack.encode(self._passed[file.filename]))
        return Evidence(
            fat_binaries=sum(group.fat_binaries for library in libraries for group in library.groups),
            libraries=len(libraries),
            kernels=device_code.kernels(libraries),
            searches=tuple(Search(object=name, folders=readers[name].folders or ()) for name in sorted(readers)[::-1]),
            bytes_read=packed,
            seconds=round(time.monotonic() - began, 1),
        )


def _reader() -> str:
    modules = (fatbin, device_code, ptx_text, section_table, library_search)
    return _digest("evidence", *(module.__file__ for module in modules))


def _openers_reader() -> str:
    return _digest("openers")


@cache
def _digest(kind: str, *files: str) -> str:
    """Return a digest of the code that reads, this module included: after a change, wheels are read again.

    Comments and layout do not count.
    """
    code = hashlib.sha256()
    for file in (*files, __file__):
        code.update(ast.dump(ast.parse(packaged(Path(file)))).encode())
    return f"{kind} {code.hexdigest()}"


def _decoded(kept: bytes | None, form: type[_Found]) -> _Found | None:
    if kept is None:
        return None
    try:
        found: _Found = decoding.from_msgpack(kept, form)
    except decoding.DamagedError:
        return None
    return found
