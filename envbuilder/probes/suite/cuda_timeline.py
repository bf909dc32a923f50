"""Time what the CUDA driver does before any framework: open, initialise, context, module, memory, launch, handles.

Runs on its own, with no other file: ``python cuda_timeline.py`` prints one JSON document. Driver API reference:
https://docs.nvidia.com/cuda/cuda-driver-api/. Without a driver the document says so and holds no phase.
"""

from __future__ import annotations

import ctypes
import glob
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

# y[i] = 2 y[i] for one warp; PTX 6.0 for sm_50, which every driver of the last decade compiles for every newer GPU.
PTX = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry twice(.param .u64 data)
{
  .reg .u64 %a, %i;
  .reg .u32 %t;
  .reg .f32 %f;
  ld.param.u64 %a, [data];
  cvta.to.global.u64 %a, %a;
  mov.u32 %t, %tid.x;
  mul.wide.u32 %i, %t, 4;
  add.u64 %a, %a, %i;
  ld.global.f32 %f, [%a];
  add.f32 %f, %f, %f;
  st.global.f32 [%a], %f;
  ret;
}
"""

WARP = 32
BYTES = 256 * 1024 * 1024


class DriverError(Exception):
    """A driver call that did not succeed: its name and CUresult."""

    def __init__(self, name: str, code: int) -> None:
        super(DriverError, self).__init__(f"{name} answers {code}")
        self.name = name
        self.code = code


class Timeline:
    """Phases in order, each with its seconds; ``prefix`` begins every name."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.phases: list[dict[str, Any]] = []
        self.facts: dict[str, Any] = {}

    def timed(self, name: str, action: Callable[[], Any]) -> Any:
        begun = time.perf_counter()
        value = action()
        self.add(name, time.perf_counter() - begun)
        return value

    def add(self, name: str, seconds: float) -> None:
        self.phases.append({"phase": self.prefix + name, "seconds": seconds})


def call(library: Any, name: str, *arguments: Any) -> None:
    """Call a driver function. Raises DriverError if it does not succeed."""
    code = getattr(library, name)(*arguments)
    if code != 0:
        raise DriverError(name, code)


def cache_bytes(folder: str = "") -> int:
    folder = folder or os.environ.get("CUDA_CACHE_PATH") or os.path.expanduser("~/.nv/ComputeCache")
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                total += os.path.getsize(os.path.join(place, name))
    return total


def run(driver: str = "libcuda.so.1", handles: Iterable[tuple[str, str]] = ()) -> dict[str, Any]:
    """Go through the phases and return the document. ``handles`` are known paths of cuBLAS and cuDNN."""
    line = Timeline()
    document = {"schema": "envbuilder/cuda-timeline/v1", "phases": line.phases, "facts": line.facts, "error": None}
    try:
        library = line.timed("driver open", lambda: ctypes.CDLL(driver))
    except OSError as error:
        document["error"] = {"call": "dlopen", "code": None, "text": str(error)}
        return document
    try:
        _driver_phases(library, line)
        for name, path in handles:
            _handle(line, name, path)
    except DriverError as error:
        document["error"] = {"call": error.name, "code": error.code, "text": str(error)}
    return document


def _driver_phases(library: Any, line: Timeline) -> None:
    version, count = ctypes.c_int(0), ctypes.c_int(0)
    line.timed("cuInit", lambda: call(library, "cuInit", 0))
    call(library, "cuDriverGetVersion", ctypes.byref(version))
    line.facts["cuda"] = f"{version.value // 1000}.{version.value % 1000 // 10}"
    line.timed("device enumeration", lambda: call(library, "cuDeviceGetCount", ctypes.byref(count)))
    line.facts["gpus"] = [_device(library, index) for index in range(count.value)]
    line.facts["cache_before"] = cache_bytes()
    for index in range(count.value):
        _context(library, line, index)
    line.facts["cache_after"] = cache_bytes()


def _device(library: Any, index: int) -> dict[str, Any]:
    device, major, minor = ctypes.c_int(0), ctypes.c_int(0), ctypes.c_int(0)
    name = ctypes.create_string_buffer(128)
    call(library, "cuDeviceGet", ctypes.byref(device), index)
    call(library, "cuDeviceGetName", name, 128, device)
    call(library, "cuDeviceGetAttribute", ctypes.byref(major), 75, device)
    call(library, "cuDeviceGetAttribute", ctypes.byref(minor), 76, device)
    return {"name": name.value.decode(), "compute_capability": f"{major.value}.{minor.value}"}


def _context(library: Any, line: Timeline, index: int) -> None:
    def timed(name: str, function: str, *arguments: Any) -> None:
        line.timed(f"{name} (GPU {index})", lambda: call(library, function, *arguments))

    device, context = ctypes.c_int(0), ctypes.c_void_p()
    call(library, "cuDeviceGet", ctypes.byref(device), index)
    timed("primary context", "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call(library, "cuCtxSetCurrent", context)
    free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
    call(library, "cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    module, function, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64(0)
    timed("PTX compile", "cuModuleLoadData", ctypes.byref(module), PTX)
    call(library, "cuModuleGetFunction", ctypes.byref(function), module, b"twice")
    timed("first allocation", "cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(BYTES))
    for name in ("first launch", "second launch"):
        line.timed(f"{name} (GPU {index})", lambda: _launch(library, function, memory))
    right = _right(library, function, memory)
    line.facts["gpus"][index].update(memory=total.value, free_with_context=free.value, kernel_right=right)
    call(library, "cuMemFree_v2", memory)


def _launch(library: Any, function: Any, memory: Any) -> None:
    pointer = ctypes.c_void_p(ctypes.addressof(memory))
    arguments = (ctypes.c_void_p * 1)(pointer)
    call(library, "cuLaunchKernel", function, 1, 1, 1, WARP, 1, 1, 0, None, arguments, None)
    call(library, "cuCtxSynchronize")


def _right(library: Any, function: Any, memory: Any) -> bool:
    """Run the kernel once on known numbers and compare: the context has to compute, not only to open."""
    values = (ctypes.c_float * WARP)(*[0.5 * index for index in range(WARP)])
    back = (ctypes.c_float * WARP)()
    size = ctypes.c_size_t(ctypes.sizeof(values))
    call(library, "cuMemcpyHtoD_v2", memory, values, size)
    _launch(library, function, memory)
    call(library, "cuMemcpyDtoH_v2", back, memory, size)
    return list(back) == [float(index) for index in range(WARP)]


def _handle(line: Timeline, name: str, path: str) -> None:
    """Open cuBLAS or cuDNN and make a handle, as a framework does at the first product or convolution."""
    create = {"cuBLAS": "cublasCreate_v2", "cuDNN": "cudnnCreate"}[name]
    handle = ctypes.c_void_p()
    try:
        library = line.timed(name + " open", lambda: ctypes.CDLL(path))
    except OSError as error:
        line.facts[name] = str(error)
        return
    line.timed(name + " handle", lambda: call(library, create, ctypes.byref(handle)))


def default_handles() -> list[tuple[str, str]]:
    """Return cuBLAS and cuDNN of this Python's CUDA wheels; empty if there are none."""
    found = []
    for name, pattern in (("cuBLAS", "*/lib/libcublas.so.*"), ("cuDNN", "*/lib/libcudnn.so.*")):
        paths = [path for root in sys.path for path in sorted(glob.glob(os.path.join(root, "nvidia", pattern)))]
        found += [(name, path) for path in paths[:1]]
    return found


if __name__ == "__main__":
    print(json.dumps(run(handles=default_handles()), indent=2))
