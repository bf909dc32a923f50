"""Check the driver itself: its version, its GPUs, contexts and memory, and the CUDA runtime on top of it."""

from __future__ import annotations

import ctypes
import os
import re
from typing import Any

from . import cuda_driver, gpu_code
from .cuda_driver import FIXES, NO_DRIVER, DriverState, numbers
from .result import Answer, Facts, Finding, finding, judged, measure, passed, skipped

# cudaErrorSymbolNotFound: the result of the runtime after it has accepted the version and state of a driver, for tables
# that only the real driver has. A simulated driver does not have them.
BEYOND_SIMULATION = 500
BYTES = 1 << 20


def identity(facts: Facts) -> Answer:
    seen = cuda_driver.read_state()
    data = {"driver": seen.version, "cuda": seen.cuda, "gpus": seen.gpus, "nodes": seen.nodes, "count": seen.count}
    expected = facts.get("gpus_expected")
    if not seen.present and expected:
        text = f"the host has {expected} GPU(s) and the container sees none"
        found = finding("GPU_NOT_VISIBLE", "GPU", text, fix=FIXES["GPU_NOT_VISIBLE"])
        return judged([found], f"{expected} GPU(s)", "no driver", data=data)
    if not seen.present:
        return skipped(NO_DRIVER, expected="an NVIDIA driver", data=data)
    findings = [one for one in (conflict(seen, facts), hidden(seen)) if one] + gpu_code.without_code(seen.gpus, facts)
    names = ", ".join(gpu["name"] for gpu in seen.gpus) or "none"
    observed = f"driver {seen.version}, CUDA {seen.cuda}, {seen.count} GPU(s): {names}"
    need = f"driver {facts['minimum_driver']} or newer" if facts.get("minimum_driver") else "a driver"
    return judged(findings, need, observed, data=data, measurements={"gpus": measure(seen.count, "1")})


def conflict(seen: DriverState, facts: Facts) -> Finding | None:
    need, version = facts.get("minimum_driver"), f"driver {seen.version}"
    if need and seen.version and numbers(seen.version) < numbers(need):
        if carried_forward(seen, facts):
            text = f"{version} is older than {need}, and a compatibility package brings CUDA {seen.cuda} to it"
            return finding("DRIVER_FORWARD_COMPAT", version, text, need, seen.version, severity="warning")
        text = f"{version} is older than {need}, the minimum for CUDA {facts.get('cuda')}"
        return finding("DRIVER_TOO_OLD", version, text, need, seen.version, FIXES["DRIVER_TOO_OLD"])
    if seen.result:
        return cuda_driver.refused(seen.result, "libcuda", "the driver returns", "cuInit succeeds")
    if seen.library is None:
        text = "the container has GPU device nodes or NVML, and no libcuda.so.1"
        fix = "ask the runtime for the compute capability"
        return finding("GPU_NOT_VISIBLE", "libcuda.so.1", text, fix=fix)
    if seen.version is None:
        text = "the driver's version cannot be read: the container has no NVML (libnvidia-ml.so.1)"
        fix = "ask the runtime for the utility capability (NVIDIA_DRIVER_CAPABILITIES=compute,utility)"
        return finding("GPU_NOT_VISIBLE", "libnvidia-ml.so.1", text, fix=fix)
    return None


def hidden(seen: DriverState) -> Finding | None:
    """Return a finding if CUDA has other GPUs than NVML, although no variable hides any."""
    if seen.result != 0 or seen.count == len(seen.gpus) or "CUDA_VISIBLE_DEVICES" in os.environ:
        return None
    text = f"NVML sees {len(seen.gpus)} GPU(s), CUDA {seen.count}"
    return finding("GPU_NOT_VISIBLE", "GPU", text, len(seen.gpus), seen.count)


def carried_forward(seen: DriverState, facts: Facts) -> bool:
    """Return True if libcuda works and is of a newer driver than the kernel module: a compatibility package.

    The file's name ends with its driver's version; where it does not, libcuda has to have the toolkit's CUDA.
    """
    if seen.result != 0 or not seen.cuda or not facts.get("cuda"):
        return False
    own = re.search(r"\.so\.([0-9]+\.[0-9.]+)$", os.path.realpath(seen.library or ""))
    if own:
        return own.group(1) != seen.version and numbers(own.group(1)) >= numbers(facts["minimum_driver"])
    return numbers(seen.cuda) >= numbers(facts["cuda"])


def runtime_accepts(facts: Facts) -> Answer:
    """Ask the CUDA runtime that TensorFlow loads whether this driver is new enough."""
    seen = cuda_driver.read_state()
    if not seen.present:
        return skipped(NO_DRIVER)
    name = next((one for one in facts.get("libraries") or () if one.startswith("libcudart.so")), None)
    library = cuda_driver.opened(name) if name else None
    if library is None:
        return skipped("there is no CUDA runtime")
    count = ctypes.c_int(0)
    result = library.cudaGetDeviceCount(ctypes.byref(count))
    library.cudaGetErrorString.restype = ctypes.c_char_p
    text = library.cudaGetErrorString(result).decode()
    if result == 0:
        return passed("cudaGetDeviceCount succeeds", f"{count.value} device(s)")
    if facts.get("simulated") and result == BEYOND_SIMULATION and seen.result == 0:
        return skipped("the runtime accepted the driver's version; a simulated driver cannot do more")
    _, code = cuda_driver.meaning(result)
    found = finding(code, name, text, "success", f"cudaError {result}", FIXES.get(code, ""))
    return judged([found], "cudaGetDeviceCount succeeds", text)


@cuda_driver.on_driver
def contexts(facts: Facts, seen: DriverState) -> Answer:
    library = cuda_driver.opened("libcuda.so.1")
    findings = []
    for device in range(seen.count):
        call, result = cuda_driver.in_context(library, device, "cuMemAlloc", lambda: _allocate(library))
        if result:
            findings.append(cuda_driver.refused(result, f"GPU {device}", f"GPU {device}: {call}:"))
    observed = "; ".join(found["message"] for found in findings) or f"on {seen.count} GPU(s)"
    return judged(findings, "a context and memory on every GPU", observed)


def _allocate(library: Any) -> int:
    memory = ctypes.c_ulonglong()
    result = library.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(BYTES))
    if result == 0:
        library.cuMemFree_v2(memory)
    return int(result)
