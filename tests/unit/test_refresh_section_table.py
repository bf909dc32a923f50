"""Reading a shared object's sections while it goes by."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuilder.refresh.section_table import Section, SectionWatch

DATA = Path(__file__).parents[1] / "data" / "device_code"
LIBRARY = (DATA / "libkernels.so").read_bytes()


def sections(content: bytes, size: int) -> tuple[Section, ...]:
    """Read a file's sections in pieces of one size; the pieces pass unchanged."""
    watch = SectionWatch()
    passed = list(watch.over(content[at : at + size] for at in range(0, len(content), size)))
    assert b"".join(passed) == content
    return watch.sections()


def elf(*, names_first: bool, decoys: int = 0, filling: int = 0) -> bytes:
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


@pytest.mark.parametrize("size", [1, 61, 4096, 1 << 20])
def test_a_real_library_s_sections_are_found(size: int) -> None:
    found = {section.name: (section.offset, section.size) for section in sections(LIBRARY, size)}
    assert {".rodata", ".nv_fatbin", "__nv_relfatbin", ".nvFatBinSegment", ".shstrtab"} <= set(found)
    offset, length = found[".nv_fatbin"]
    assert LIBRARY[offset : offset + 4] == b"\x50\xed\x55\xba"
    at, length = found[".shstrtab"]
    assert b"\0.nv_fatbin\0" in LIBRARY[at : at + length]


@given(names_first=st.booleans(), size=st.integers(1, 700))
def test_names_may_stand_before_or_behind_the_contents(*, names_first: bool, size: int) -> None:
    found = sections(elf(names_first=names_first), size)
    assert [section.name for section in found if section.size == 32] == [".code"]
    assert 999 not in {section.size for section in found}


def test_names_of_other_files_within_are_not_taken() -> None:
    assert ".code" in {section.name for section in sections(elf(names_first=False, decoys=40, filling=70_000), 50_000)}


@given(content=st.binary(max_size=400), size=st.integers(1, 100))
def test_what_is_no_elf_file_has_no_sections(content: bytes, size: int) -> None:
    assert sections(content + b".shstrtab\0", size) == ()


@given(st.data())
def test_damage_does_not_raise(data: st.DataObject) -> None:
    content = bytearray(elf(names_first=data.draw(st.booleans())))
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=8)):
        content[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    assert len(sections(bytes(content[:cut]), data.draw(st.integers(1, 200)))) <= 4096
