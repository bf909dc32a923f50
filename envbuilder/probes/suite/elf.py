"""Read what a shared object asks of the loader: soname, needed libraries, search paths, symbol versions, sections.

Written from the System V ABI (64-bit, little-endian; https://refspecs.linuxfoundation.org/elf/gabi4+/contents.html)
and the GNU symbol-versioning tables (https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/symversion.html).
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Tuple

_Row = Tuple[int, ...]

PT_LOAD, PT_DYNAMIC = 1, 2
DT_NEEDED, DT_STRTAB, DT_SONAME, DT_RPATH, DT_RUNPATH = 1, 5, 14, 15, 29
DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
DT_VERDEF, DT_VERDEFNUM = 0x6FFFFFFC, 0x6FFFFFFD
MACHINES = {62: "x86_64", 183: "aarch64", 3: "i386", 40: "arm", 21: "ppc64le"}


MOST_ENTRIES, LONGEST_TEXT, MOST_NAMED = 65536, 4096, 8192
"""Bounds on what one file may ask of its reader: more than any linker writes.

``MOST_NAMED`` is for each table whose entries are named: TensorFlow's largest library needs 60 libraries and some 200
versions of symbols.
"""


class NotElfError(ValueError):
    """The file is not a 64-bit little-endian ELF file."""


class DamagedElfError(NotElfError):
    """An ELF file whose tables are damaged."""


class Elf:
    """What one file says: ``needed``, ``soname``, ``rpath``, ``runpath`` (lists), ``versions`` (library → names).

    ``defines`` are the symbol versions that it offers. ``extent`` is how many bytes its headers speak of: a shorter
    file is truncated. ``image`` is its content where that is at hand already.
    """

    def __init__(self, path: str, image: mmap.mmap | None = None) -> None:
        self.path = path
        self.extent = 0
        self.soname: str | None = None
        self.needed: list[str] = []
        self.rpath: list[str] = []
        self.runpath: list[str] = []
        self.versions: dict[str, list[str]] = {}
        self.defines: list[str] = []
        self._segments: list[_Row] = []
        self.sections: dict[str, tuple[int, int]] = {}
        self.machine: str | None = None
        self.dynamic = False
        if image is not None:
            self._read(image)
            return
        with open(path, "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size < 64:
                raise NotElfError(path)
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as image:
                self._read(image)

    def _read(self, image: mmap.mmap) -> None:
        if image[:6] != b"\x7fELF\x02\x01":
            raise NotElfError(self.path)
        header = struct.unpack_from("<HHIQQQIHHHHHH", image, 16)
        self.machine = MACHINES.get(header[1], str(header[1]))
        try:
            segments = _table(image, header[4], header[8], header[9], "<IIQQQQQQ")
            ends = [row[2] + row[5] for row in segments if row[0] == PT_LOAD]
            self._segments = segments
            self.extent = max([header[5] + header[10] * header[11], *ends])
            self._sections(image, _table(image, header[5], header[10], header[11], "<IIQQQQIIQQ"), header[12])
            self._dynamic(image, segments)
        except (struct.error, IndexError, OverflowError) as error:
            raise DamagedElfError("{0}: damaged: {1}".format(self.path, error))

    def exported(self, image: mmap.mmap) -> Iterator[tuple[str, int, int]]:
        """Yield every exported symbol: name, offset, size; bounded."""
        (at, size), (names, _) = self.sections.get(".dynsym", (0, 0)), self.sections.get(".dynstr", (0, 0))
        for offset in range(at, at + min(size, 24 * MOST_ENTRIES), 24):
            with suppress(struct.error, IndexError):
                name, _, _, section, address, length = struct.unpack_from("<IBBHQQ", image, offset)
                if section:
                    yield _text(image, names + name), _offset(self._segments, address), length

    def _sections(self, image: mmap.mmap, rows: list[_Row], names_index: int) -> None:
        if not rows or names_index >= len(rows):
            return
        names = rows[names_index]
        for row in rows[:MOST_NAMED]:
            name = _text(image, names[4] + row[0])
            self.sections[name] = (row[4], row[5])

    def _dynamic(self, image: mmap.mmap, segments: list[_Row]) -> None:
        found = [row for row in segments if row[0] == PT_DYNAMIC]
        if not found:
            return
        self.dynamic = True
        entries = []
        for offset in range(found[0][2], found[0][2] + min(found[0][5], 16 * MOST_NAMED), 16):
            tag, value = struct.unpack_from("<QQ", image, offset)
            if tag == 0:
                break
            entries.append((tag, value))
        single = dict(entries)
        if DT_STRTAB not in single:
            return
        strings = _offset(segments, single[DT_STRTAB])
        self.needed = [_text(image, strings + value) for tag, value in entries if tag == DT_NEEDED]
        self.rpath = _paths(image, strings, single.get(DT_RPATH))
        self.runpath = _paths(image, strings, single.get(DT_RUNPATH))
        if DT_SONAME in single:
            self.soname = _text(image, strings + single[DT_SONAME])
        if DT_VERNEED in single:
            at = _offset(segments, single[DT_VERNEED])
            self._versions(image, strings, at, single.get(DT_VERNEEDNUM, 0))
        if DT_VERDEF in single:
            at = _offset(segments, single[DT_VERDEF])
            self._defined(image, strings, at, single.get(DT_VERDEFNUM, 0))

    def _defined(self, image: mmap.mmap, strings: int, at: int, count: int) -> None:
        """Read the names of the versions that are defined: the first name of each entry, parents left out."""
        for _ in range(min(count, MOST_NAMED)):
            _, _, _, _, _, first, following = struct.unpack_from("<HHHHIII", image, at)
            (name,) = struct.unpack_from("<I", image, at + first)
            self.defines.append(_text(image, strings + name))
            at += following
            if not following:
                break

    def _versions(self, image: mmap.mmap, strings: int, at: int, count: int) -> None:
        left = MOST_NAMED  # over all libraries: entries may overlap, and name the same again and again
        for _ in range(min(count, MOST_NAMED)):
            _, auxiliaries, library, first, following = struct.unpack_from("<HHIII", image, at)
            names = []
            place = at + first
            named = min(auxiliaries, left)
            left -= named
            for _ in range(named):
                _, _, _, name, step = struct.unpack_from("<IHHII", image, place)
                names.append(_text(image, strings + name))
                place += step
                if not step:
                    break
            self.versions[_text(image, strings + library)] = names
            at += following
            if not following:
                break


def _table(image: mmap.mmap, offset: int, size: int, count: int, layout: str) -> list[_Row]:
    return [struct.unpack_from(layout, image, offset + index * size) for index in range(count)]


def _offset(segments: list[_Row], address: int) -> int:
    for kind, _, offset, virtual, _, size, _, _ in segments:
        if kind == PT_LOAD and virtual <= address < virtual + size:
            return address - virtual + offset
    raise IndexError("address {0:#x} is in no segment".format(address))


def _text(image: mmap.mmap, offset: int) -> str:
    end = image.find(b"\0", offset, offset + LONGEST_TEXT)
    return image[offset : end if end >= 0 else offset + LONGEST_TEXT].decode("utf-8", "replace")


def _paths(image: mmap.mmap, strings: int, value: int | None) -> list[str]:
    return [part for part in _text(image, strings + value).split(":") if part] if value is not None else []
