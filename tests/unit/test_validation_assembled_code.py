"""What ptxas made is looked at by the host: only machine code of this run's kernel, for its GPU, counts."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping

import msgspec
import pytest

from envbuilder.finding import Code
from envbuilder.probes.suite.kernel_text import Kernel
from envbuilder.validation.assembled_code import check_assembled
from envbuilder.verdict import CheckResult

PASSED = CheckResult(name="xla-assembles", level="load", outcome="passed", observed="ptxas 12.5.82")
KERNEL = Kernel("nonce", "12.5")


def cubin(kernel: Kernel, *, machine: int = 190, target: int | None = None, abi: int = 7) -> bytes:
    """Make what ptxas makes, in small: an ELF file with the kernel's own section, its constant among the code."""
    names = b"\0.text." + kernel.name.encode() + b"\0.shstrtab\0"
    code = bytes(20) + struct.pack("<I", kernel.constant) + bytes(40)
    flags = (kernel.target if target is None else target) << (8 if abi >= 8 else 0) | 0x500000
    at = 64 + len(code) + len(names)
    header = b"\x7fELF\x02\x01\x01\x33" + bytes([abi]) + bytes(7)
    header += struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, 0, 0, at, flags, 64, 56, 0, 64, 3, 2)
    rows = bytes(64)
    for name, kind, place, size in (
        (1, 1, 64, len(code)),
        (names.index(b".shstrtab"), 3, 64 + len(code), len(names)),
    ):
        rows += struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, place, size, 0, 0, 1, 0)
    return header + code + names + rows


def said(**made: bytes) -> dict[str, object]:
    """Say what a probe says."""
    return {"version": "12.5.82", "made": {tool: base64.b64encode(content).decode() for tool, content in made.items()}}


@pytest.mark.parametrize("abi", [7, 8])
def test_the_kernel_s_own_machine_code_passes(abi: int) -> None:
    """By either ABI of cubins, linked or not."""
    code = cubin(KERNEL, abi=abi)
    assert check_assembled(PASSED, said(ptxas=code), KERNEL).outcome == "passed"
    assert "ptxas and nvlink" in check_assembled(PASSED, said(ptxas=code, nvlink=code), KERNEL).observed


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"version": "12.5", "made": {}},
        {"version": "12.5", "made": {"ptxas": "no base64!"}},
        said(ptxas=b""),
        said(ptxas=b"\x7fELF" + bytes(100)),
        said(ptxas=cubin(KERNEL)[:-100]),
        said(ptxas=cubin(Kernel("another run", "12.5"))),
        said(ptxas=cubin(KERNEL, machine=62)),
        said(ptxas=cubin(KERNEL, target=60)),
        said(ptxas=cubin(KERNEL), nvlink=b"well"),
    ],
)
def test_anything_else_does_not(data: Mapping[str, object] | None) -> None:
    """Nothing, noise, code of another run, for another machine or GPU: the tool works in name only."""
    result = check_assembled(PASSED, data, KERNEL)
    assert result.outcome == "failed"
    assert {one.code for one in result.findings} == {Code.XLA_TOOLS_MISSING}


def test_no_result_becomes_better() -> None:
    """What did not pass is not looked at."""
    failed = msgspec.structs.replace(PASSED, outcome="timeout")
    assert check_assembled(failed, said(ptxas=cubin(KERNEL)), KERNEL) == failed


def test_old_builds_get_a_kernel_that_their_ptxas_knows() -> None:
    """CUDA 9 knows no Turing; name and constant are those of the run."""
    assert (Kernel("n", "9.0").target, Kernel("n", "10.0").target, Kernel("n", None).target) == (70, 75, 75)
    assert Kernel("a", None).name != Kernel("b", None).name
    assert str(KERNEL.constant) in KERNEL.text
