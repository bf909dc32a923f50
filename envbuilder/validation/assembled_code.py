"""Hold what an image's ptxas and nvlink made of a run's kernel to what it must be: machine code of that kernel."""

from __future__ import annotations

import base64
import mmap
import struct

import msgspec

from envbuilder.finding import Code, Finding, Severity
from envbuilder.probes.suite.elf import Elf, NotElfError
from envbuilder.probes.suite.kernel_text import Kernel
from envbuilder.support import decoding
from envbuilder.verdict import CheckResult

_EM_CUDA = "190"
_FLAGS, _ABI = 48, 8
"""Where an ELF header has its flags, and its ABI version."""

_NEW_ABI = 8
"""From this ABI on, which CUDA 13 writes, the GPU stands in the flags' second byte."""


class _Said(msgspec.Struct, frozen=True):
    version: str
    made: dict[str, str]


def check_assembled(result: CheckResult, data: object, kernel: Kernel) -> CheckResult:
    """Look at the bytes that were made; only a result that says passed is looked at, and it becomes no better."""
    if result.outcome != "passed":
        return result
    try:
        said = decoding.converted(data, _Said)
    except decoding.DamagedError:
        said = _Said("", {})
    wrong = {tool: why for tool, text in {"ptxas": "", **said.made}.items() if (why := _wrong(text, kernel))}
    if not wrong:
        return msgspec.structs.replace(result, observed=f"{result.observed}; made by {' and '.join(said.made)}")
    findings = tuple(
        Finding(
            code=Code.XLA_TOOLS_MISSING,
            severity=Severity.ERROR,
            subject=tool,
            message=f"{tool} ends well, and what it made is not this run's kernel: {why}",
            requires="machine code of the kernel that it was given",
            found=why,
            fix="install the nvidia-cuda-nvcc package of this CUDA anew",
        )
        for tool, why in wrong.items()
    )
    observed = "; ".join(one.message for one in findings)
    return msgspec.structs.replace(result, outcome="failed", observed=observed, findings=findings)


def _wrong(text: str, kernel: Kernel) -> str:
    """Say in what way it is not the kernel's code; '' where it is."""
    try:
        with decoding.damaged("not the bytes of a file"):
            content = base64.b64decode(text, validate=True)
        elf, window = _read(content)
    except (decoding.DamagedError, NotElfError):
        return "it is no ELF file"
    if elf.machine != _EM_CUDA:
        return "it is for no GPU"
    flags = int.from_bytes(content[_FLAGS : _FLAGS + 4], "little")
    if (flags >> 8 if content[_ABI] >= _NEW_ABI else flags) & 0xFF != kernel.target:
        return "it is for another GPU"
    offset, size = elf.sections.get(f".text.{kernel.name}", (0, 0))
    code = window[offset : offset + size]
    return "" if struct.pack("<I", kernel.constant) in code else "the kernel's code is not in it"


def _read(content: bytes) -> tuple[Elf, mmap.mmap]:
    if len(content) < 64:  # noqa: PLR2004 - an ELF header
        raise NotElfError
    window = mmap.mmap(-1, len(content))
    window[:] = content
    return Elf("cubin", window), window
