"""Find which GPU architectures a shared object holds code for, by the headers of its CUDA fat binaries.

A fat binary (section ``.nv_fatbin``) is a header of 16 bytes (magic, version, header size, length) and entries that
each say their kind (PTX or machine code), their own header's size, their payload's size and the compute capability.
Payloads may be compressed; headers never are. The layout is as ``fatbinary`` writes it; the tests hold files it made.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

MAGIC = b"\x50\xed\x55\xba"
"""The four bytes that a fat binary begins with (0xBA55ED50, little endian)."""

PTX, CUBIN = 1, 2
"""The kinds of entries: text that the driver compiles, and machine code."""

CONTAINER = struct.Struct("<4sHHQ")
"""A fat binary's own header: magic, version, this header's size, the bytes that follow it."""

_ENTRY = struct.Struct("<HHIQIIHHI")
_LARGEST_ENTRY_HEADER = 4096
_MOST_ENTRIES = 256
_PTX_HEAD = 132 * 1024
"""How much of a PTX payload is kept: the directives are at its beginning; zstd's first block has up to 128 KiB."""


class Architectures(NamedTuple):
    """Compute capabilities found (``"8.6"``), oldest first: machine code, PTX, and how many fat binaries there were."""

    cubins: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()
    fat_binaries: int = 0


class Entry(NamedTuple):
    """One entry: its kind, architecture number (``86``), own header, and a PTX payload's first 132 KiB."""

    kind: int
    architecture: int
    header: bytes
    payload: bytes = b""


class FatBinary(NamedTuple):
    """One fat binary: its offset in the file, in bytes, and up to 256 entries in order."""

    offset: int
    entries: tuple[Entry, ...]


def architectures(pieces: Iterable[bytes]) -> Architectures:
    """Read a file that comes in pieces of any size, in order; memory stays at two pieces.

    A file without a fat binary gives empty tuples, which says that it holds no GPU code of this form.
    """
    found: set[tuple[int, int]] = set()
    count = 0
    for fat_binary in fat_binaries(pieces):
        found.update((entry.kind, entry.architecture) for entry in fat_binary.entries)
        count += 1
    return Architectures(
        cubins=capabilities(arch for kind, arch in found if kind == CUBIN),
        ptx=capabilities(arch for kind, arch in found if kind == PTX),
        fat_binaries=count,
    )


def fat_binaries(pieces: Iterable[bytes]) -> Iterator[FatBinary]:
    """Yield the fat binaries of a file that comes in pieces of any size, in order; memory stays at two pieces."""
    reader = _Reader(pieces)
    while reader.find(MAGIC):
        head = reader.look(CONTAINER.size + _ENTRY.size)
        if _is_fat_binary(head):
            yield FatBinary(reader.offset, tuple(islice(_entries(reader), _MOST_ENTRIES)))
        else:
            reader.skip(len(MAGIC))


def length_of(head: bytes) -> int:
    """Return the size of the fat binary that begins with these 64 bytes; 0 if none begins there."""
    if not _is_fat_binary(head):
        return 0
    _, _, header, length = CONTAINER.unpack_from(head)
    return int(header + length)


def capabilities(numbers: Iterable[int]) -> tuple[str, ...]:
    """Return architecture numbers as compute capabilities (86: ``"8.6"``), each once, oldest first."""
    return tuple(f"{number // 10}.{number % 10}" for number in sorted(set(numbers)))


class _Reader:
    """Bytes that arrive in pieces, with look-ahead."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._buffer = b""
        self._at = 0
        self._before = 0

    @property
    def offset(self) -> int:
        return self._before + self._at

    def look(self, length: int) -> bytes:
        """Return the next bytes without taking them; fewer at the end."""
        while len(self._buffer) - self._at < length:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._buffer = self._buffer[self._at :] + piece
            self._before += self._at
            self._at = 0
        return self._buffer[self._at : self._at + length]

    def skip(self, length: int) -> None:
        while length > len(self._buffer) - self._at:
            length -= len(self._buffer) - self._at
            self._before += len(self._buffer)
            self._buffer, self._at = next(self._pieces, b""), 0
            if not self._buffer:
                return
        self._at += length

    def find(self, wanted: bytes) -> bool:
        """Skip to the next ``wanted``; False at the end."""
        while True:
            place = self._buffer.find(wanted, self._at)
            if place >= 0:
                self._at = place
                return True
            self._at = max(self._at, len(self._buffer) - len(wanted) + 1)
            more = len(self._buffer) - self._at + 1
            if len(self.look(more)) < more:
                return False


def _is_fat_binary(head: bytes) -> bool:
    if len(head) < CONTAINER.size + _ENTRY.size:
        return False
    _, version, header, length = CONTAINER.unpack_from(head)
    kind, _, entry_header, payload, *_ = _ENTRY.unpack_from(head, CONTAINER.size)
    fits = _ENTRY.size <= entry_header <= _LARGEST_ENTRY_HEADER and entry_header + payload <= length
    return version == 1 and header == CONTAINER.size and kind in (PTX, CUBIN) and fits


def _entries(reader: _Reader) -> Iterator[Entry]:
    _, _, header, left = CONTAINER.unpack(reader.look(CONTAINER.size))
    reader.skip(header)
    while left >= _ENTRY.size:
        head = reader.look(_ENTRY.size)
        if len(head) < _ENTRY.size:
            return
        kind, _, entry_header, payload, _, _, _, _, architecture = _ENTRY.unpack(head)
        if not _ENTRY.size <= entry_header <= _LARGEST_ENTRY_HEADER:
            return
        kept = reader.look(entry_header + (min(payload, _PTX_HEAD) if kind == PTX else 0))
        yield Entry(kind, architecture, kept[:entry_header], kept[entry_header:])
        reader.skip(entry_header + payload)
        left -= entry_header + payload
