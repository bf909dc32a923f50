"""Small 64-bit ELF files laid out as System V has it: a soname, one exported symbol, and the code behind it."""

import struct

_HEAD = 64 + 2 * 56


def shared_object(soname: str, symbol: str = "nothing", code: bytes = b"\xc3", section: bytes = b".text") -> bytes:
    """Make a shared object that is called so and exports one symbol with this code, in this section."""
    texts = b"\0" + soname.encode() + b"\0" + symbol.encode() + b"\0"
    table = b"\0.dynsym\0.dynstr\0" + section + b"\0.shstrtab\0"
    at = _HEAD
    places = {}
    dynamic_size = 48
    symbols_at = at + dynamic_size
    texts_at = symbols_at + 48
    code_at = texts_at + len(texts)
    dynamic = struct.pack("<QQQQQQ", 5, texts_at, 14, 1, 0, 0)
    symbols = bytes(24) + struct.pack("<IBBHQQ", 2 + len(soname), 0x12, 0, 3, code_at, len(code))
    for part in (dynamic, symbols, texts, code, table):
        places[at] = part
        at += len(part)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, at, 0, 64, 56, 2, 64, 5, 4)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, at, at, 4096)
    segment = struct.pack("<IIQQQQQQ", 2, 6, _HEAD, _HEAD, _HEAD, dynamic_size, dynamic_size, 8)
    rows = [bytes(64)]
    for name, kind, place, size in (
        (b".dynsym", 11, symbols_at, 48),
        (b".dynstr", 3, texts_at, len(texts)),
        (section, 1, code_at, len(code)),
        (b".shstrtab", 3, code_at + len(code), len(table)),
    ):
        rows.append(struct.pack("<IIQQQQIIQQ", table.index(name), kind, 0, place, place, size, 0, 0, 1, 0))
    return header + load + segment + b"".join(places.values()) + b"".join(rows)


def run_time(toolkit: int) -> bytes:
    """Make a CUDA run time of a toolkit (``11080`` is 11.8), as its code says it."""
    code = b"\x85\xff\x74\x0b\xc7\x07" + toolkit.to_bytes(4, "little")
    return shared_object("libcudart.so.11.0", "cudaRuntimeGetVersion", code)


def cudnn_part(version: tuple[int, int, int]) -> bytes:
    major, minor, patch = version
    return shared_object("libcudnn_ops_infer.so.8", "cudnn_ops_infer_version", bytes((patch, minor, major, 0)))
