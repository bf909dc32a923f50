"""Shared objects that hold fat binaries as nvcc and the kernel generator leave them, made by the system's compiler."""

import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from envbuilder.catalog.rows import Ptx

MAGIC = b"\x50\xed\x55\xba"
PTX, CUBIN = 1, 2

Entry = tuple[int, int, bytes]
"""Kind, architecture number, payload."""


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


_SOURCE = """
struct wrapper {{ int magic, version; const void *data; void *more; }};
{externals}
__attribute__((section(".nvFatBinSegment"), used)) struct wrapper wrappers[] = {{ {wrappers} }};
{extra}
static const void *const made[] = {{ {made} 0 }};
const void *listed(int number) {{ return wrappers[number].data; }}
const void *generated(int number) {{ return made[number]; }}
int answer(void) {{ return 42; }}
"""


def shared_object(
    folder: Path,
    listed: Sequence[bytes],
    generated: Sequence[bytes] = (),
    relocatable: Sequence[bytes] = (),
    *,
    extra: str = "",
    assembly: str = "",
    options: Sequence[str] = (),
) -> Path:
    """Compile an object whose functions give what was put in: ``listed``, ``relocatable`` behind them, ``generated``.

    ``extra`` and ``assembly`` are more source; ``options`` are for the linker.
    """
    names, text = [], []
    for section, prefix, binaries in (
        (".nv_fatbin", "l", listed),
        ("__nv_relfatbin", "r", relocatable),
        (".rodata", "g", generated),
    ):
        text.append(f'.section {section},"a"')
        for number, content in enumerate(binaries):
            (folder / f"{prefix}{number}.bin").write_bytes(content)
            text += [".balign 8", f".hidden {prefix}{number}", f".globl {prefix}{number}"]
            text += [f"{prefix}{number}:", f'.incbin "{prefix}{number}.bin"']
            names.append(f"{prefix}{number}")
    externals = "".join(f'extern const char {one}[] __attribute__((visibility("hidden")));\n' for one in names)
    wrappers = ", ".join(f"{{0x466243b1, 1, {one}, 0}}" for one in names if not one.startswith("g"))
    made = "".join(f"{one}, " for one in names if one.startswith("g"))
    (folder / "a.c").write_text(_SOURCE.format(externals=externals, wrappers=wrappers, made=made, extra=extra))
    (folder / "b.s").write_text("\n".join([*text, assembly, '.section .note.GNU-stack,"",@progbits', ""]))
    command = ["cc", "-shared", "-fPIC", "-O1", "-g", "-o", "libdevice.so", "a.c", "b.s", *options]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "libdevice.so"
