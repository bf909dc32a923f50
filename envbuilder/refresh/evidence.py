"""Read what a wheel's shared objects hold, once for each wheel: the same bytes never have another answer."""

from __future__ import annotations

import ast
import hashlib
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import msgspec

from envbuilder.catalog import runpath
from envbuilder.catalog.rows import Kernels, Search
from envbuilder.catalog.runpath import OBJECTS, Watch
from envbuilder.errors import decode
from envbuilder.probes.suite import fatbin
from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.package_index import DistFile, Member, PackageIndex
from envbuilder.refresh import device_code, ptx_text, section_table, wheel_code
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


class Reader:
    """Reads wheels, and keeps what was found by the wheel's digest and that of the code that reads."""

    def __init__(self, index: PackageIndex, kept: Cache | None = None, progress: Progress = lambda _: None) -> None:
        self._index = index
        self._kept = kept
        self._progress = progress

    def read(self, file: DistFile) -> tuple[Evidence, bool]:
        """Read every shared object of a wheel (up to 0.6 GB), or say what was found in the same bytes before (True).

        Raises IndexUnavailableError where the index fails or an object is not as it should be.
        """
        if self._kept is None or not file.sha256:  # without a digest nothing says that it is the same wheel
            return self._read(file), False
        known = _decoded(self._kept.get(file.sha256, _reader()))
        if known is not None:
            return known, True
        found = self._read(file)
        self._kept.put(file.sha256, _reader(), msgspec.msgpack.encode(found))
        return found, False

    def _read(self, file: DistFile) -> Evidence:
        watches: dict[str, Watch] = {}
        packed = 0

        def watched(member: Member, pieces: Iterator[bytes]) -> Iterator[bytes]:
            nonlocal packed
            packed += member.packed
            name = member.name.rpartition("/")[2]
            if not name.startswith(OBJECTS):
                return pieces
            watches[name] = Watch()
            return watches[name].over(pieces)

        began = time.monotonic()
        libraries = wheel_code.read(file, self._index, self._progress, watched)
        return Evidence(
            fat_binaries=sum(group.fat_binaries for library in libraries for group in library.groups),
            libraries=len(libraries),
            kernels=device_code.kernels(libraries),
            searches=tuple(Search(object=name, folders=watches[name].folders or ()) for name in sorted(watches)[::-1]),
            bytes_read=packed,
            seconds=round(time.monotonic() - began, 1),
        )


@cache
def _reader() -> str:
    """Return what names the code that reads: a change of it makes what was found before worth nothing.

    Comments and the way in which it is written do not count.
    """
    modules = (fatbin, device_code, ptx_text, section_table, wheel_code, runpath)
    code = hashlib.sha256()
    for module in modules:
        code.update(ast.dump(ast.parse(packaged(Path(module.__file__ or "")))).encode())
    return f"evidence {code.hexdigest()}"


def _decoded(kept: bytes | None) -> Evidence | None:
    if kept is None:
        return None
    try:
        found: Evidence = decode.from_msgpack(kept, Evidence)
    except decode.DamagedError:
        return None
    return found
