"""Read a wheel's shared objects: GPU code, RUNPATH, and the functions that open CUDA. Results are cached by digest."""

import ast
import hashlib
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec

from envbuilder.catalog import library_search
from envbuilder.catalog.rows import Kernels, Search
from envbuilder.probes.suite import fatbin
from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.client import IndexUnavailableError, PackageIndex
from envbuilder.pypi.pages import DistFile
from envbuilder.refresh import device_code, ptx_text, section_table
from envbuilder.support import decoding
from envbuilder.workspace import cache_dir, packaged

Progress = Callable[[str], None]
"""Called with the name of each object."""

_LIBRARY = re.compile(r"\.so(?:\.\d+)*$")
_RUNPATH = re.compile(rb"\$ORIGIN[\x20-\x7e]*\0")
_FOLDER = re.compile(rb"/nvidia/([a-z0-9_]+)/lib")
_FUNCTION = re.compile(rb"Get((?:Cu|Nv|Nccl)[A-Za-z]{0,24}?)DsoHandle")
_LONGEST = 1 << 16
"""More bytes than a RUNPATH, or such a name and the text around it, have."""

_STUBS = {"Nccl": b"nccl_stub", "Nvrtc": b"nvrtc_stub", "Nvshmem": b"nvshmem_stub"}
"""Texts in an object that calls such a function; in others NCCL is linked in, and the function is unused."""


class ObjectTexts:
    """Passes an object's pieces on unchanged and collects its RUNPATH and the functions that open CUDA's libraries.

    ``folders`` are those under ``nvidia`` in the first RUNPATH, which is the file's own: the dynamic loader's names
    come before a program's other texts. None if there is no complete RUNPATH.
    """

    def __init__(self) -> None:
        self.folders: tuple[str, ...] | None = None
        self._functions: set[str] = set()
        self._stubs: set[str] = set()

    def over(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        tail = b""
        for piece in pieces:
            text = tail + piece
            if self.folders is None and (found := _RUNPATH.search(text)):
                self.folders = tuple(sorted({decoding.lossy(name) for name in _FOLDER.findall(found.group())}))
            self._functions.update(decoding.lossy(name) for name in _FUNCTION.findall(text))
            self._stubs.update(name for name, mark in _STUBS.items() if mark in text)
            tail = text[-_LONGEST:]
            yield piece

    @property
    def openers(self) -> tuple[str, ...]:
        """The libraries that the functions open, sorted, without unused ones."""
        return tuple(sorted(self._functions - (_STUBS.keys() - self._stubs)))


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels by origin, the folders in the RUNPATH of each library, and the libraries that functions open.

    ``libraries`` counts the objects with GPU code. ``bytes_read`` are the packed bytes of all shared objects,
    ``seconds`` the time of reading.
    """

    fat_binaries: int = 0
    libraries: int = 0
    kernels: tuple[Kernels, ...] = ()
    searches: tuple[Search, ...] = ()
    openers: tuple[str, ...] = ()
    bytes_read: int = 0
    seconds: float = 0.0


def stored() -> Cache:
    """Return the user's cache of the contents of wheels' shared objects."""
    return Cache(cache_dir() / "evidence")


def read(
    index: PackageIndex, file: DistFile, kept: Cache | None = None, progress: Progress = lambda _: None
) -> tuple[Evidence, bool]:
    """Read every shared object of a wheel (up to 0.6 GB), or return the result in the cache ``kept`` (True).

    Results are cached by the wheel's digest and the digest of the reading code. Raises IndexUnavailableError if the
    index fails or an object is damaged.
    """
    if kept is None or not file.sha256:  # without a digest it may be another wheel
        return _read(index, file, progress), False
    if (known := kept.get(file.sha256, _reader())) is not None:
        with suppress(decoding.DamagedError):
            return decoding.from_msgpack(known, Evidence), True
    found = _read(index, file, progress)
    kept.put(file.sha256, _reader(), msgspec.msgpack.encode(found))
    return found, False


def _read(index: PackageIndex, file: DistFile, progress: Progress) -> Evidence:
    members = [member for member in index.members(file) if _LIBRARY.search(member.filename)]
    texts: dict[str, ObjectTexts] = {}
    libraries = []
    began = time.monotonic()
    for member in members:
        progress(f"{file.filename}: {member.filename} ({member.compress_size / 1e6:.0f} MB)")
        pieces, name = index.stream(file, member), member.filename.rpartition("/")[2]
        if name.startswith(library_search.OBJECTS):
            texts[name] = ObjectTexts()
            pieces = texts[name].over(pieces)
        try:
            groups = device_code.groups(pieces)
        except ValueError as error:
            raise IndexUnavailableError(f"{file.filename}: {member.filename}: {error}") from error
        if groups:
            libraries.append(groups)
    openers = {one for name, text in texts.items() if name.startswith(library_search.OPENER) for one in text.openers}
    return Evidence(
        fat_binaries=sum(group.fat_binaries for groups in libraries for group in groups),
        libraries=len(libraries),
        kernels=device_code.kernels(libraries),
        searches=tuple(Search(object=name, folders=texts[name].folders or ()) for name in sorted(texts)[::-1]),
        openers=tuple(sorted(openers)),
        bytes_read=sum(member.compress_size for member in members),
        seconds=round(time.monotonic() - began, 1),
    )


@cache
def _reader() -> str:
    """Return a digest of the code that reads: after a change, wheels are read again.

    Comments and layout do not count.
    """
    code = hashlib.sha256()
    modules = (fatbin, device_code, ptx_text, section_table, library_search)
    for file in (*(str(module.__file__) for module in modules), __file__):
        code.update(ast.dump(ast.parse(packaged(Path(file)))).encode())
    return f"evidence {code.hexdigest()}"
