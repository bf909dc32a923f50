"""Names and offsets of the sections of a shared object, read from a stream of pieces.

The header of an ELF file has the offset of the section table; the table and the names are behind the contents
(https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.sheader.html). The table is kept when it passes. The offset of the
names is in the table, so the bytes around the last ``.shstrtab`` are kept until then.
"""

import struct
from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

from envbuilder.support import decoding

_ELF = b"\x7fELF\x02\x01"
_OWN_NAME = b".shstrtab\0"
_NAMES = 64 * 1024
"""Bytes kept on each side of a possible table of names; in TensorFlow it has 0.5 kB."""

_LAST_PLACES = 8
"""The number of such places. There are thousands, because machine code for GPUs is ELF too; the file's own is last."""

_MOST_SECTIONS = 4096
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION, _NOBITS = struct.Struct("<IIQQQQIIQQ"), 8


class Section(msgspec.Struct, frozen=True):
    """A section: its name, its offset in the file and its size in bytes."""

    name: str
    offset: int
    size: int


class SectionWatch:
    """Passes a file's pieces on unchanged; then `sections` has the result."""

    def __init__(self) -> None:
        self._head = b""
        self._table = _Span(0, 0)
        self._places: deque[_Span] = deque(maxlen=_LAST_PLACES)
        self._tail = b""
        self._offset = 0

    def over(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._note(piece)
            yield piece

    def _note(self, piece: bytes) -> None:
        if len(self._head) < _HEADER.size:
            self._head += piece[: _HEADER.size - len(self._head)]
            if len(self._head) == _HEADER.size and self._head.startswith(_ELF):
                self._table = _table_span(self._head)
        window = self._tail + piece
        start = self._offset - len(self._tail)
        for span in (self._table, *self._places):
            span.take(self._offset, piece)
        at = window.find(_OWN_NAME, max(0, len(self._tail) - len(_OWN_NAME) + 1))
        while at >= 0:
            place = _Span(max(start, start + at - _NAMES), start + at + _NAMES)
            place.take(start, window)
            self._places.append(place)
            at = window.find(_OWN_NAME, at + _NAMES // 2)
        self._tail = window[-_NAMES:]
        self._offset += len(piece)

    def sections(self) -> tuple[Section, ...]:
        """Return the sections in the order of the file; none for a damaged file or another format."""
        if not self._table.content:
            return ()
        with decoding.damaged("no table of sections"):
            rows = list(_SECTION.iter_unpack(self._table.content[: len(self._table.content) // 64 * 64]))
            index = _HEADER.unpack(self._head)[-1]
        if index >= len(rows):
            return ()
        offset, size = rows[index][4], rows[index][5]
        names = next((text for place in self._places if (text := place.part(offset, size)) is not None), None)
        if names is None:
            return ()
        found = (Section(_name(names, row[0]), row[4], row[5]) for row in rows if row[1] != _NOBITS and row[5])
        return tuple(sorted(found, key=lambda section: (section.offset, -section.size)))


class _Span:
    """A part of the file from ``start`` to ``stop``, filled piece by piece."""

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop
        self.content = b""

    def take(self, offset: int, piece: bytes) -> None:
        """Take the overlap with a piece at ``offset``; pieces come in order."""
        wanted = self.start + len(self.content)
        if offset <= wanted < min(self.stop, offset + len(piece)):
            self.content += piece[wanted - offset : self.stop - offset]

    def part(self, offset: int, size: int) -> bytes | None:
        """Return a part; None if it is not completely inside."""
        at = offset - self.start
        return self.content[at : at + size] if at >= 0 and at + size <= len(self.content) else None


def _table_span(head: bytes) -> _Span:
    with decoding.damaged("not an ELF header"):  # complete: the caller waits for all of its bytes
        header = _HEADER.unpack(head)
    offset, size, count = header[6], header[11], header[12]
    if size != _SECTION.size or count > _MOST_SECTIONS:
        return _Span(0, 0)
    return _Span(offset, offset + size * count)


def _name(names: bytes, at: int) -> str:
    return names[at : at + 256].partition(b"\0")[0].decode("utf-8", "replace")
