"""A library's version is read out of its own bytes; what it is called says nothing."""

from __future__ import annotations

import mmap
import struct

import pytest

from envbuilder.probes.suite.elf import Elf
from envbuilder.validation.layer_scan import own_version


def library(symbol: str, content: bytes, *, rodata: bytes = b"", section: bytes = b".rodata") -> mmap.mmap:
    """Make a 64-bit ELF file that exports one symbol of this content, laid out as System V has it."""
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
    """The compilers' libraries name their release; a pattern for one that is none."""
    text = b"Cuda compilation tools, release %d.%d, \0Cuda compilation tools, release 12.5, V12.5.82\0"
    window = library("nvrtcVersion", b"\xc3", rodata=text)
    assert own_version(Elf("lib.so", window), window) == "12.5.82"
