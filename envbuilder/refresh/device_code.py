"""Tell apart the GPU code of a shared object: kernels compiled by nvcc, and kernels that MLIR generated.

**The criterion** is the section in which a fat binary stands. nvcc puts what the CUDA runtime is to load into
``.nv_fatbin``, and what is still to be linked into ``__nv_relfatbin``. The kernel generator embeds its fat binaries as
constants of the program, among its data (``.rodata``), and the program hands them to the driver itself. That follows
from how each is loaded, and the runtime's own list bears it out: ``.nvFatBinSegment``, 24 bytes an entry, has as many
entries as nvcc's two sections have fat binaries, in every release but 2.3 (relocatable ones are listed, and gone).
PTX versions and capabilities would not do: in 2.4 both kinds hold machine code for the same ones.

A union over fat binaries hides what a GPU lacks: a program needs *each* fat binary. So they are counted by what they
hold, and `coverage` says what is in every one of them (`kernels` in the catalogue's words).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TypeVar

import msgspec

from envbuilder.catalog.rows import KernelOrigin, Kernels, Ptx
from envbuilder.probes.suite.fatbin import CUBIN, PTX, FatBinary, capabilities, fat_binaries
from envbuilder.refresh import ptx_text
from envbuilder.refresh.section_table import Section, SectionWatch

T = TypeVar("T")

_MOST_KINDS = 1024
_MOST = 1 << 18


class Origin(StrEnum):
    """Where a fat binary comes from; unknown in a file whose sections cannot be read, and in any other section.

    Relocatable ones are what nvcc linked the program's one fat binary from; the driver compiles and links their PTX
    anew where that one has no machine code for the GPU (NVIDIA's nvcc manual, "Using Separate Compilation").
    """

    HAND_WRITTEN = "hand-written"
    RELOCATABLE = "relocatable"
    GENERATED = "generated"
    UNKNOWN = "unknown"


_SECTIONS = {".nv_fatbin": Origin.HAND_WRITTEN, "__nv_relfatbin": Origin.RELOCATABLE}
_DATA = re.compile(r"\.l?(?:rodata|data)(?:\.|$)")
"""The sections of a program's constants and variables; with an l those of large ones, far from the code."""


class Group(msgspec.Struct, frozen=True, order=True):
    """Fat binaries that hold the same: capabilities (``"8.9"``) with machine code, PTX; and how many they are."""

    origin: Origin
    cubins: tuple[str, ...]
    ptx: tuple[Ptx, ...]
    fat_binaries: int


class LibraryCode(msgspec.Struct, frozen=True):
    """What one shared object holds, by its name in the wheel."""

    library: str
    groups: tuple[Group, ...]


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """What fat binaries of one origin hold: in every one of them, and beyond that in some."""

    fat_binaries: int
    cubins: tuple[str, ...] = ()
    ptx: tuple[Ptx, ...] = ()
    cubins_in_some: tuple[str, ...] = ()
    ptx_in_some: tuple[Ptx, ...] = ()


def groups(pieces: Iterable[bytes]) -> tuple[Group, ...]:
    """Read a shared object that comes in pieces of any size, in order; memory stays at a few pieces.

    A file without a fat binary gives none. Raises ValueError for a file with more of them than any real one has.
    """
    watch = SectionWatch()
    offsets: dict[tuple[tuple[str, ...], tuple[Ptx, ...]], list[int]] = {}
    for number, found in enumerate(fat_binaries(watch.over(pieces))):
        offsets.setdefault(_contents(found), []).append(found.offset)
        if len(offsets) > _MOST_KINDS or number >= _MOST:
            raise ValueError(f"more than {_MOST_KINDS} kinds of fat binaries, or {_MOST} fat binaries")
    sections = watch.sections()
    return _summed(
        (_origin(sections, at), cubins, ptx, 1) for (cubins, ptx), places in offsets.items() for at in places
    )


def merged(libraries: Iterable[LibraryCode]) -> tuple[Group, ...]:
    """Sum the groups of several libraries."""
    return _summed(
        (group.origin, group.cubins, group.ptx, group.fat_binaries) for one in libraries for group in one.groups
    )


def coverage(libraries: Iterable[LibraryCode], origin: Origin) -> Coverage | None:
    """Say what the fat binaries of one origin hold over several libraries; None where there are none.

    A linked fat binary, which has machine code alone, counts with the PTX of what its library was linked from; where
    that is not there, it does not count for PTX.
    """
    chosen = [
        (group, group.ptx or (_linked_from(library) if origin is Origin.HAND_WRITTEN else ()))
        for library in libraries
        for group in library.groups
        if group.origin is origin
    ]
    if not chosen:
        return None
    cubins = [group.cubins for group, _ in chosen]
    ptx = [held for _, held in chosen if held or origin is not Origin.HAND_WRITTEN]
    return Coverage(
        fat_binaries=sum(group.fat_binaries for group, _ in chosen),
        cubins=(cubins_in_every := _common(cubins)),
        ptx=(ptx_in_every := _common(ptx)),
        cubins_in_some=_beyond(cubins, cubins_in_every),
        ptx_in_some=_beyond(ptx, ptx_in_every),
    )


_ORIGINS: tuple[tuple[KernelOrigin, Origin], ...] = (
    ("hand-written", Origin.HAND_WRITTEN),
    ("generated", Origin.GENERATED),
)


def kernels(libraries: Sequence[LibraryCode]) -> tuple[Kernels, ...]:
    """Say by origin what every fat binary of a wheel holds, as the catalogue keeps it; see `coverage`."""
    found = []
    for name, origin in _ORIGINS:
        covered = coverage(libraries, origin)
        if covered is None:
            continue
        bare = sum(group.fat_binaries for group in merged(libraries) if group.origin is origin and not group.ptx)
        found.append(
            Kernels(
                origin=name,
                fat_binaries=covered.fat_binaries,
                without_ptx=bare if covered.ptx else 0,
                cubins=covered.cubins,
                ptx=covered.ptx,
            )
        )
    return tuple(found)


def _linked_from(library: LibraryCode) -> tuple[Ptx, ...]:
    return _common([group.ptx for group in library.groups if group.origin is Origin.RELOCATABLE])


def _summed(rows: Iterable[tuple[Origin, tuple[str, ...], tuple[Ptx, ...], int]]) -> tuple[Group, ...]:
    counts: Counter[tuple[Origin, tuple[str, ...], tuple[Ptx, ...]]] = Counter()
    for origin, cubins, ptx, count in rows:
        counts[origin, cubins, ptx] += count
    return tuple(sorted(Group(*key, fat_binaries=count) for key, count in counts.items()))


def _common(values: Sequence[tuple[T, ...]]) -> tuple[T, ...]:
    """List what stands in all of them; nothing where there are none."""
    first, *others = values or ((),)
    return tuple(one for one in first if all(one in other for other in others))


def _beyond(values: Sequence[tuple[T, ...]], common: tuple[T, ...]) -> tuple[T, ...]:
    """List what stands in some, each once, in the order in which it is met."""
    return tuple(dict.fromkeys(one for value in values for one in value if one not in common))


def _contents(found: FatBinary) -> tuple[tuple[str, ...], tuple[Ptx, ...]]:
    cubins = capabilities(entry.architecture for entry in found.entries if entry.kind == CUBIN)
    ptx = {ptx_text.read(entry) for entry in found.entries if entry.kind == PTX}
    return cubins, tuple(sorted(ptx, key=lambda one: (one.target or "", one.isa)))


def _origin(sections: tuple[Section, ...], offset: int) -> Origin:
    place = bisect_right(sections, offset, key=lambda section: section.offset) - 1
    if place < 0 or offset >= sections[place].offset + sections[place].size:
        return Origin.UNKNOWN
    name = sections[place].name
    return _SECTIONS.get(name, Origin.GENERATED if _DATA.match(name) else Origin.UNKNOWN)
