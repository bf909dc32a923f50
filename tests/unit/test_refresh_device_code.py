"""Hand-written and generated GPU code of real and synthetic libraries."""

import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from device_code import elf, fat_binary
from hypothesis import given
from hypothesis import strategies as st

from envbuilder.catalog.rows import KernelOrigin, Kernels, Ptx
from envbuilder.refresh.device_code import Group, Origin, groups, kernels
from envbuilder.refresh.section_table import Section, SectionWatch

DATA = Path(__file__).parents[1] / "data" / "device_code"
LIBRARY = (DATA / "libkernels.so").read_bytes()
SM90, SM90A = Ptx("sm_90", "8.3"), Ptx("sm_90a", "8.5")
GENERATED: KernelOrigin = "generated"
HAND: KernelOrigin = "hand-written"
RELOCATABLE: Origin = "relocatable"


def pieces(content: bytes, size: int) -> Iterator[bytes]:
    return (content[at : at + size] for at in range(0, len(content), size))


@pytest.mark.parametrize("size", [13, 4096, 1 << 20])
def test_kernels_of_a_real_library_have_their_origin(size: int) -> None:
    """The size of the pieces does not matter."""
    nvcc = ("7.5", "9.0")
    assert groups(pieces(LIBRARY, size)) == (
        Group(GENERATED, ("7.5",), (Ptx("sm_90a", "9.0"),), 2),
        Group(HAND, nvcc, (), 1),
        Group(HAND, nvcc, (Ptx("sm_90", "9.0"),), 1),
        Group(RELOCATABLE, nvcc, (Ptx("sm_90", "9.0"),), 2),
    )


def test_fat_binary_without_sections_has_an_unknown_origin() -> None:
    """A bare fat binary is read, and is neither hand-written nor generated."""
    assert groups([fat_binary(80, SM90A)]) == (Group("unknown", ("8.0",), (SM90A,), 1),)
    assert groups([b"no GPU code"]) == ()


@pytest.mark.parametrize(
    ("section", "origin"),
    [
        (".nv_fatbin", HAND),
        ("__nv_relfatbin", RELOCATABLE),
        (".rodata", GENERATED),
        (".lrodata.cst", GENERATED),
        (".data.rel.ro", GENERATED),
        (".text", "unknown"),
        (".database", "unknown"),
    ],
)
def test_section_decides(section: str, origin: Origin) -> None:
    assert groups([elf({section: fat_binary(80, SM90)})]) == (Group(origin, ("8.0",), (SM90,), 1),)


def test_groups_are_counted_and_hide_nothing() -> None:
    content = [fat_binary(80, 90, SM90), fat_binary(90, SM90, 80), fat_binary(80, SM90), fat_binary(80, SM90A)]
    assert [(one.cubins, one.ptx, one.fat_binaries) for one in groups(content)] == [
        (("8.0",), (SM90,), 1),
        (("8.0",), (SM90A,), 1),
        (("8.0", "9.0"), (SM90,), 2),
    ]


LINKED, PARTS = Group(HAND, ("8.0",), (), 1), Group(RELOCATABLE, (), (SM90,), 362)


@pytest.mark.parametrize(
    ("libraries", "hand", "generated"),
    [
        pytest.param([], None, None, id="no library"),
        pytest.param(
            [groups([LIBRARY])],
            Kernels(origin=HAND, fat_binaries=2, without_ptx=1, cubins=("7.5", "9.0"), ptx=(Ptx("sm_90", "9.0"),)),
            Kernels(origin=GENERATED, fat_binaries=2, cubins=("7.5",), ptx=(Ptx("sm_90a", "9.0"),)),
            id="a real library: its union hides that generated kernels have PTX for 9.0a only",
        ),
        pytest.param(
            [
                (Group(GENERATED, ("7.0", "8.0"), (SM90A,), 3), Group(HAND, ("7.0", "9.0"), (SM90,), 2)),
                (Group(GENERATED, ("8.0", "8.9"), (SM90, SM90A), 4), Group(HAND, ("9.0",), (SM90,), 4)),
            ],
            Kernels(origin=HAND, fat_binaries=6, cubins=("9.0",), ptx=(SM90,)),
            Kernels(origin=GENERATED, fat_binaries=7, cubins=("8.0",), ptx=(SM90A,)),
            id="only what every fat binary of every library has",
        ),
        pytest.param(
            [(LINKED, PARTS)],
            Kernels(origin=HAND, fat_binaries=1, without_ptx=1, cubins=("8.0",), ptx=(SM90,)),
            None,
            id="a linked fat binary has the PTX of the relocatable ones in its library",
        ),
        pytest.param(
            [(LINKED,), (PARTS,)], Kernels(origin=HAND, fat_binaries=1, cubins=("8.0",)), None, id="not of another one"
        ),
        pytest.param(
            [(Group(HAND, ("8.0", "9.0"), (), 2), Group(HAND, ("8.0", "9.0"), (SM90,), 281))],
            Kernels(origin=HAND, fat_binaries=283, without_ptx=2, cubins=("8.0", "9.0"), ptx=(SM90,)),
            None,
            id="linked programs do not hide the PTX of others, and are counted",
        ),
        pytest.param(
            [(Group(GENERATED, ("8.0",), (), 1), Group(GENERATED, ("8.0",), (SM90A,), 1))],
            None,
            Kernels(origin=GENERATED, fat_binaries=2, cubins=("8.0",)),
            id="a generated fat binary without PTX hides it: each is needed",
        ),
    ],
)
def test_kernels_have_the_content_of_every_fat_binary(
    libraries: list[tuple[Group, ...]], hand: Kernels | None, generated: Kernels | None
) -> None:
    assert kernels(libraries) == tuple(one for one in (hand, generated) if one is not None)


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


def sections(content: bytes, size: int) -> tuple[Section, ...]:
    """Read a file's sections in pieces of one size; the pieces pass unchanged."""
    watch = SectionWatch()
    assert b"".join(watch.over(pieces(content, size))) == content
    return watch.sections()


def with_one_section(*, names_first: bool, decoys: int = 0, filling: int = 0) -> bytes:
    """Make a file with one section ``.code`` of 32 bytes; the names stand before or behind the other contents."""
    names = b"\0.shstrtab\0.code\0"
    body = b"".join(b"\0.shstrtab\0" + b"x" * filling for _ in range(decoys)) + b"c" * 32
    content = names + b"\0" * 7 + body if names_first else body + names
    names_at = 64 + content.rfind(names) if not names_first else 64
    code_at = 64 + content.find(b"c" * 32)
    rows = [(0, 0, 0, 0, 0, 0), (1, 3, 0, 0, names_at, len(names)), (11, 1, 2, 0, code_at, 32), (11, 8, 2, 0, 64, 999)]
    table = b"".join(struct.pack("<IIQQQQIIQQ", *row, 0, 0, 1, 0) for row in rows)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 0, 64 + len(content), 0, 64, 0, 0, 64, 4, 1
    )
    return header + content + table


@given(names_first=st.booleans(), size=st.integers(1, 700))
def test_names_of_sections_may_stand_before_or_behind_the_contents(*, names_first: bool, size: int) -> None:
    found = sections(with_one_section(names_first=names_first), size)
    assert [section.name for section in found if section.size == 32] == [".code"]
    assert 999 not in {section.size for section in found}


def test_names_of_other_files_within_are_not_taken() -> None:
    content = with_one_section(names_first=False, decoys=40, filling=70_000)
    assert ".code" in {section.name for section in sections(content, 50_000)}
