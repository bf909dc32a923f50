"""Find a shared object as the dynamic loader does, and record every path that was tried.

Order (ld.so(8), dlopen(3)): the caller's RPATH if it has no RUNPATH, LD_LIBRARY_PATH, the caller's RUNPATH,
ld.so.cache, the default folders. A dlopen counts as a need of the object whose code calls it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence

from . import elf

DEFAULTS = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
CACHE_MAGIC = b"glibc-ld.so.cache1.1"


class Search:
    """The loader's view of one environment: its LD_LIBRARY_PATH, its cache, its default folders.

    `read`, `real`, `exists` and `names` are the only access to files: a subclass replaces them for other files.
    """

    def __init__(
        self,
        library_path: str | None = None,
        cache: dict[str, list[str]] | None = None,
        defaults: Iterable[str] = DEFAULTS,
    ) -> None:
        given = os.environ.get("LD_LIBRARY_PATH", "") if library_path is None else library_path
        self.library_path = [part for part in given.split(":") if part]
        self.cache = read_cache() if cache is None else cache
        self.defaults = list(defaults)
        self._known: dict[str, elf.Elf | None] = {}

    def places(self, caller: elf.Elf | None, chain: Sequence[elf.Elf] = ()) -> tuple[list[str], list[str]]:
        """Return the folders that are searched for a need of ``caller`` (an Elf), in order, without the cache."""
        before, after = [], []
        if caller is not None:
            if caller.runpath:
                after = self._expanded(caller.runpath, caller)
            else:
                before = self._expanded(caller.rpath, caller)
                for parent in chain:
                    before += [] if parent.runpath else self._expanded(parent.rpath, parent)
        return before + self.library_path, after

    def find(
        self, name: str, caller: elf.Elf | None = None, chain: Sequence[elf.Elf] = ()
    ) -> tuple[str | None, list[str]]:
        """Return (path or None, every path tried in order) for the need ``name`` of ``caller``."""
        if "/" in name:
            return (name if self.exists(name) else None), [name]
        first, second = self.places(caller, chain)
        tried = []
        for folder in first + second:
            path = os.path.join(folder, name)
            tried.append(path)
            if self.usable(path, caller):
                return path, tried
        for path in self.cache.get(name, ()):
            tried.append(path + " (ld.so.cache)")
            if self.usable(path, caller):
                return path, tried
        for folder in self.defaults:
            path = os.path.join(folder, name)
            tried.append(path)
            if self.usable(path, caller):
                return path, tried
        return None, tried

    def usable(self, path: str, caller: elf.Elf | None = None) -> bool:
        """Return True if the loader accepts this file: an ELF file for the caller's machine."""
        read = self.read(path)
        return read is not None and (caller is None or read.machine == caller.machine)

    def read(self, path: str) -> elf.Elf | None:
        """Read a file once; None if it is absent or not an ELF file."""
        if path not in self._known:
            try:
                self._known[path] = elf.Elf(path)
            except (OSError, elf.NotElfError, ValueError):
                self._known[path] = None
        return self._known[path]

    def real(self, path: str) -> str:
        return os.path.realpath(path)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(folder))
        except OSError:
            return []

    def size(self, path: str) -> int:
        return os.path.getsize(path)

    def _expanded(self, paths: Iterable[str], owner: elf.Elf) -> list[str]:
        return expand(paths, os.path.dirname(self.real(owner.path)))


def expand(paths: Iterable[str], origin: str) -> list[str]:
    return [
        os.path.normpath(path.replace("$ORIGIN", origin).replace("${ORIGIN}", origin))
        for path in (part.replace("${ORIGIN}", "$ORIGIN") for part in paths)
    ]


def read_cache(path: str = "/etc/ld.so.cache") -> dict[str, list[str]]:
    """Read ld.so.cache (new format): soname → paths, in the loader's order."""
    try:
        with open(path, "rb") as stream:
            return parse_cache(stream.read())
    except OSError:
        return {}


def parse_cache(data: bytes) -> dict[str, list[str]]:
    """Read the content of a cache; empty if it is another format, or damaged."""
    try:
        return _cached(data)
    except (struct.error, ValueError):
        return {}


def _cached(data: bytes) -> dict[str, list[str]]:
    at = data.find(CACHE_MAGIC)
    if at < 0:
        return {}
    count, _ = struct.unpack_from("<II", data, at + len(CACHE_MAGIC))
    found: dict[str, list[str]] = {}
    for index in range(count):
        _, key, value, _, _ = struct.unpack_from("<iIIIQ", data, at + 48 + index * 24)
        name = _text(data, at + key)
        found.setdefault(name, []).append(_text(data, at + value))
    return found


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode("utf-8", "replace")
