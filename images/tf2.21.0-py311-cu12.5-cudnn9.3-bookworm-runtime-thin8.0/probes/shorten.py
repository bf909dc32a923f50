"""A shorter form of a shared object, planned from its tables and written over it: what is loaded stays as it was.

Only the file's own headers, and the table of sections at its end, are written anew
(https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.intro.html). Standard library only: it runs in a build.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from base64 import urlsafe_b64encode
from typing import Any, Iterable, Iterator, List, NamedTuple, Optional, Tuple, Union

PIECE = 4 << 20
ALLOC, NOBITS = 2, 8
SECTION = struct.Struct("<IIQQQQIIQQ")
SEGMENT = struct.Struct("<IIQQQQQQ")
HEADER = 64
WORTH = 64 << 10
"""Bytes from which on cutting symbol tables off is worth a file that is not as its wheel has it."""

_INFO_LINK = 0x40
_LONGEST_NAME = 4096

Row = Tuple[int, ...]
Span = Tuple[int, int]
Pieces = List[Union[bytes, Span]]
"""Bytes written anew, and spans of a file that are taken over (start and end), in the order in which they follow."""


class Edit:
    """What a file becomes, as pieces of it; every span moves towards the file's beginning, or stays where it is."""

    def __init__(self, pieces: Iterable[Union[bytes, Span]]) -> None:
        self.pieces: Pieces = [piece for piece in pieces if piece and (isinstance(piece, bytes) or piece[0] < piece[1])]

    @property
    def size(self) -> int:
        """The file's bytes afterwards."""
        return sum(len(one) if isinstance(one, bytes) else one[1] - one[0] for one in self.pieces)

    def over(self, image: mmap.mmap) -> Iterator[bytes]:
        """Yield the content afterwards, some bytes at a time."""
        for one in self.pieces:
            if isinstance(one, bytes):
                yield one
            else:
                for at in range(one[0], one[1], PIECE):
                    yield image[at : min(at + PIECE, one[1])]

    def digest(self, image: mmap.mmap) -> str:
        """Return the digest of the content afterwards, as RECORD writes it."""
        hashed = hashlib.sha256()
        for part in self.over(image):
            hashed.update(part)
        return written(hashed.digest())

    def write_over(self, path: str) -> None:
        """Write the content over the file that it was planned for. Raises ValueError where a span would move back."""
        with open(path, "r+b") as stream:
            self._check()
            at = 0
            for one in self.pieces:
                at = _put(stream, one, at)
            stream.truncate(at)

    def _check(self) -> None:
        """See that nothing is written over before it is read."""
        at = 0
        for one in self.pieces:
            if not isinstance(one, bytes) and at > one[0]:
                raise ValueError("a span would move away from the file's beginning")
            at += len(one) if isinstance(one, bytes) else one[1] - one[0]


def _put(stream: Any, one: Union[bytes, Span], at: int) -> int:
    if isinstance(one, bytes):
        stream.seek(at)
        stream.write(one)
        return at + len(one)
    start, end = one
    while start != at and start < end:
        stream.seek(start)
        part = stream.read(min(PIECE, end - start))
        stream.seek(at)
        stream.write(part)
        start, at = start + len(part), at + len(part)
    return at + end - start


class Loaded(NamedTuple):
    """An object's tables: its segments, the sections that are loaded, where their names are, and where all that ends.

    ``segments_at`` is where the table of segments stands, ``keep`` the first byte that no loader reads.
    """

    segments: List[Row]
    segments_at: int
    sections: List[Row]
    names_at: int
    keep: int


def loaded(image: mmap.mmap) -> Optional[Loaded]:
    """Read an object's tables; None where it is no such file, or a section that is loaded refers to one that is not."""
    if len(image) < HEADER or image[:6] != b"\x7fELF\x02\x01":
        return None
    try:
        return _loaded(image)
    except (struct.error, IndexError, OverflowError, ValueError):
        return None


def _loaded(image: mmap.mmap) -> Optional[Loaded]:
    at, table = struct.unpack_from("<QQ", image, 32)
    size, count, _, rows, names_index = struct.unpack_from("<HHHHH", image, 54)
    segments = [SEGMENT.unpack_from(image, at + number * size) for number in range(count)]
    sections = [SECTION.unpack_from(image, table + number * SECTION.size) for number in range(rows)]
    there = [number for number, row in enumerate(sections) if row[2] & ALLOC]
    if not there or not segments:
        return None
    kept = sections[: there[-1] + 1]
    if len(there) != len(kept) - 1 or any(_refers_beyond(row, len(kept)) for row in kept):
        return None
    ends = [row[4] + row[5] for row in kept if row[1] != NOBITS]
    keep = max(HEADER, at + size * count, *(row[2] + row[5] for row in segments), *ends)
    names_at = sections[names_index][4]
    named = all(image.find(b"\0", names_at + row[0], names_at + row[0] + _LONGEST_NAME) >= 0 for row in kept)
    return Loaded(segments, at, kept, names_at, keep) if named and keep <= len(image) else None


def _refers_beyond(row: Row, count: int) -> bool:
    return row[6] >= count or (bool(row[2] & _INFO_LINK) and row[7] >= count)


def name_of(image: mmap.mmap, tables: Loaded, row: Row) -> bytes:
    """Return a section's name."""
    start = tables.names_at + row[0]
    return image[start : image.find(b"\0", start)]


def symbols_cut(image: mmap.mmap) -> Optional[Edit]:
    """Plan to cut off what stands behind everything that is loaded: symbol tables for debuggers, and their texts.

    Every byte that a loader maps stays where it is. None where it is no such file, or where little would go.
    """
    tables = loaded(image)
    if tables is None:
        return None
    end = end_of(image, tables, tables.sections, tables.keep)
    if tables.keep + len(end) + WORTH > len(image):
        return None
    header = header_of(image, tables, tables.keep + len(end))
    return Edit([bytes(header), (HEADER, tables.keep), end])


def header_of(image: mmap.mmap, tables: Loaded, size: int) -> bytearray:
    """Write the file's header for a file of ``size`` bytes at whose end the table of the sections that stay stands."""
    count = len(tables.sections) + 1
    header = bytearray(image[:HEADER])
    struct.pack_into("<Q", header, 40, size - count * SECTION.size)
    struct.pack_into("<HH", header, 60, count, count - 1)
    return header


def end_of(image: mmap.mmap, tables: Loaded, sections: List[Row], keep: int) -> bytes:
    """Write the names and the table of the sections that stay, aligned as an ELF file wants them.

    ``sections`` are the rows as they are to be, ``keep`` is where in the new file this end begins.
    """
    names, rows = bytearray(b"\0"), [bytes(SECTION.size)]
    for row in sections[1:]:
        rows.append(SECTION.pack(len(names), *row[1:]))
        names += name_of(image, tables, row) + b"\0"
    place = len(names)
    names += b".shstrtab\0"
    before = -keep % 8
    rows.append(SECTION.pack(place, 3, 0, 0, keep + before, len(names), 0, 0, 1, 0))
    behind = -(keep + before + len(names)) % 8
    return bytes(before) + bytes(names) + bytes(behind) + b"".join(rows)


def written(digest: bytes) -> str:
    """Write a SHA-256 as RECORD does."""
    return "sha256=" + urlsafe_b64encode(digest).decode().rstrip("=")
