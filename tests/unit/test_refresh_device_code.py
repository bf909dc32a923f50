"""Telling hand-written from generated GPU code, by real libraries and hand-made ones."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuilder.catalog.rows import Kernels, Ptx
from envbuilder.probes.suite.fatbin import CUBIN, MAGIC, PTX
from envbuilder.refresh.device_code import Coverage, Group, LibraryCode, Origin, coverage, groups, kernels, merged

DATA = Path(__file__).parents[1] / "data" / "device_code"
LIBRARY = (DATA / "libkernels.so").read_bytes()
SM90, SM90A = Ptx("sm_90", "8.3"), Ptx("sm_90a", "8.5")
GENERATED, HAND, RELOCATABLE = Origin.GENERATED, Origin.HAND_WRITTEN, Origin.RELOCATABLE


def pieces(content: bytes, size: int) -> Iterator[bytes]:
    return (content[at : at + size] for at in range(0, len(content), size))


def fat_binary(*held: int | Ptx) -> bytes:
    """Write a fat binary: machine code for each number, an unpacked PTX text for each PTX."""
    return _container(b"".join(_ptx(one) if isinstance(one, Ptx) else _entry(CUBIN, one, b"\0" * 8) for one in held))


def _container(body: bytes) -> bytes:
    return MAGIC + struct.pack("<HHQ", 1, 16, len(body)) + body


def _entry(kind: int, number: int, payload: bytes) -> bytes:
    return struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, 64, len(payload), 0, 0, 1, 1, number, 0, 0, 0, 0, 0) + payload


def _ptx(one: Ptx) -> bytes:
    return _entry(PTX, 90, f".version {one.isa}\n.target {one.target}\n".encode())


@pytest.mark.parametrize("size", [13, 4096, 1 << 20])
def test_a_real_library_s_kernels_are_told_apart(size: int) -> None:
    """A library made as TensorFlow's are gives each origin its own, however its bytes arrive."""
    nvcc = ("7.5", "9.0")
    assert groups(pieces(LIBRARY, size)) == (
        Group(GENERATED, ("7.5",), (Ptx("sm_90a", "9.0"),), 2),
        Group(HAND, nvcc, (), 1),
        Group(HAND, nvcc, (Ptx("sm_90", "9.0"),), 1),
        Group(RELOCATABLE, nvcc, (Ptx("sm_90", "9.0"),), 2),
    )


def test_the_union_does_not_show_what_generated_kernels_lack() -> None:
    """The library's union holds machine code for 9.0 and PTX 90; its generated kernels need PTX for 9.0a alone."""
    library = LibraryCode("libkernels.so", groups([LIBRARY]))
    assert coverage([library], GENERATED) == Coverage(fat_binaries=2, cubins=("7.5",), ptx=(Ptx("sm_90a", "9.0"),))
    assert coverage([library], HAND) == Coverage(fat_binaries=2, cubins=("7.5", "9.0"), ptx=(Ptx("sm_90", "9.0"),))
    assert coverage([library], Origin.UNKNOWN) is None


def test_a_file_without_sections_says_that_the_origin_is_unknown() -> None:
    """A bare fat binary is read, and is neither hand-written nor generated."""
    assert groups([fat_binary(80, SM90A)]) == (Group(Origin.UNKNOWN, ("8.0",), (SM90A,), 1),)
    assert groups([b"no GPU code"]) == ()


@pytest.mark.parametrize(
    ("section", "origin"),
    [
        (".nv_fatbin", HAND),
        ("__nv_relfatbin", RELOCATABLE),
        (".rodata", GENERATED),
        (".lrodata.cst", GENERATED),
        (".data.rel.ro", GENERATED),
        (".text", Origin.UNKNOWN),
        (".database", Origin.UNKNOWN),
    ],
)
def test_the_section_decides(section: str, origin: Origin) -> None:
    """One and the same fat binary has the origin of its section; a section of no known use gives none."""
    assert groups([_elf(section, fat_binary(80, SM90))]) == (Group(origin, ("8.0",), (SM90,), 1),)


def _elf(section: str, content: bytes) -> bytes:
    """Make a shared object with one section, as the ELF format has it."""
    names = f"\0.shstrtab\0{section}\0".encode()
    places = [(0, 0, 0, 0), (1, 3, 64, len(names)), (11, 1, 64 + len(names), len(content))]
    rows = (struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, at, size, 0, 0, 1, 0) for name, kind, at, size in places)
    table = 64 + len(names) + len(content)
    ident = b"\x7fELF\x02\x01\x01"
    head = struct.pack("<16sHHIQQQIHHHHHH", ident, 3, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, len(places), 1)
    return head + names + content + b"".join(rows)


def test_groups_are_counted_and_hide_nothing() -> None:
    """Fat binaries that hold the same in another order are one group; any difference makes another."""
    content = [fat_binary(80, 90, SM90), fat_binary(90, SM90, 80), fat_binary(80, SM90), fat_binary(80, SM90A)]
    assert [(one.cubins, one.ptx, one.fat_binaries) for one in groups(content)] == [
        (("8.0",), (SM90,), 1),
        (("8.0",), (SM90A,), 1),
        (("8.0", "9.0"), (SM90,), 2),
    ]


def test_what_is_in_every_one_is_apart_from_what_is_in_some() -> None:
    """A capability or a PTX that one fat binary of one library lacks is not in every one."""
    one = LibraryCode("a.so", (Group(GENERATED, ("7.0", "8.0"), (SM90A,), 3), Group(HAND, ("7.0", "9.0"), (SM90,), 2)))
    two = LibraryCode("b.so", (Group(GENERATED, ("8.0", "8.9"), (SM90, SM90A), 4),))
    assert coverage([one, two], GENERATED) == Coverage(
        fat_binaries=7, cubins=("8.0",), ptx=(SM90A,), cubins_in_some=("7.0", "8.9"), ptx_in_some=(SM90,)
    )
    assert coverage([one, two], HAND) == Coverage(fat_binaries=2, cubins=("7.0", "9.0"), ptx=(SM90,))


def test_a_linked_fat_binary_has_the_ptx_of_what_it_was_linked_from() -> None:
    """PTX of relocatable fat binaries counts for the linked one of the same library, and of no other."""
    linked, parts = Group(HAND, ("8.0",), (), 1), Group(RELOCATABLE, (), (SM90,), 362)
    assert coverage([LibraryCode("a.so", (linked, parts))], HAND) == Coverage(
        fat_binaries=1, cubins=("8.0",), ptx=(SM90,)
    )
    apart = [LibraryCode("a.so", (linked,)), LibraryCode("b.so", (parts,))]
    assert coverage(apart, HAND) == Coverage(fat_binaries=1, cubins=("8.0",))


def test_kernels_are_what_every_fat_binary_holds() -> None:
    """The catalogue's words: each origin apart; linked programs do not hide the others' PTX, and are counted.

    A generated fat binary without PTX does hide it: each is needed.
    """
    code = LibraryCode("a.so", (Group(HAND, ("8.0", "9.0"), (), 2), Group(HAND, ("8.0", "9.0"), (SM90,), 281)))
    more = LibraryCode("b.so", (Group(GENERATED, ("8.0",), (SM90A,), 8), Group(RELOCATABLE, (), (SM90,), 5)))
    hand = Kernels(origin="hand-written", fat_binaries=283, without_ptx=2, cubins=("8.0", "9.0"), ptx=(SM90,))
    generated = Kernels(origin="generated", fat_binaries=8, cubins=("8.0",), ptx=(SM90A,))
    assert kernels([code, more]) == (hand, generated)
    bare = LibraryCode("c.so", (Group(GENERATED, ("8.0",), (), 1), Group(GENERATED, ("8.0",), (SM90A,), 1)))
    assert kernels([bare]) == (Kernels(origin="generated", fat_binaries=2, cubins=("8.0",)),)
    alone = LibraryCode("d.so", (Group(HAND, ("8.0",), (), 2),))
    assert kernels([alone]) == (Kernels(origin="hand-written", fat_binaries=2, cubins=("8.0",)),)
    assert kernels([]) == ()


def test_libraries_are_summed() -> None:
    """Groups that hold the same in several libraries are one, with the sum of their counts."""
    one = LibraryCode("a.so", (Group(HAND, ("8.0",), (SM90,), 3),))
    two = LibraryCode("b.so", (Group(GENERATED, ("8.0",), (SM90,), 1), Group(HAND, ("8.0",), (SM90,), 4)))
    assert merged([one, two]) == (Group(GENERATED, ("8.0",), (SM90,), 1), Group(HAND, ("8.0",), (SM90,), 7))


@given(st.data())
def test_hostile_bytes_do_not_raise(data: st.DataObject) -> None:
    """A real library with bytes changed, or cut off, gives groups; their number is bounded by its size."""
    content = bytearray(LIBRARY)
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=12)):
        content[at] = data.draw(st.integers(0, 255))
    found = groups(pieces(bytes(content[: data.draw(st.integers(0, len(content)))]), 4096))
    assert sum(group.fat_binaries for group in found) <= len(content) // 48


@given(st.lists(st.binary(max_size=80), max_size=12))
def test_fat_binaries_of_noise_do_not_raise(bodies: list[bytes]) -> None:
    """Headers of fat binaries before any bytes at all give groups or nothing."""
    content = b"".join(_container(struct.pack("<HHI", 1, 0, 64) + body) + body for body in bodies)
    assert len(groups(pieces(content, 50))) <= len(bodies) * 2


def test_a_file_of_nothing_but_different_fat_binaries_is_refused() -> None:
    """More kinds than any real library has (there are four in TensorFlow's) end in an error, not in memory."""
    with pytest.raises(ValueError, match="more than 1024 kinds"):
        groups(fat_binary(number) for number in range(2000))


def test_memory_stays_at_a_few_pieces() -> None:
    """Reading 256 MiB in pieces of 64 KiB, with a fat binary in each fourth, holds less than 4 MiB at any time."""
    piece = bytes(1 << 16)
    code = fat_binary(60, 70, SM90A)
    tracemalloc.start()
    try:
        found = groups(code + piece[len(code) :] if number % 4 == 0 else piece for number in range(4096))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [group.fat_binaries for group in found] == [1024]
    assert peak < 4 << 20
