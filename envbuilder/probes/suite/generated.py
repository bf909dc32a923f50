"""Hand generated kernels, as they stand in TensorFlow's own objects, to the driver, and hear whether it takes them."""

from __future__ import annotations

import ctypes
import mmap
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from . import driver, fatbin, framework
from .answer import Answer, Facts, finding, judged, measure, passed

# nvcc's code stands in sections of its own; what the kernel generator made is data of the program.
DATA = re.compile(r"\.l?(?:rodata|data)(?:\.|$)")
HANDED = 4
LARGEST = 16 << 20

# CUresult values of a module (cuda.h): the code under which we report each, and what mends it.
RESULTS = {
    200: ("CUDA_ERROR_INVALID_IMAGE", "NO_KERNEL_IMAGE", "take a TensorFlow that was built for this GPU"),
    209: ("CUDA_ERROR_NO_BINARY_FOR_GPU", "NO_KERNEL_IMAGE", "take a TensorFlow that was built for this GPU"),
    218: ("CUDA_ERROR_INVALID_PTX", "NO_KERNEL_IMAGE", "take a TensorFlow that was built for this GPU"),
    222: (
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        "PTX_TOO_NEW",
        "use a newer driver, or a TensorFlow that was built with an older CUDA",
    ),
}


def loaded(facts: Facts) -> Answer:
    """Load some of them on every GPU: without machine code for it, their PTX has to be one that the driver compiles."""
    seen = driver.look()
    nothing = driver.without_gpu(seen, "generated kernels that the driver takes")
    if nothing is not None:
        return nothing
    kernels = list(islice(found(), HANDED))
    if not kernels:
        return passed("generated kernels that the driver takes", "this build holds none")
    library = driver.opened("libcuda.so.1")
    findings = []
    for device in range(seen.count):
        result = next((code for code in (_load(library, device, kernel) for kernel in kernels) if code), 0)
        if result:
            name, code, fix = RESULTS.get(result, ("CUresult {0}".format(result), "NO_KERNEL_IMAGE", ""))
            text = (
                "GPU {0} refuses generated kernels, of which most element-wise operations are made: {1} ({2}). "
                "TensorFlow lists the GPU, and the first such operation fails"
            ).format(device, name, result)
            findings.append(finding(code, "GPU {0}".format(device), text, "generated kernels", name, fix))
    observed = "; ".join(one["message"] for one in findings) or "{0} on {1} GPU(s)".format(len(kernels), seen.count)
    measured = {"generated_kernels": measure(len(kernels), "1")}
    return judged(findings, "generated kernels that the driver takes", observed, measurements=measured)


def found() -> Iterator[bytes]:
    """Yield the fat binaries among the data of TensorFlow's own objects, whole and in order."""
    search = framework.new_search()
    for read in framework.callers(search):
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
    """Load one fat binary in a GPU's primary context; return the driver's result. Nothing is left held."""
    context, module = ctypes.c_void_p(), ctypes.c_void_p()
    result = int(library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    if result:
        return 0  # the check of the contexts says so
    try:
        if library.cuCtxPushCurrent_v2(context) != 0:
            return 0
        held = ctypes.create_string_buffer(kernel, len(kernel))
        result = int(library.cuModuleLoadData(ctypes.byref(module), held))
        if result == 0:
            library.cuModuleUnload(module)
        library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
        return result
    finally:
        library.cuDevicePrimaryCtxRelease_v2(device)
