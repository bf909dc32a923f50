"""One layer's record: rows, contents, binaries and the versions of CUDA libraries."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator

import pytest

from envbuilder.engine.port import LayerFile, LayerStream
from envbuilder.errors import InfrastructureError
from envbuilder.probes.suite.elf import Elf
from envbuilder.validation import layer_scan
from envbuilder.validation.layer_scan import own_version, scan

PIECE = 1 << 12


def _large(dynamic_at: int, size: int) -> bytes:
    texts = b"\0libmiddle.so.1\0"
    dynamic = struct.pack("<QQQQQQ", 5, dynamic_at + 48, 14, 1, 0, 0)
    header = (
        b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    )
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, size, size, 4096)
    segment = struct.pack("<IIQQQQQQ", 2, 6, dynamic_at, dynamic_at, dynamic_at, 48 + len(texts), 48, 8)
    start = header + load + segment
    return (start.ljust(dynamic_at, b"\0") + dynamic + texts).ljust(size, b"\0")


def recorded(content: bytes) -> str:

    def pieces() -> Iterator[bytes]:
        for at in range(0, len(content), PIECE):
            yield content[at : at + PIECE]

    file = LayerFile("usr/lib/libmiddle.so.1", "file", size=len(content), pieces=pieces)
    (row,) = scan(LayerStream(iter((file,)), "sha256:0")).rows
    assert row.binary is not None
    return row.binary.soname


@pytest.mark.parametrize("at", [PIECE * 20, PIECE * 20 - 8, PIECE * 20 + 17])
def test_what_the_loader_reads_is_read_wherever_it_lies(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The soname of a file whose dynamic section is in neither of the ends that are looked at is in its record."""
    monkeypatch.setattr(layer_scan, "_WHOLE", PIECE)
    monkeypatch.setattr(layer_scan, "_HEAD", PIECE * 2)
    monkeypatch.setattr(layer_scan, "_ENDS", PIECE * 2)
    assert recorded(_large(at, PIECE * 40)) == "libmiddle.so.1"


def test_headers_that_lead_nowhere_are_no_reason_to_fail() -> None:
    content = bytearray(_large(4096, PIECE * 4))
    content[32:40] = struct.pack("<Q", 1 << 62)
    file = LayerFile("usr/lib/libdamaged.so.1", "file", size=len(content), pieces=lambda: iter((bytes(content),)))
    (row,) = scan(LayerStream(iter((file,)), "sha256:0")).rows
    assert row.binary is not None
    assert row.binary.damaged


def test_a_file_of_holes_that_begins_as_a_program_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_scan, "_LARGEST", PIECE)
    file = LayerFile("usr/lib/libholes.so.1", "file", size=2 * PIECE, pieces=lambda: iter((b"\x7fELF" + bytes(PIECE),)))
    (row,) = scan(LayerStream(iter((file,)), "sha256:0")).rows
    assert row.binary is not None
    assert row.binary.damaged == "it is larger than any"
    endless = bytearray(_large(PIECE, PIECE * 2))
    endless[64 + 56 + 32 : 64 + 56 + 40] = struct.pack("<Q", 1 << 40)
    assert len(layer_scan._dynamic(bytes(endless))) == layer_scan._ENDS


def test_empty_and_cut_files_are_told_apart() -> None:
    empty = LayerFile("libempty.so.1", "file")
    short = LayerFile("libshort.so.1", "file", size=4, pieces=lambda: iter((b"\x7fELF",)))
    none, damaged = (row.binary for row in scan(LayerStream(iter((empty, short)), "sha256:1")).rows)
    assert none is None
    assert damaged is not None
    assert damaged.damaged


def test_a_layer_of_files_without_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_scan, "MOST_ENTRIES", 1000)
    files = (LayerFile(f"srv/{number}", "file") for number in range(1 << 40))
    with pytest.raises(InfrastructureError, match="more than 1000 files"):
        scan(LayerStream(files, "sha256:0"))
    few = (LayerFile(f"srv/{number}", "file") for number in range(1000))
    assert len(scan(LayerStream(few, "sha256:0")).rows) == 1000


def library(symbol: str, content: bytes, *, rodata: bytes = b"", section: bytes = b".rodata") -> mmap.mmap:
    names = b"\0" + symbol.encode() + b"\0"
    table = b"\0.dynsym\0.dynstr\0" + section + b"\0.shstrtab\0"
    at, places = 64 + 56, []
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, 0x11, 0, 3, 64 + 56 + 48 + len(names), len(content))
    for part in (symbols, names, content + rodata, table):
        places.append((at, len(part)))
        at += len(part)
    header = (
        b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, at, 0, 64, 56, 1, 64, 5, 4)
    )
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, at, at, 4096)
    offsets = [table.index(name) for name in (b".dynsym", b".dynstr", section, b".shstrtab")]
    rows = [bytes(64)] + [
        struct.pack("<IIQQQQIIQQ", name, kind, 0, place, place, size, 0, 0, 1, 0)
        for name, kind, (place, size) in zip(offsets, (11, 3, 1, 3), places, strict=True)
    ]
    whole = header + load + symbols + names + content + rodata + table + b"".join(rows)
    window = mmap.mmap(-1, len(whole))
    window[:] = whole
    return window


@pytest.mark.parametrize(
    ("symbol", "content", "version"),
    [
        ("cudnn_graph_version", bytes.fromhex("00030900"), "9.3.0"),
        ("cudnn_ops_infer_version", bytes.fromhex("07090800"), "8.9.7"),
        ("cufftGetVersion", bytes.fromhex("4885ff7406c707c32b000031c0c3"), "11.2.3"),
        ("curandGetVersion", bytes.fromhex("c7074228000031c0c3"), "10.3.6"),
        ("cusolverGetVersion", bytes.fromhex("4885ffb8030000007408c707532d000031c0f3c3"), "11.6.3"),
        ("cufftGetVersion", bytes.fromhex("554889e5e8000000005dc3"), ""),
        ("cudnn_graph_version", bytes(4), ""),
        ("other", bytes.fromhex("c7074228000031c0c3"), ""),
    ],
)
def test_exported_versions(symbol: str, content: bytes, version: str) -> None:
    """The very bytes of cuDNN 9.3's and CUDA 12.5's libraries; code that does more than store a number says nothing."""
    window = library(symbol, content)
    assert own_version(Elf("lib.so", window), window) == version


@pytest.mark.parametrize(
    ("stored", "version"),
    [
        ((11020, 11020), "11.2"),
        ((12050,), "12.5"),
        ((10010, 7), "10.1"),
        ((11020, 12050), ""),
        ((), ""),
        ((999990,), ""),
    ],
)
def test_a_run_time_is_of_the_one_toolkit_that_its_code_stores(stored: tuple[int, ...], version: str) -> None:
    """Code that stores one number of a toolkit says which; with two of them, or none, nothing is claimed."""
    code = b"\x85\xff\x74\x0b".join(b"\xc7\x07" + number.to_bytes(4, "little") for number in stored)
    window = library("cudaRuntimeGetVersion", code, section=b".text")
    assert own_version(Elf("lib.so", window), window) == version


def test_build_strings() -> None:
    text = b"Cuda compilation tools, release %d.%d, \0Cuda compilation tools, release 12.5, V12.5.82\0"
    window = library("nvrtcVersion", b"\xc3", rodata=text)
    assert own_version(Elf("lib.so", window), window) == "12.5.82"
