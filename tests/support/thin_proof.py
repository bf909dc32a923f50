"""Prove that a thinned object is the one before it, less machine code that was to go; nothing of `thin` is used.

Both files are looked at as a loader maps them: address by address, what is not device code has to be the same.
"""

from __future__ import annotations

import mmap
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

DEVICE = (".nv_fatbin", "__nv_relfatbin")
LIST = ".nvFatBinSegment"
MAGIC = b"\x50\xed\x55\xba"
PTX, CUBIN = 1, 2


class Section(NamedTuple):
    """A section: name, kind, address, place in the file, bytes."""

    name: str
    kind: int
    address: int
    offset: int
    size: int


class Mapped:
    """One file, as its own headers say that it is mapped."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as stream:
            self.image = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        at, table = struct.unpack_from("<QQ", self.image, 32)
        size, count, row, rows, names = struct.unpack_from("<HHHHH", self.image, 54)
        self.table = (at, at + size * count)
        self.segments = [struct.unpack_from("<IIQQQQQQ", self.image, at + number * size) for number in range(count)]
        self.loads = sorted(
            (virtual, virtual + held, offset) for kind, _, offset, virtual, _, held, _, _ in self.segments if kind == 1
        )
        raw = [struct.unpack_from("<IIQQQQIIQQ", self.image, table + number * row) for number in range(rows)]
        base = raw[names][4]
        self.sections = [
            Section(self._name(base + one[0]), one[1], one[3], one[4], one[5]) for one in raw if one[2] & 2
        ]
        assert all(end - start + offset <= len(self.image) for start, end, offset in self.loads), "truncated"
        assert table + row * rows <= len(self.image), "truncated"

    def _name(self, at: int) -> str:
        return self.image[at : self.image.find(b"\0", at)].decode()

    def at(self, address: int, size: int) -> bytes:
        """Return what stands at an address in memory once it is loaded, before relocation."""
        place = bisect_right(self.loads, (address, 1 << 63, 0)) - 1
        start, end, offset = self.loads[place]
        assert start <= address <= address + size <= end, f"{address:#x} is not loaded"
        return self.image[offset + address - start : offset + address - start + size]

    def table_address(self) -> tuple[int, int]:
        """Return from which address to which its table of segments is loaded."""
        found = [start - offset for start, end, offset in self.loads if offset <= self.table[0] < offset + end - start]
        return self.table[0] + found[0], self.table[1] + found[0]

    def parts(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield what is loaded of a span of addresses."""
        for low, high, _ in self.loads:
            if max(low, start) < min(high, end):
                yield max(low, start), min(high, end)

    def named(self, *names: str) -> list[Section]:
        """Return the sections of these names."""
        return [one for one in self.sections if one.name in names]

    def pointers(self) -> dict[int, int]:
        """Map where the list's pointers are written (their addends; the list, by some linkers) to what they mean."""
        spans = [(one.address, one.address + one.size) for one in self.named(LIST)]
        found = {}
        for section in (one for one in self.sections if one.kind == 4):
            for at in range(section.offset, section.offset + section.size, 24):
                where, info, addend = struct.unpack_from("<QQq", self.image, at)
                if info == 8 and any(start <= where < end and (where - start) % 24 == 8 for start, end in spans):
                    found[section.address + at - section.offset + 16] = addend
                    (stored,) = struct.unpack("<q", self.at(where, 8))
                    assert stored in {0, addend}, "the list and its relocations differ"
                    found.update({where: addend} if stored else {})
        return found

    def binary(self, address: int) -> list[tuple[int, int, bytes]]:
        """Return the entries of the fat binary at an address: kind, architecture, all of its bytes."""
        magic, version, header, length = struct.unpack("<4sHHQ", self.at(address, 16))
        assert (magic, version, header) == (MAGIC, 1, 16), f"no fat binary at {address:#x}"
        at, stop, found = address + 16, address + 16 + length, []
        while at < stop:
            kind, _, own, payload, _, _, _, _, architecture = struct.unpack("<HHIQIIHHI", self.at(at, 32))
            found.append((kind, architecture, self.at(at, own + payload)))
            at += own + payload
        assert at == stop, f"the fat binary at {address:#x} does not end where it says"
        return found

    def generated(self) -> dict[int, int]:
        """Map the address of each fat binary among the data to its bytes."""
        found = {}
        for section in self.sections:
            if section.kind == 8 or not section.name.startswith((".rodata", ".data", ".lrodata", ".ldata")):
                continue
            at, end = (
                self.image.find(MAGIC, section.offset, section.offset + section.size),
                section.offset + section.size,
            )
            while at >= 0:
                version, header, length = struct.unpack_from("<HHQ", self.image, at + 4)
                if (version, header) == (1, 16) and 0 < length <= end - at - 16:
                    found[section.address + at - section.offset] = 16 + length
                    at += 16 + length - 4
                at = self.image.find(MAGIC, at + 4, end)
        return found


def taken(entries: Iterable[tuple[int, int, bytes]], gpus: Iterable[str]) -> list[tuple[int, int, bytes]]:
    """Return the entries that a driver of one of these GPUs, or of one to come, may take."""
    entries = list(entries)
    wanted = set()
    for major, minor in (map(int, one.split(".")) for one in gpus):
        numbers = [10 * major + older for older in range(minor + 1)]
        wanted |= set([number for number in numbers if any(one[:2] == (CUBIN, number) for one in entries)][-1:])
    return [one for one in entries if one[0] == PTX or one[1] in wanted] or entries[:1]


class Proof(NamedTuple):
    """What was seen: fat binaries of each kind, bytes of entries that stayed and that went, bytes compared besides."""

    listed: int
    generated: int
    kept: int
    gone: int
    compared: int
    architectures: frozenset[int]


def prove(before: Path, after: Path, gpus: Iterable[str]) -> Proof:
    """Compare the two files. Raises AssertionError for the first thing that is not as it should be."""
    old, new, gpus = Mapped(before), Mapped(after), list(gpus)
    pointers, moved, generated = old.pointers(), new.pointers(), old.generated()
    assert pointers.keys() == moved.keys(), "the list points from other places"
    free = [(0, 64), old.table_address(), *((place, place + 8) for place in pointers)]
    free += [(one.address, one.address + one.size) for one in old.named(*DEVICE)]
    kept, gone, architectures = 0, 0, set()
    for address, there in sorted(
        {*((pointers[place], moved[place]) for place in pointers), *zip(generated, generated, strict=True)}
    ):
        entries, left = old.binary(address), new.binary(there)
        assert left == taken(entries, gpus), f"the fat binary at {address:#x} does not hold what it should"
        stays, went = _bytes(left), _bytes(entries) - _bytes(left)
        kept, gone = kept + stays, gone + went
        architectures |= {number for kind, number, _ in left if kind == CUBIN}
        if address in generated:
            assert not new.at(address + 16 + stays, went).strip(b"\0"), f"something is left behind {address:#x}"
            free.append((address, address + 16 + stays + went))
    _see_sections(old, new, sorted(set(moved.values())))
    _see_segments(old, new)
    if old.table != new.table:
        assert not new.at(old.table_address()[0], old.table[1] - old.table[0]).strip(b"\0"), "the old table is left"
    compared = _compare(old, new, sorted(free))
    return Proof(len(set(pointers.values())), len(generated), kept, gone, compared, frozenset(architectures))


def _bytes(entries: Iterable[tuple[int, int, bytes]]) -> int:
    return sum(len(one[2]) for one in entries)


def _see_sections(old: Mapped, new: Mapped, starts: list[int]) -> None:
    """See that sections are where they were, and that nothing but fat binaries is where those are."""
    assert [one[:3] for one in old.sections] == [one[:3] for one in new.sections], "a section moved"
    for was, now in zip(old.sections, new.sections, strict=True):
        if was.name not in DEVICE:
            assert was.size == now.size, f"{was.name} has another size"
            continue
        at = now.address
        for start in (one for one in starts if now.address <= one < now.address + now.size):
            assert not new.at(at, start - at).strip(b"\0"), f"bytes before {start:#x} are no fat binary's"
            assert start - at < 8, f"fat binaries are apart before {start:#x}"
            at = start + 16 + _bytes(new.binary(start))
        assert at == now.address + now.size, f"{was.name} ends elsewhere"
        own = [new.table_address()]
        for start, end in new.parts(at, was.address + was.size):
            for low, high in _without(start, end, own):
                assert not new.at(low, high - low).strip(b"\0"), f"something is left at {low:#x}"


def _see_segments(old: Mapped, new: Mapped) -> None:
    """See that what is not loaded by itself describes the same addresses, and stands where these are in the file."""
    described = [[(*one[:2], *one[3:]) for one in file.segments if one[0] not in {1, 6}] for file in (old, new)]
    assert described[0] == described[1], "a segment is another"
    whole = [one for one in old.segments if one[0] == 1]
    for kind, flags, offset, virtual, physical, size, memory, align in new.segments:
        if kind == 1:
            was = next(one for one in whole if one[3] <= virtual < one[3] + one[6])
            assert (flags, align, physical - virtual) == (was[1], was[7], was[4] - was[3]), "it is loaded otherwise"
            assert memory == size or virtual + memory == was[3] + was[6], "it ends elsewhere in memory"
            assert (virtual - offset) % align == 0, "a segment that is loaded is not aligned"
        elif size:
            assert new.at(virtual, size) == new.image[offset : offset + size], "a segment stands elsewhere"
    assert all(one[1] <= other[0] for one, other in pairwise(new.loads)), "two segments are loaded to one address"


def _compare(old: Mapped, new: Mapped, free: list[tuple[int, int]]) -> int:
    compared = 0
    for start, end, _ in old.loads:
        for low, high in _without(start, end, free):
            for at in range(low, high, 1 << 24):
                size = min(1 << 24, high - at)
                assert old.at(at, size) == new.at(at, size), f"bytes from {at:#x} on differ"
                compared += size
    return compared


def _without(start: int, end: int, free: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for low, high in free:
        if high > start and low < end:
            if low > start:
                yield start, low
            start = max(start, high)
    if start < end:
        yield start, end
