"""What a layer's record says of a large shared object, of which only parts are looked at."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from envbuilder.engine.port import LayerFile, LayerStream
from envbuilder.errors import InfrastructureError
from envbuilder.validation import layer_scan
from envbuilder.validation.layer_scan import scan

PIECE = 1 << 12


def _large(dynamic_at: int, size: int) -> bytes:
    """Make a shared object whose dynamic section and texts are far from both of its ends."""
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
    """Scan a layer with this one file, and return the soname that its record has."""

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
    """A program header table beyond the file is a damaged file, and the scan goes on."""
    content = bytearray(_large(4096, PIECE * 4))
    content[32:40] = struct.pack("<Q", 1 << 62)
    file = LayerFile("usr/lib/libdamaged.so.1", "file", size=len(content), pieces=lambda: iter((bytes(content),)))
    (row,) = scan(LayerStream(iter((file,)), "sha256:0")).rows
    assert row.binary is not None
    assert row.binary.damaged


def test_a_file_of_holes_that_begins_as_a_program_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is larger than any shared object is never laid out in memory; nor is a dynamic section without end."""
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
    """Memory is bounded by the entries of a layer too: beyond any honest number of them no verdict is reached."""
    monkeypatch.setattr(layer_scan, "MOST_ENTRIES", 1000)
    files = (LayerFile(f"srv/{number}", "file") for number in range(1 << 40))
    with pytest.raises(InfrastructureError, match="more than 1000 files"):
        scan(LayerStream(files, "sha256:0"))
    few = (LayerFile(f"srv/{number}", "file") for number in range(1000))
    assert len(scan(LayerStream(few, "sha256:0")).rows) == 1000
