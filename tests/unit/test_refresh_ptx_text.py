"""Reading a PTX text's target and ISA, packed in each of the ways that nvcc packs it, and hostile bytes."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuilder.catalog.rows import Ptx
from envbuilder.probes.suite.fatbin import PTX, Entry, fat_binaries
from envbuilder.refresh import ptx_text
from envbuilder.refresh.ptx_text import LZ4, lz4_head, zstd_head

DATA = Path(__file__).parents[1] / "data" / "device_code"
TEXT = b"//\n.version 8.5\n.target sm_90a\n.address_size 64\n"


def ptx_entry(payload: bytes, flags: int = 0) -> Entry:
    """Make an entry as fatbinary does: PTX ISA 7.4 in the header, to tell it from what the text says."""
    head = struct.pack("<HHIQIIHHIIIQQQ", PTX, 0x101, 64, len(payload), 0, 0, 4, 7, 90, 0, 0, flags, 0, 0)
    return Entry(PTX, 90, head, payload)


def entry_of(name: str) -> Entry:
    (found,) = fat_binaries([(DATA / name).read_bytes()])
    return found.entries[0]


def sequence(literals: bytes, distance: int, length: int) -> bytes:
    """Write one sequence of an LZ4 block, as its format's description says."""
    token = min(len(literals), 15) << 4 | min(length - 4, 15)
    return bytes([token]) + _more(len(literals)) + literals + struct.pack("<H", distance) + _more(length - 4)


def _more(length: int) -> bytes:
    return b"" if length < 15 else b"\xff" * ((length - 15) // 255) + bytes([(length - 15) % 255])


def last(literals: bytes) -> bytes:
    return bytes([min(len(literals), 15) << 4]) + _more(len(literals)) + literals


@pytest.mark.parametrize("name", ["ptx_none.fatbin", "ptx_speed.fatbin", "ptx_balance.fatbin"])
def test_target_keeps_its_a_however_nvcc_packed_it(name: str) -> None:
    """PTX that nvcc made for 9.0a is read as ``sm_90a`` and ISA 9.0, although its header says 90."""
    entry = entry_of(name)
    assert entry.architecture == 90
    assert ptx_text.read(entry) == Ptx("sm_90a", "9.0")


def test_text_is_the_same_in_both_packings() -> None:
    lz4, zstd = entry_of("ptx_speed.fatbin"), entry_of("ptx_balance.fatbin")
    packed, size = struct.unpack_from("<I", lz4.header, 16)[0], struct.unpack_from("<Q", lz4.header, 56)[0]
    text = lz4_head(lz4.payload[:packed], 1 << 16)
    assert text == zstd_head(zstd.payload, 1 << 16)
    assert len(text) == size
    assert text.endswith(b"ret;\n\n}\n\n\0")


@given(
    literals=st.lists(st.binary(min_size=1, max_size=600), min_size=1, max_size=5),
    matches=st.lists(st.tuples(st.integers(1, 700), st.integers(4, 900)), min_size=5, max_size=5),
    tail=st.binary(max_size=40),
)
def test_lz4_block_unpacks_by_its_format(literals: list[bytes], matches: list[tuple[int, int]], tail: bytes) -> None:
    block, expected = b"", bytearray()
    for text, (distance, length) in zip(literals, matches, strict=False):
        expected += text
        back = min(distance, len(expected))
        for _ in range(length):
            expected.append(expected[-back])
        block += sequence(text, back, length)
    assert lz4_head(block + last(tail), 1 << 20) == bytes(expected) + tail


@given(st.integers(0, 100))
def test_no_more_is_unpacked_than_asked_for(limit: int) -> None:
    assert lz4_head(sequence(b"ab", 2, 1 << 20), limit) == (b"ab" * 50)[:limit]
    assert len(zstd_head(entry_of("ptx_balance.fatbin").payload, limit)) <= limit


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TEXT, Ptx("sm_90a", "8.5")),
        (b"// .version 1.0\n\n \t.version\t7.0 // x\n// .target sm_20\n.target sm_80, debug\n", Ptx("sm_80", "7.0")),
        (b".version 8.8\n.target debug, sm_120f\n", Ptx("sm_120f", "8.8")),
        (b".target sm_80\n.version 7.0\n", Ptx(None, "7.4")),
        (b".version 7.0\n.target compute_80\n", Ptx(None, "7.4")),
        (b"x.version 7.0\n.target sm_80\n", Ptx(None, "7.4")),
    ],
)
def test_directives_are_read_as_ptx_writes_them(text: bytes, expected: Ptx) -> None:
    assert ptx_text.read(ptx_entry(text)) == expected


@pytest.mark.parametrize("flags", [0, LZ4])
@pytest.mark.parametrize("length", [1, 450, 500, 511, 600, 10_000])
def test_directives_may_follow_a_comment_of_16_kilobytes(length: int, flags: int) -> None:
    text = b"/" * length + b"\n" + TEXT
    assert ptx_text.read(ptx_entry(last(text) if flags else text, flags)) == Ptx("sm_90a", "8.5")
    assert ptx_text.read(ptx_entry(b"// generated\n" * 80_000 + TEXT)) == Ptx(None, "7.4")
