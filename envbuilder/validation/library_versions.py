"""Which version a library of CUDA is, by its own bytes: exported constants, code that returns one, build strings."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator

from envbuilder.probes.suite.elf import Elf
from envbuilder.support import decoding

_CUDNN = re.compile(r"cudnn_\w+_version\Z")
"""Parts of cuDNN export their version as a number: 0x00090300 is 9.3.0 (read off 9.3's wheel)."""

_CONSTANT = re.compile(r"(?:cufft|curand|cusolver)GetVersion\Z")
_STORES = re.compile(rb"\xc7\x07(....)", re.DOTALL)
"""``mov dword [rdi], n``: all that these functions do is write a constant (read off CUDA 12.5's wheels)."""

_RUN_TIME = "cudaRuntimeGetVersion"
_TOOLKITS = range(5000, 30000)
"""What the run time may call its toolkit: 11020 is 11.2. It is the one such number that its code stores (read off the
run times of 11.2, 11.8, 12.2 and 12.5)."""

_SHORT = 32
_BUILT = re.compile(rb"Cuda compilation tools, release (?P<release>\d+\.\d+), V(?P<full>[\d.]+)")


def own_version(elf: Elf, window: mmap.mmap) -> str:
    """Read a library's version out of itself; '' where it does not hold one that can be read."""
    for name, offset, size in elf.exported(window):
        if name == _RUN_TIME:
            return _toolkit(elf, window)
        if _CUDNN.match(name) and size == 4:  # noqa: PLR2004 - one number
            number = int.from_bytes(window[offset : offset + 4], "little")
            return f"{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}" if number else ""
        if _CONSTANT.match(name) and size <= _SHORT:
            found = _STORES.search(window[offset : offset + size])
            return _dotted(int.from_bytes(found[1], "little")) if found else ""
    return next(_built(elf, window), "")


def _toolkit(elf: Elf, window: mmap.mmap) -> str:
    """Read the toolkit of a CUDA run time (``11.2``); '' where its code stores several numbers of that form."""
    offset, size = elf.sections.get(".text", (0, 0))
    numbers = {int.from_bytes(one, "little") for one in _STORES.findall(window[offset : offset + size])}
    found = {number for number in numbers if number in _TOOLKITS and number % 10 == 0}
    return "{}.{}".format(*divmod(found.pop() // 10, 100)) if len(found) == 1 else ""


def _dotted(number: int) -> str:
    """Write 11203 as 11.2.3, as the toolkit's libraries count."""
    return f"{number // 1000}.{number // 100 % 10}.{number % 100}"


def _built(elf: Elf, window: mmap.mmap) -> Iterator[str]:
    offset, size = elf.sections.get(".rodata", (0, 0))
    at = window.find(b"Cuda compilation tools, release ", offset, offset + size)
    while at >= 0:
        found = _BUILT.match(window[at : at + 80])
        if found:
            yield decoding.lossy(found["full"])
        at = window.find(b"Cuda compilation tools, release ", at + 1, offset + size)
