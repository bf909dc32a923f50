"""Read the sections of a shared object that goes by in pieces: their names, and where each stands in the file.

An ELF file says at its beginning where the section table is; the table, and the names that it points to, stand behind
the contents (https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.sheader.html). So they are kept as they go by. Where
the names are is known only from the table: what stands around the last ``.shstrtab`` in the file is kept until then.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

from envbuilder.probes.shorten import NOBITS, SECTION
from envbuilder.support import decoding

_ELF = b"\x7fELF\x02\x01"
_OWN_NAME = b".shstrtab\0"
_NAMES = 64 * 1024
"""How much is kept to either side of a place that may be the names' table; in TensorFlow it has 0.5 kB."""

_LAST_PLACES = 8
"""How many are kept. There are thousands, as machine code for GPUs is in ELF too; the file's own comes after all."""

_MOST_SECTIONS = 4096
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")


class Section(msgspec.Struct, frozen=True):
    """A section: its name, where it begins in the file and how long it is, in bytes."""

    name: str
    offset: int
    size: int


class SectionWatch:
    """Passes a file's pieces on unchanged; `sections` answers when all have gone by."""

    def __init__(self) -> None:
        self._head = b""
        self._table = _Span(0, 0)
        self._places: deque[_Span] = deque(maxlen=_LAST_PLACES)
        self._tail = b""
        self._offset = 0

    def over(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the pieces."""
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
        """Return the sections that stand in the file, in its order; none where it is no ELF file or is damaged."""
        if not self._table.content:
            return ()
        with decoding.damaged("no table of sections"):
            rows = list(SECTION.iter_unpack(self._table.content[: len(self._table.content) // 64 * 64]))
            index = _HEADER.unpack(self._head)[-1]
        if index >= len(rows):
            return ()
        offset, size = rows[index][4], rows[index][5]
        names = next((text for place in self._places if (text := place.part(offset, size)) is not None), None)
        if names is None:
            return ()
        found = (Section(_name(names, row[0]), row[4], row[5]) for row in rows if row[1] != NOBITS and row[5])
        return tuple(sorted(found, key=lambda section: (section.offset, -section.size)))


class _Span:
    """A part of the file from ``start`` up to ``stop``, filled as the file goes by."""

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop
        self.content = b""

    def take(self, offset: int, piece: bytes) -> None:
        """Take what belongs here of a piece that stands at ``offset``; pieces come in order."""
        wanted = self.start + len(self.content)
        if offset <= wanted < min(self.stop, offset + len(piece)):
            self.content += piece[wanted - offset : self.stop - offset]

    def part(self, offset: int, size: int) -> bytes | None:
        """Return a part, None where it does not all lie in here."""
        at = offset - self.start
        return self.content[at : at + size] if at >= 0 and at + size <= len(self.content) else None


def _table_span(head: bytes) -> _Span:
    with decoding.damaged("no ELF header"):  # it is whole: the caller waits for all of its bytes
        header = _HEADER.unpack(head)
    offset, size, count = header[6], header[11], header[12]
    if size != SECTION.size or count > _MOST_SECTIONS:
        return _Span(0, 0)
    return _Span(offset, offset + size * count)


def _name(names: bytes, at: int) -> str:
    return names[at : at + 256].partition(b"\0")[0].decode("utf-8", "replace")
