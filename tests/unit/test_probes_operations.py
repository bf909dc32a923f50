"""The probes that compare results: each operation of the table can fail, and so can what ptxas writes."""

from __future__ import annotations

import math
import struct
import types
import zlib
from pathlib import Path
from typing import Any

import pytest

from envbuilder.probes.suite import operations, xlatools


@pytest.mark.parametrize(
    ("result", "reference", "error"),
    [
        ([1.0, 2], [1, 2.0], 0.0),
        ([1.0, 2.0], [1.0, 1.0], 1 / math.sqrt(2)),
        ([0.5], [0], 0.5),
        ([3j], [3j + 3], 3 / math.hypot(3, 3)),
        ([1.0], [1.0, 2.0], math.inf),
        ([math.nan], [1.0], math.inf),
        ([math.inf], [1.0], math.inf),
        ([b"a", 1], [b"a", 1], 0.0),
        ([b"a", 1], [b"a", 2], math.inf),
        ([1], [b"a"], math.inf),
    ],
)
def test_distance_of_a_result(result: list[Any], reference: list[Any], error: float) -> None:
    assert operations.distance(result, reference) == pytest.approx(error)


def test_operation_that_is_wrong_or_raises_has_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    table: dict[str, Any] = {
        "raises": (lambda tf, _: tf.missing, lambda _, x: x.long),
        "wrong": (lambda _, x: [x.long, 2], lambda _, x: [x.long, 1]),
        "right": (lambda _, x: x.long, lambda _, x: [x.long]),
    }
    monkeypatch.setattr(operations, "TABLE", table)
    arrays = types.SimpleNamespace(long=0)
    errors = dict(operations.errors_of(types.SimpleNamespace(), arrays, None, arrays))
    assert {name: error for name, (error, _) in errors.items()} == {"raises": math.inf, "wrong": 1.0, "right": 0.0}
    assert "AttributeError" in errors["raises"][1]


def test_picture_is_a_png() -> None:
    written = operations._png(bytes(range(6)), 3, 2)
    assert written[:8] == b"\x89PNG\r\n\x1a\n"
    start = written.index(b"IDAT")
    length = int.from_bytes(written[start - 4 : start], "big")
    data = written[start + 4 : start + 4 + length]
    assert zlib.decompress(data) == b"\0\0\1\2\0\3\4\5"
    assert zlib.crc32(b"IDAT" + data) == int.from_bytes(written[start + 4 + length : start + 8 + length], "big")


def cubin(*, machine: int = 190, gpu: int = 75, abi: int = 7, constant: int = xlatools.CONSTANT) -> bytes:
    """Make a small file like those of ptxas: an ELF file with the kernel's section and its constant in the code."""
    names = b"\0.text.kernel\0.shstrtab\0"
    code = bytes(20) + struct.pack("<I", constant) + bytes(40)
    flags = gpu << (8 if abi >= 8 else 0) | 0x500000
    at = 64 + len(code) + len(names)
    header = b"\x7fELF\x02\x01\x01\x33" + bytes([abi]) + bytes(7)
    header += struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, 0, 0, at, flags, 64, 56, 0, 64, 3, 2)
    rows = bytes(64)
    for name, kind, place, size in ((1, 1, 64, len(code)), (names.index(b".shstrtab"), 3, 64 + len(code), len(names))):
        rows += struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, place, size, 0, 0, 1, 0)
    return header + code + names + rows


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (cubin(), ""),
        (cubin(abi=8), ""),
        (b"", "not an ELF file"),
        (b"\x7fELF" + bytes(100), "not an ELF file"),
        (cubin()[:-100], "not an ELF file"),
        (cubin(constant=1), "no code of the kernel"),
        (cubin(machine=62), "not for a GPU"),
        (cubin(gpu=60), "for another GPU"),
    ],
)
def test_only_machine_code_of_the_kernel_is_accepted(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "k.cubin").write_bytes(content)
    found = xlatools.problem(str(tmp_path / "k.cubin"), 75)
    assert found.endswith(why)
    assert bool(found) is bool(why)


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        ('[ "$1" = --version ] && echo "release 12.5, V12.5.82" || cp {cubin} "$4"', "passed"),
        ('[ "$1" = --version ] && echo hello || cp {cubin} "$4"', "failed"),
        ('[ "$1" = --version ] && echo "release 12.5, V12.5.82" || : > "$4"', "failed"),
        ("exit 0", "failed"),
        ("exit 1", "failed"),
    ],
)
def test_ptxas_has_to_write_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, outcome: str
) -> None:
    (tmp_path / "cubin").write_bytes(cubin())
    ptxas = tmp_path / "ptxas"
    ptxas.write_text("#!/bin/sh\n" + script.replace("{cubin}", str(tmp_path / "cubin")) + "\n")
    ptxas.chmod(0o755)
    monkeypatch.setattr(xlatools, "_places", lambda _: [])
    monkeypatch.setattr(xlatools, "_path", lambda: [str(tmp_path)])
    result = xlatools.assembled({"built_cuda": "12.5"})
    assert result["outcome"] == outcome
    assert {one["code"] for one in result["findings"]} == (set() if outcome == "passed" else {"XLA_TOOLS_MISSING"})


def test_old_ptxas_gets_a_kernel_that_it_knows() -> None:
    assert [xlatools.target(cuda)[1] for cuda in ("9.0", "10.0", None)] == [70, 75, 75]
