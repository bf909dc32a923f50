"""Read what a wheel's shared objects hold, once for each wheel: the same bytes never have another answer."""

from __future__ import annotations

import ast
import hashlib
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import msgspec

from envbuilder.catalog import library_search
from envbuilder.catalog.library_search import OBJECTS, OPENER, RunpathReader
from envbuilder.catalog.rows import Kernels, Search
from envbuilder.probes.suite import fatbin
from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.package_index import DistFile, Member, PackageIndex
from envbuilder.refresh import device_code, opener_functions, ptx_text, section_table, wheel_code
from envbuilder.refresh.opener_functions import Openers
from envbuilder.support import decoding
from envbuilder.workspace import packaged

Progress = Callable[[str], None]
"""Told what is being read."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What a wheel's shared objects hold: kernels by origin, and the folders that each one's RUNPATH names.

    ``libraries`` counts the objects with GPU code; 0 is a wheel without any. ``bytes_read`` are the packed bytes of
    every shared object, ``seconds`` what reading them took.
    """

    fat_binaries: int = 0
    libraries: int = 0
    kernels: tuple[Kernels, ...] = ()
    searches: tuple[Search, ...] = ()
    bytes_read: int = 0
    seconds: float = 0.0


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """What a wheel's opener of CUDA has functions for (`opener_functions.Openers`).

    ``bytes_read`` and ``seconds`` are as above; both are 0 where it was seen while the whole wheel was read.
    """

    names: tuple[str, ...] = ()
    bytes_read: int = 0
    seconds: float = 0.0


_Found = TypeVar("_Found", Evidence, Opening)


class Reader:
    """Reads wheels, and keeps what was found by the wheel's digest and that of the code that reads."""

    def __init__(self, index: PackageIndex, kept: Cache | None = None, progress: Progress = lambda _: None) -> None:
        self._index = index
        self._kept = kept
        self._progress = progress
        self._passed: dict[str, Opening] = {}

    def read(self, file: DistFile) -> tuple[Evidence, bool]:
        """Read every shared object of a wheel (up to 0.6 GB), or say what was found in the same bytes before (True).

        Raises IndexUnavailableError where the index fails or an object is not as it should be.
        """
        return self._known(file, _reader(), Evidence, self._read)

    def openers(self, file: DistFile) -> tuple[Opening, bool]:
        """Read the one object that opens CUDA (up to 0.23 GB) for what it opens, or say what was found before (True).

        Where this reader has just read the whole wheel, that was seen on the way. Raises IndexUnavailableError where
        the index fails.
        """
        if file.filename in self._passed:
            return self._passed[file.filename], False
        return self._known(file, _openers_reader(), Opening, self._read_opener)

    def _known(
        self, file: DistFile, kind: str, form: type[_Found], read: Callable[[DistFile], _Found]
    ) -> tuple[_Found, bool]:
        if self._kept is None or not file.sha256:  # without a digest nothing says that it is the same wheel
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
        libraries = wheel_code.read(file, self._index, self._progress, watched)
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
    return _digest("evidence", (fatbin, device_code, ptx_text, section_table, wheel_code, library_search))


def _openers_reader() -> str:
    return _digest("openers", (opener_functions,))


@cache
def _digest(kind: str, modules: tuple[ModuleType, ...]) -> str:
    """Return what names the code that reads: a change of it makes what was found before worth nothing.

    Comments and the way in which it is written do not count.
    """
    code = hashlib.sha256()
    for module in modules:
        code.update(ast.dump(ast.parse(packaged(Path(module.__file__ or "")))).encode())
    return f"{kind} {code.hexdigest()}"


def _decoded(kept: bytes | None, form: type[_Found]) -> _Found | None:
    if kept is None:
        return None
    try:
        found: _Found = decoding.from_msgpack(kept, form)
    except decoding.DamagedError:
        return None
    return found
