"""Fat binaries and the files that hold them, as their formats have it."""

import struct
from collections.abc import Mapping

from envbuilder.catalog.rows import Ptx

MAGIC = b"\x50\xed\x55\xba"
PTX, CUBIN = 1, 2


def pieces(content: bytes, size: int) -> list[bytes]:
    return [content[at : at + size] for at in range(0, len(content), size)]


def entry(kind: int, number: int, payload: bytes = b"\0" * 24) -> bytes:
    """Write one entry as the format has it: a header of 64 bytes and its payload."""
    head = struct.pack("<HHIQIIHHI", kind, 0x0101, 64, len(payload), 0, 0, 0, 0, number)
    return head.ljust(64, b"\0") + payload


def container(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return MAGIC + struct.pack("<HHQ", 1, 16, len(body)) + body


def fat_binary(*held: int | Ptx) -> bytes:
    """Write a fat binary: machine code for each number, an unpacked PTX text for each PTX."""
    return container(*(_ptx(one) if isinstance(one, Ptx) else entry(CUBIN, one, b"\0" * 8) for one in held))


def _ptx(one: Ptx) -> bytes:
    return entry(PTX, 90, f".version {one.isa}\n.target {one.target}\n".encode())


def elf(sections: Mapping[str, bytes], before: bytes = b"") -> bytes:
    names = b"\0.shstrtab\0" + b"".join(name.encode() + b"\0" for name in sections)
    content, rows = names + before, [(0, 0, 0, 0), (1, 3, 64, len(names))]
    for name, held in sections.items():
        rows.append((names.index(name.encode()), 1, 64 + len(content), len(held)))
        content += held
    table = (struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, at, size, 0, 0, 1, 0) for name, kind, at, size in rows)
    ident, end = b"\x7fELF\x02\x01\x01", 64 + len(content)
    head = struct.pack("<16sHHIQQQIHHHHHH", ident, 3, 62, 1, 0, 0, end, 0, 64, 0, 0, 64, len(rows), 1)
    return head + content + b"".join(table)
