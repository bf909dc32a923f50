"""Check the machine code and PTX for GPUs in TensorFlow's binaries, and that the driver loads generated kernels."""

from __future__ import annotations

import ctypes
import mmap
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from . import cuda_driver, fatbin, tensorflow_install
from .result import Answer, Facts, Finding, finding, judged, measure, passed, skipped

PIECE = 4 * 1024 * 1024
SECTIONS = (".nv_fatbin", "__nv_relfatbin")


def in_binaries(facts: Facts) -> Answer:
    search = tensorflow_install.new_search()
    cubins, ptx, count = set(), set(), 0
    for read in tensorflow_install.callers(search):
        for name in SECTIONS:
            if name in read.sections:
                found = fatbin.architectures(_pieces(read.path, *read.sections[name]))
                cubins |= set(found.cubins)
                ptx |= set(found.ptx)
                count += found.fat_binaries
    if not count:
        return skipped("TensorFlow's objects have no readable fat binary")
    findings = []
    for kind, wanted, seen in (("machine code", facts.get("cubins"), cubins), ("PTX", facts.get("ptx"), ptx)):
        if wanted and not set(wanted) <= seen:
            lacking = ", ".join(sorted(set(wanted) - seen))
            text = f"the binaries have no {kind} for {lacking}, which the environment names"
            findings.append(finding("IMAGE_CLAIM", kind, text, " ".join(wanted), " ".join(sorted(seen))))
    expected = _listed(facts.get("cubins") or (), facts.get("ptx") or ())
    return judged(findings, expected, _listed(cubins, ptx), measurements={"fat_binaries": measure(count, "1")})


def without_code(gpus: Iterable[dict[str, Any]], facts: Facts) -> list[Finding]:
    """Return a finding for each GPU for which this build has neither machine code nor PTX that can be compiled."""
    cubins, ptx = facts.get("cubins") or (), facts.get("ptx") or ()
    if not cubins and not ptx:
        return []
    findings = []
    for gpu in gpus:
        capability = cuda_driver.numbers(gpu["compute_capability"])
        runs = any(one[0] == capability[0] and one <= capability for one in map(cuda_driver.numbers, cubins))
        if not runs and not any(cuda_driver.numbers(one) <= capability for one in ptx):
            name, need = gpu["name"], gpu["compute_capability"]
            text = f"this TensorFlow holds neither machine code nor PTX for {name} ({need})"
            fix = "take a TensorFlow that was built for this GPU"
            findings.append(finding("NO_KERNEL_IMAGE", name, text, need, _listed(cubins, ptx), fix))
    return findings


def _listed(cubins: Iterable[str], ptx: Iterable[str]) -> str:
    code, text = (" ".join(sorted(one, key=cuda_driver.numbers)) or "none" for one in (cubins, ptx))
    return f"machine code {code}; PTX {text}"


def _pieces(path: str, offset: int, size: int) -> Iterator[bytes]:
    with open(path, "rb") as stream:
        stream.seek(offset)
        while size > 0:
            piece = stream.read(min(PIECE, size))
            if not piece:
                return
            size -= len(piece)
            yield piece


# nvcc's code has sections of its own; generated kernels are data of the program.
DATA = re.compile(r"\.l?(?:rodata|data)(?:\.|$)")
HANDED = 4
LARGEST = 16 << 20


@cuda_driver.on_driver
def loaded(facts: Facts, seen: cuda_driver.DriverState) -> Answer:
    """Load some generated kernels on every GPU; without its machine code, the driver has to compile their PTX."""
    kernels = list(islice(found(), HANDED))
    if not kernels:
        return passed("generated kernels that the driver loads", "this build has none")
    library = cuda_driver.opened("libcuda.so.1")
    findings = []
    for device in range(seen.count):
        result = next((code for code in (_load(library, device, kernel) for kernel in kernels) if code), 0)
        if result:
            text = f"GPU {device}: the driver refuses generated kernels, which most element-wise operations use:"
            findings.append(cuda_driver.refused(result, f"GPU {device}", text))
    observed = "; ".join(one["message"] for one in findings) or f"{len(kernels)} on {seen.count} GPU(s)"
    measured = {"generated_kernels": measure(len(kernels), "1")}
    return judged(findings, "generated kernels that the driver loads", observed, measurements=measured)


def found() -> Iterator[bytes]:
    """Yield the fat binaries in the data of TensorFlow's own objects, in order."""
    search = tensorflow_install.new_search()
    for read in tensorflow_install.callers(search):
        places = sorted(place for name, place in read.sections.items() if DATA.match(name))
        with open(read.path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for offset, size in places:
                yield from _within(content, offset, offset + size)


def _within(content: mmap.mmap, at: int, end: int) -> Iterator[bytes]:
    at = content.find(fatbin.MAGIC, at, end)
    while at >= 0:
        length = fatbin.length_of(content[at : at + 64])
        if 0 < length <= LARGEST:
            yield content[at : at + length]
        at = content.find(fatbin.MAGIC, at + max(length, 4), end)


def _load(library: Any, device: int, kernel: bytes) -> int:
    """Load one fat binary and return the driver's result; 0 without a context, which has a check of its own."""
    module, data = ctypes.c_void_p(), ctypes.create_string_buffer(kernel, len(kernel))

    def load() -> int:
        result = int(library.cuModuleLoadData(ctypes.byref(module), data))
        if result == 0:
            library.cuModuleUnload(module)
        return result

    call, result = cuda_driver.in_context(library, device, "cuModuleLoadData", load)
    return result if call == "cuModuleLoadData" else 0
