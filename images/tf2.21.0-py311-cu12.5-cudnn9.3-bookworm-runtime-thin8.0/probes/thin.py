"""Plan to take out of a shared object the machine code for GPUs that are not there; all else stays as it is.

A fat binary (`suite.fatbin`) holds the same kernels for several architectures; a driver takes the entry that fits its
GPU. Entries that none of the wanted GPUs would take go; PTX stays, for GPUs to come. What nvcc made stands wall to wall
in sections of its own, and one list of pointers alone knows where (``.nvFatBinSegment``, entries as CUDA's header
``fatbinary_section.h`` has them): these are moved together, the pointers follow, and whole pages that become free leave
the file. No address of anything else changes: what was one segment is loaded as two, with a gap. Fat binaries among the
program's data (generated kernels) are smaller than a page: they stay where they are, shorter, with zeros behind.
"""

from __future__ import annotations

import mmap
import re
import struct
import sys
from itertools import accumulate
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from .kept_code import FatBinary, StrangeError, aligned, among_data, number, wall_to_wall
from .shorten import HEADER, NOBITS, SEGMENT, Edit, Loaded, Pieces, Row, Span, end_of, header_of, loaded, name_of

_MOVED = (b".nv_fatbin", b"__nv_relfatbin")
_LIST = b".nvFatBinSegment"
_DATA = re.compile(rb"\.l?(?:rodata|data)(?:\.|\Z)")
_LISTED = struct.Struct("<IIQQ")
_LISTED_MAGIC, _POINTER = 0x466243B1, 8
_RELOCATION = struct.Struct("<QIIq")
_ADDEND = 16
_SYMBOL = struct.Struct("<IBBHQQ")
_RELATIVE, _X86_64 = 8, 62
_LOAD, _TABLE = 1, 6
_RELA, _DYNSYM = 4, 11
_PAGE = 4096


class _Packed(NamedTuple):
    """A section whose fat binaries are moved together: its place among the sections, they, and its bytes afterwards."""

    place: int
    row: Row
    binaries: List[FatBinary]
    starts: List[int]
    size: int

    @property
    def stop(self) -> int:
        """Where it ended in the file."""
        return self.row[4] + self.row[5]

    def addresses(self) -> Dict[int, int]:
        """Map the address of each fat binary to the one that it has afterwards."""
        base = self.row[3] - self.row[4]
        return {base + one.start: base + start for one, start in zip(self.binaries, self.starts)}


def thinned(image: mmap.mmap, gpus: Iterable[str]) -> Optional[Edit]:
    """Plan what is left of an object for GPUs of these capabilities (``"8.6"``); symbol tables are cut off as well.

    None where it is no object that a loader takes, or holds no machine code for others. Raises StrangeError where it
    does, and its layout is not the one that is known.
    """
    tables = loaded(image)
    if tables is None or struct.unpack_from("<H", image, 18)[0] != _X86_64:
        return None
    try:
        plan = _planned(image, tables, [number(one) for one in gpus])
        return plan.edit() if plan is not None else None
    except (struct.error, OverflowError, ValueError) as error:
        raise StrangeError("its tables are damaged: {0}".format(error))


def _planned(image: mmap.mmap, tables: Loaded, gpus: Sequence[int]) -> Optional[_Plan]:
    named = [(name_of(image, tables, row), row) for row in tables.sections]
    packed = [_packed(image, place, row, gpus) for place, (name, row) in enumerate(named) if name in _MOVED]
    spots = [
        one
        for name, row in named
        if _DATA.match(name) and row[1] != NOBITS
        for one in among_data(image, row[4], row[4] + row[5], gpus)
    ]
    if not spots and all(one.size == one.row[5] for one in packed):
        return None
    return _Plan(image, tables, packed, spots, [row for name, row in named if name == _LIST])


def _packed(image: mmap.mmap, place: int, row: Row, gpus: Sequence[int]) -> _Packed:
    found = list(wall_to_wall(image, row[4], row[4] + row[5], gpus))
    if not any(one.left < one.end - one.start for one in found):
        return _Packed(place, row, found, [one.start for one in found], row[5])
    starts = list(accumulate([row[4], *(aligned(one.left) for one in found)]))
    return _Packed(place, row, found, starts[:-1], starts[-2] + found[-1].left - row[4])


class _Plan:
    """The file afterwards. All places are of the file as it is, until ``_after`` says where they come to stand."""

    def __init__(
        self, image: mmap.mmap, tables: Loaded, packed: List[_Packed], spots: List[FatBinary], lists: List[Row]
    ) -> None:
        self._image, self._tables, self._packed, self._spots, self._lists = image, tables, packed, spots, lists
        self._page = max([_PAGE, *(row[7] for row in tables.segments if row[0] == _LOAD)])
        self._table = 0
        self._holes = self._found_holes()

    def edit(self) -> Edit:
        """Put the parts together, and the new tables around them."""
        image, tables, old = self._image, self._tables, self._tables.segments_at
        replaced: Dict[int, Tuple[int, Pieces]] = {}
        for one in self._spots:
            replaced[one.start] = (one.end, [*one.content(image), bytes(one.end - one.start - one.left)])
        for at, addend in self._pointers():
            replaced[at] = (at + 8, [struct.pack("<q", addend)])
        segments = list(self._segments())
        table = b"".join(SEGMENT.pack(*row) for row in segments)
        for section in self._packed:
            replaced[section.row[4]] = (section.stop, list(self._content(section, table)))
        keep = self._after(tables.keep)
        end = end_of(image, tables, list(self._sections()), keep)
        header = header_of(image, tables, keep + len(end))
        if self._holes:
            struct.pack_into("<Q", header, 32, self._after(self._table))
            struct.pack_into("<H", header, 56, len(segments))
            replaced[old] = (old + SEGMENT.size * len(tables.segments), [bytes(SEGMENT.size * len(tables.segments))])
        replaced[0] = (HEADER, [bytes(header)])
        return Edit([*self._whole(replaced), end])

    def _whole(self, replaced: Dict[int, Tuple[int, Pieces]]) -> Iterator[Union[bytes, Span]]:
        at = 0
        for start, (end, pieces) in sorted(replaced.items()):
            if start < at:
                raise StrangeError("parts of the file overlap at {0:#x}".format(start))
            yield (at, start)
            yield from pieces
            at = end
        yield (at, self._tables.keep)

    def _found_holes(self) -> List[Span]:
        """Find the whole pages that become free, where there is room for the new table of segments before them."""
        if not self._packed:
            return []
        home = max(self._packed, key=lambda one: one.row[5] - one.size)
        self._table = aligned(home.row[4] + home.size)
        room = SEGMENT.size * (len(self._tables.segments) + len(self._packed))
        first = self._hole(home, self._table + room)
        if first is None:
            return []
        rest = (self._hole(one, one.row[4] + one.size) for one in self._packed if one is not home)
        return sorted([first, *(one for one in rest if one is not None)])

    def _hole(self, section: _Packed, free: int) -> Optional[Span]:
        stop = section.stop - (section.row[3] + section.row[5]) % self._page
        size = (stop - free) // self._page * self._page
        return (stop - size, stop) if size > 0 else None

    def _after(self, place: int) -> int:
        return place - sum(end - start for start, end in self._holes if end <= place)

    def _content(self, section: _Packed, table: bytes) -> Iterator[Union[bytes, Span]]:
        """Yield what a section's place holds afterwards: fat binaries, perhaps the table of segments, zeros, a hole."""
        at = section.row[4]
        for one, start in zip(section.binaries, section.starts):
            yield bytes(start - at)
            yield from one.content(self._image)
            at = start + one.left
        if self._holes and section.row[4] <= self._table < section.stop:
            yield bytes(self._table - at) + table
            at = self._table + len(table)
        hole = next((one for one in self._holes if section.row[4] <= one[0] < section.stop), (at, at))
        yield bytes(section.stop - at - (hole[1] - hole[0]))

    def _segments(self) -> Iterator[Row]:
        for row in self._tables.segments:
            kind, start, end = row[0], row[2], row[2] + row[5]
            inside = [one for one in self._holes if start <= one[0] and one[1] <= end]
            if kind == _TABLE and self._holes:
                size = SEGMENT.size * (len(self._tables.segments) + len(self._holes))
                yield (kind, row[1], self._after(self._table), *[self._address(self._table)] * 2, size, size, row[7])
            elif kind == _LOAD:
                yield from self._split(row, inside)
            elif any(start < one.stop and one.row[4] < end for one in self._packed):
                raise StrangeError("a segment of kind {0:#x} holds device code".format(kind))
            else:
                yield (kind, row[1], self._after(start), *row[3:])

    def _split(self, row: Row, holes: List[Span]) -> Iterator[Row]:
        """Yield the segments that load what is left of one."""
        kind, flags, start, virtual, physical, size, memory, align = row
        for section in self._packed:
            if start < section.stop and section.row[4] < start + size and not self._covers(row, section):
                raise StrangeError("a segment holds a part of a section of device code")
        at = start
        for hole in holes:
            yield (
                kind,
                flags,
                self._after(at),
                virtual + at - start,
                physical + at - start,
                *[hole[0] - at] * 2,
                align,
            )
            at = hole[1]
        gone = at - start
        yield (kind, flags, self._after(at), virtual + gone, physical + gone, size - gone, memory - gone, align)

    def _covers(self, row: Row, section: _Packed) -> bool:
        own = section.row
        inside = row[2] <= own[4] and section.stop <= row[2] + row[5]
        return inside and own[3] - own[4] == row[3] - row[2]

    def _address(self, place: int) -> int:
        section = next(one for one in self._packed if one.row[4] <= place < one.stop)
        return section.row[3] + place - section.row[4]

    def _sections(self) -> Iterator[Row]:
        sizes = {one.place: one.size for one in self._packed}
        for place, row in enumerate(self._tables.sections):
            yield (*row[:4], self._after(row[4]), sizes.get(place, row[5]), *row[6:])

    def _pointers(self) -> Iterator[Tuple[int, int]]:
        """Yield each pointer to a fat binary that changes: where it, or its addend, is in the file; and the new one.

        The list's entries have to be all that points there, and each has to point to a beginning.
        """
        moved = {old: new for one in self._packed for old, new in one.addresses().items()}
        spans = [(one.row[3], one.row[3] + one.row[5]) for one in self._packed]
        self._see_no_symbols(spans)
        listed = dict(self._list())
        low, high = min(spans, default=(0, 0))[0], max(spans, default=(0, 0))[1]
        met = set()
        for row in self._tables.sections:
            for at in range(row[4], row[4] + row[5], _RELOCATION.size) if row[1] == _RELA else ():
                where, kind, _, addend = _RELOCATION.unpack_from(self._image, at)
                if not low <= addend < high or not any(start <= addend < end for start, end in spans):
                    continue
                if kind != _RELATIVE or where not in listed or addend not in moved:
                    raise StrangeError("a pointer at {0:#x} into device code is not one of the list's".format(where))
                stored = struct.unpack_from("<q", self._image, listed[where])[0]
                if stored not in (0, addend):
                    raise StrangeError("a pointer of the list is stored as {0:#x}".format(stored))
                met.add(addend)
                if moved[addend] != addend:
                    yield at + _ADDEND, moved[addend]
                    yield from [(listed[where], moved[addend])] if stored else []
        if met != moved.keys():
            raise StrangeError("{0} fat binaries are not in the list".format(len(moved.keys() - met)))

    def _list(self) -> Iterator[Span]:
        """Yield the addresses of the list's pointers and where they are stored: a loader fills them in.

        Some linkers store zeros there, and some what is filled in.
        """
        for row in self._lists:
            for at in range(0, row[5], _LISTED.size):
                if _LISTED.unpack_from(self._image, row[4] + at)[0] != _LISTED_MAGIC:
                    raise StrangeError("the list of fat binaries is not as CUDA's header describes it")
                yield row[3] + at + _POINTER, row[4] + at + _POINTER

    def _see_no_symbols(self, spans: List[Span]) -> None:
        for row in self._tables.sections:
            for at in range(row[4], row[4] + row[5], _SYMBOL.size) if row[1] == _DYNSYM else ():
                _, _, _, section, value, _ = _SYMBOL.unpack_from(self._image, at)
                if section and any(start <= value < end for start, end in spans):
                    raise StrangeError("a symbol that others see lies in device code")


def main(arguments: List[str]) -> int:
    """Print the digest, as a list of omissions has it, and the bytes of what is left of a file for some GPUs."""
    path, *gpus = arguments
    with open(path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as image:
        try:
            edit = thinned(image, gpus)
        except StrangeError as error:
            print("{0}: {1}".format(path, error), file=sys.stderr)
            return 1
        print("whole" if edit is None else "{0} {1}".format(edit.digest(image), edit.size))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
