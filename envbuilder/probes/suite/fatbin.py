"""Find which GPU architectures a shared object holds code for, by the headers of its CUDA fat binaries.

A fat binary (section ``.nv_fatbin``) is a header of 16 bytes (magic, version, header size, length) and entries that
each say their kind (PTX or machine code), their own header's size, their payload's size and the compute capability.
Payloads may be compressed; headers never are. The layout is as ``fatbinary`` writes it; the tests hold files it made.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MAGIC = b"\x50\xed\x55\xba"
"""The four bytes that a fat binary begins with (0xBA55ED50, little endian)."""

_CONTAINER = struct.Struct("<4sHHQ")
_ENTRY = struct.Struct("<HHIQIIHHI")
_PTX, _CUBIN = 1, 2
_LARGEST_ENTRY_HEADER = 4096


@dataclass(frozen=True)
class Architectures:
    """Compute capabilities found (``"8.6"``), oldest first: machine code, PTX, and how many fat binaries there were."""

    cubins: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()
    fat_binaries: int = 0


def architectures(pieces: Iterable[bytes]) -> Architectures:
    """Read a file that comes in pieces of any size, in order; memory stays at two pieces.

    A file without a fat binary gives empty tuples, which says that it holds no GPU code of this form.
    """
    found: set[tuple[int, int]] = set()
    count = 0
    for entries in _fat_binaries(_Reader(pieces)):
        found.update(entries)
        count += 1
    return Architectures(
        cubins=_capabilities(arch for kind, arch in found if kind == _CUBIN),
        ptx=_capabilities(arch for kind, arch in found if kind == _PTX),
        fat_binaries=count,
    )


def _capabilities(numbers: Iterable[int]) -> tuple[str, ...]:
    return tuple(f"{number // 10}.{number % 10}" for number in sorted(set(numbers)))


class _Reader:
    """Bytes that arrive in pieces: look ahead a little, skip, find."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._buffer = b""
        self._at = 0

    def look(self, length: int) -> bytes:
        """Return the next bytes without taking them; fewer at the end."""
        while len(self._buffer) - self._at < length:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._buffer = self._buffer[self._at :] + piece
            self._at = 0
        return self._buffer[self._at : self._at + length]

    def skip(self, length: int) -> None:
        """Take bytes without looking at them."""
        while length > len(self._buffer) - self._at:
            length -= len(self._buffer) - self._at
            self._buffer, self._at = next(self._pieces, b""), 0
            if not self._buffer:
                return
        self._at += length

    def find(self, wanted: bytes) -> bool:
        """Skip up to the next place where ``wanted`` stands; False at the end."""
        while True:
            place = self._buffer.find(wanted, self._at)
            if place >= 0:
                self._at = place
                return True
            self._at = max(self._at, len(self._buffer) - len(wanted) + 1)
            more = len(self._buffer) - self._at + 1
            if len(self.look(more)) < more:
                return False


def _fat_binaries(reader: _Reader) -> Iterator[list[tuple[int, int]]]:
    """Yield each fat binary's entries as (kind, architecture number such as 86)."""
    while reader.find(MAGIC):
        head = reader.look(_CONTAINER.size + _ENTRY.size)
        if _is_fat_binary(head):
            yield list(_entries(reader))
        else:
            reader.skip(len(MAGIC))


def _is_fat_binary(head: bytes) -> bool:
    """Tell a fat binary from the same four bytes elsewhere, by what must follow."""
    if len(head) < _CONTAINER.size + _ENTRY.size:
        return False
    _, version, header, length = _CONTAINER.unpack_from(head)
    kind, _, entry_header, payload, *_ = _ENTRY.unpack_from(head, _CONTAINER.size)
    fits = _ENTRY.size <= entry_header <= _LARGEST_ENTRY_HEADER and entry_header + payload <= length
    return version == 1 and header == _CONTAINER.size and kind in (_PTX, _CUBIN) and fits


def _entries(reader: _Reader) -> Iterator[tuple[int, int]]:
    _, _, header, left = _CONTAINER.unpack(reader.look(_CONTAINER.size))
    reader.skip(header)
    while left >= _ENTRY.size:
        head = reader.look(_ENTRY.size)
        if len(head) < _ENTRY.size:
            return
        kind, _, entry_header, payload, _, _, _, _, architecture = _ENTRY.unpack(head)
        if not _ENTRY.size <= entry_header <= _LARGEST_ENTRY_HEADER:
            return
        yield kind, architecture
        reader.skip(entry_header + payload)
        left -= entry_header + payload
