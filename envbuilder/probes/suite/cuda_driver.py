"""Ask the driver by ctypes (NVML and the CUDA driver), never the framework that is under test."""

from __future__ import annotations

import ctypes
import functools
import glob
import os
import re
from collections.abc import Callable
from typing import Any, TypeVar

from . import tensorflow_install
from .result import Answer, Facts, Finding, finding, skipped

_Value = TypeVar("_Value")

NO_DRIVER = "no NVIDIA driver on this host"

# CUresult values of cuInit, devices, contexts, memory and modules (cuda.h), and the code of the finding for each.
RESULTS = {
    2: ("CUDA_ERROR_OUT_OF_MEMORY", "GPU_MEMORY"),
    3: ("CUDA_ERROR_NOT_INITIALIZED", "GPU_NOT_VISIBLE"),
    34: ("CUDA_ERROR_STUB_LIBRARY", "STUB_LIBCUDA"),
    35: ("CUDA_ERROR_INSUFFICIENT_DRIVER", "DRIVER_TOO_OLD"),
    46: ("CUDA_ERROR_DEVICE_UNAVAILABLE", "GPU_NOT_VISIBLE"),
    100: ("CUDA_ERROR_NO_DEVICE", "GPU_NOT_VISIBLE"),
    101: ("CUDA_ERROR_INVALID_DEVICE", "GPU_NOT_VISIBLE"),
    200: ("CUDA_ERROR_INVALID_IMAGE", "NO_KERNEL_IMAGE"),
    209: ("CUDA_ERROR_NO_BINARY_FOR_GPU", "NO_KERNEL_IMAGE"),
    214: ("CUDA_ERROR_ECC_UNCORRECTABLE", "GPU_ERRORS"),
    218: ("CUDA_ERROR_INVALID_PTX", "NO_KERNEL_IMAGE"),
    221: ("CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "MISSING_LIBRARY"),
    222: ("CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "PTX_TOO_NEW"),
    223: ("CUDA_ERROR_JIT_COMPILATION_DISABLED", "NO_KERNEL_IMAGE"),
    802: ("CUDA_ERROR_SYSTEM_NOT_READY", "GPU_NOT_VISIBLE"),
    803: ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "DRIVER_MISMATCH"),
    804: ("CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "DRIVER_FORWARD_COMPAT"),
    999: ("CUDA_ERROR_UNKNOWN", "GPU_NOT_VISIBLE"),
}
STUB = 34

FIXES = {
    "GPU_MEMORY": "end the processes that hold the GPU's memory; nvidia-smi lists them",
    "GPU_ERRORS": "reset the GPU or take it out of service; see nvidia-smi -q",
    "NO_KERNEL_IMAGE": "use a TensorFlow that was built for this GPU",
    "MISSING_LIBRARY": "mount libnvidia-ptxjitcompiler.so.1 of the driver: start the container with --gpus all",
    "GPU_NOT_VISIBLE": "start the container with --gpus all, and check the driver on the host with nvidia-smi",
    "PTX_TOO_NEW": "use a newer driver, or a TensorFlow that was built with an older CUDA",
    "DRIVER_TOO_OLD": "use a newer driver, or an environment built with an older CUDA",
    "DRIVER_MISMATCH": "the kernel module and the user-space driver differ: reboot, or mount the matching libcuda",
    "DRIVER_FORWARD_COMPAT": "remove the cuda-compat package from the image; this GPU does not support it",
    "STUB_LIBCUDA": "take the toolkit's stubs folder off the loader's path",
}


def meaning(result: int) -> tuple[str, str]:
    """Return the name of a CUresult, and the code of its finding."""
    return RESULTS.get(result, (f"CUresult {result}", "GPU_NOT_VISIBLE"))


class DriverState:
    """What the driver reports: version, CUDA version, GPUs; ``result`` is that of cuInit (None without a library)."""

    def __init__(self) -> None:
        self.nodes = device_nodes()
        self.kernel_module = kernel_module()
        self.library: str | None = None
        self.result: int | None = None
        self.cuda: str | None = None
        self.version: str | None = None
        self.gpus: list[dict[str, Any]] = []
        self.count = 0
        self.nvml: int | None = None

    @property
    def present(self) -> bool:
        return bool(self.nodes or self.kernel_module or self.library or self.nvml is not None)


def device_nodes() -> list[str]:
    """Return the GPU device nodes (``/dev/nvidia0``), and that of WSL."""
    return sorted(path for path in glob.glob("/dev/nvidia[0-9]*") + glob.glob("/dev/dxg"))


def kernel_module() -> str | None:
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8") as stream:
            found = re.search(r"(?:Kernel Module|x86_64|aarch64)\s+(?:for \S+\s+)?([0-9]+\.[0-9.]+)", stream.read())
            return found.group(1) if found else None
    except OSError:
        return None


def read_state() -> DriverState:
    """Ask NVML and the CUDA driver; an absent one raises nothing."""
    seen = DriverState()
    _ask_nvml(seen)
    _ask_cuda(seen)
    seen.version = seen.version or seen.kernel_module
    return seen


def opened(name: str) -> Any:
    """Open a library as TensorFlow would find it; None if there is none, or it does not open."""
    path = tensorflow_install.located(name)
    try:
        return None if path is None else ctypes.CDLL(path)
    except OSError:
        return None


def _ask_nvml(seen: DriverState) -> None:
    library = opened("libnvidia-ml.so.1")
    if library is None:
        return
    seen.nvml = library.nvmlInit_v2()
    if seen.nvml != 0:
        return
    text = ctypes.create_string_buffer(96)
    if library.nvmlSystemGetDriverVersion(text, 96) == 0:
        seen.version = text.value.decode()
    seen.gpus = _each_gpu(_describe)
    library.nvmlShutdown()


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def _describe(library: Any, handle: Any) -> dict[str, Any]:
    name, uuid = ctypes.create_string_buffer(96), ctypes.create_string_buffer(96)
    major, minor, persistence = ctypes.c_int(0), ctypes.c_int(0), ctypes.c_int(-1)
    _call(library, "nvmlDeviceGetName", handle, name, 96)
    _call(library, "nvmlDeviceGetUUID", handle, uuid, 96)
    _call(library, "nvmlDeviceGetCudaComputeCapability", handle, ctypes.byref(major), ctypes.byref(minor))
    _call(library, "nvmlDeviceGetPersistenceMode", handle, ctypes.byref(persistence))
    is_persistent = {0: False, 1: True}.get(persistence.value)
    return dict(_gpu(name, uuid, (major, minor), _memory_of(library, handle).total), persistence=is_persistent)


def _gpu(name: Any, uuid: Any, capability: tuple[Any, Any], memory: int) -> dict[str, Any]:
    return {
        "name": name.value.decode(),
        "uuid": uuid.value.decode(),
        "compute_capability": "{0.value}.{1.value}".format(*capability),
        "memory": int(memory),
        "persistence": None,
    }


def _call(library: Any, name: str, *arguments: Any) -> Any:
    """Call a function that this library may lack: then None."""
    function = getattr(library, name, None)
    return None if function is None else function(*arguments)


def _ask_cuda(seen: DriverState) -> None:
    library = opened("libcuda.so.1")
    if library is None:
        return
    seen.library = library._name
    if not hasattr(library, "cuInit"):
        seen.result = STUB  # it is not a driver
        return
    seen.result = library.cuInit(0)
    version = ctypes.c_int(0)
    if library.cuDriverGetVersion(ctypes.byref(version)) == 0 and version.value:
        seen.cuda = f"{version.value // 1000}.{version.value % 1000 // 10}"
    if seen.result == 0:
        count = ctypes.c_int(0)
        seen.result = library.cuDeviceGetCount(ctypes.byref(count))
        seen.count = count.value
    if not seen.gpus:
        seen.gpus = [_by_cuda(library, device) for device in range(seen.count)]


def _by_cuda(library: Any, device: int) -> dict[str, Any]:
    """Describe a GPU by the CUDA driver, if NVML does not."""
    name, uuid = ctypes.create_string_buffer(96), ctypes.create_string_buffer(1)
    major, minor, memory = ctypes.c_int(0), ctypes.c_int(0), ctypes.c_size_t(0)
    library.cuDeviceGetName(name, 96, device)
    library.cuDeviceGetAttribute(ctypes.byref(major), 75, device)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
    library.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)
    _call(library, "cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    return _gpu(name, uuid, (major, minor), memory.value)


def without_gpu(seen: DriverState, facts: Facts) -> Answer | None:
    """Return the result of a check that needs a GPU of the driver if there is none; None if there is one."""
    if not seen.present:
        return skipped(NO_DRIVER, expected="an NVIDIA driver")
    if seen.result != 0 or not seen.count:
        return skipped("the driver has no GPU; see the check 'driver'")
    return None


def without_computing_gpu(seen: DriverState, facts: Facts) -> Answer | None:
    """Return the same for a GPU that computes. It need not be visible to this process: NVML lists hidden ones."""
    if seen.present and facts.get("simulated"):
        return skipped("a simulated driver cannot compute")
    return None if seen.gpus else without_gpu(seen, facts)


def without_several(seen: DriverState, facts: Facts) -> Answer | None:
    nothing = without_computing_gpu(seen, facts)
    return nothing or (skipped("one GPU: there is nothing to share") if seen.count < 2 else None)


def _guard(without: Callable[[DriverState, Facts], Answer | None]) -> Callable[..., Callable[..., Answer]]:
    """Return a decorator of checks: it adds what the driver reports, or skips the check."""

    def decorate(check: Callable[..., Answer]) -> Callable[..., Answer]:
        @functools.wraps(check)
        def guarded(facts: Facts, **arguments: Any) -> Answer:
            seen = read_state()
            return without(seen, facts) or check(facts, seen, **arguments)

        return guarded

    return decorate


on_driver, on_gpu, on_gpus = map(_guard, (without_gpu, without_computing_gpu, without_several))


def refused(result: int, subject: str, text: str, requires: str = "success") -> Finding:
    name, code = meaning(result)
    fix = "end the process that holds the GPU exclusively; nvidia-smi lists it" if result == 46 else FIXES.get(code, "")
    return finding(code, subject, f"{text} {name} ({result})", requires, name, fix)


def in_context(library: Any, device: int, name: str, action: Callable[[], int]) -> tuple[str, int]:
    """Run an action in the primary context of a GPU; return the call that failed and its result, or ('', 0)."""
    context = ctypes.c_void_p()
    result = library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    if result != 0:
        return "cuDevicePrimaryCtxRetain", int(result)
    try:
        result = library.cuCtxPushCurrent_v2(context)
        if result != 0:
            return "cuCtxPushCurrent", int(result)
        result = action()
        library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
        return (name, int(result)) if result else ("", 0)
    finally:
        library.cuDevicePrimaryCtxRelease_v2(device)


def numbers(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"[0-9]+", text)]


def memory_used() -> list[int]:
    return [int(memory.used) for memory in _each_gpu(_memory_of)]


def _memory_of(library: Any, handle: Any) -> _Memory:
    memory = _Memory()
    _call(library, "nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
    return memory


def error_counters() -> dict[str, int]:
    """Return uncorrected ECC errors and remapped rows of every GPU, and Xid lines if the kernel log can be read."""
    found = {
        f"GPU {index} {name}": count
        for index, errors in enumerate(_each_gpu(_errors_of))
        for name, count in errors.items()
    }
    xids = _xids()
    return found if xids is None else dict(found, **{"Xid lines": xids})


def _errors_of(library: Any, handle: Any) -> dict[str, int]:
    found, ecc, rows = {}, ctypes.c_ulonglong(0), [ctypes.c_uint(0) for _ in range(4)]
    # Uncorrected (1), since the driver was loaded (0): nvml.h, nvmlMemoryErrorType_t and nvmlEccCounterType_t.
    if _call(library, "nvmlDeviceGetTotalEccErrors", handle, 1, 0, ctypes.byref(ecc)) == 0:
        found["uncorrected ECC"] = ecc.value
    # Corrected and uncorrected ones, whether one is pending, whether one failed.
    if _call(library, "nvmlDeviceGetRemappedRows", handle, *map(ctypes.byref, rows)) == 0:
        found["remapped rows"] = rows[1].value
    return found


def _xids() -> int | None:
    """Return the number of Xid messages of the driver in the kernel log; None if the log cannot be read."""
    try:
        descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    count = 0
    try:
        while True:
            count += b"NVRM: Xid" in os.read(descriptor, 8192)
    except OSError:
        return count
    finally:
        os.close(descriptor)


class _Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong), ("instances", ctypes.c_uint * 2)]


def contexts_of_this_process() -> list[int]:
    """Return the number of contexts of this process on each GPU (NVML has process ids from outside the container)."""
    return _each_gpu(_contexts_on)


def _contexts_on(library: Any, handle: Any) -> int:
    room, rows = ctypes.c_uint(64), (_Process * 64)()
    if _call(library, "nvmlDeviceGetComputeRunningProcesses_v3", handle, ctypes.byref(room), rows) != 0:
        return 0
    own = [row for row in rows[: room.value] if row.pid == os.getpid()]
    return len(own) or room.value


def _each_gpu(ask: Callable[[Any, Any], _Value]) -> list[_Value]:
    library = opened("libnvidia-ml.so.1")
    if library is None or library.nvmlInit_v2() != 0:
        return []
    count = ctypes.c_uint(0)
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    answers = []
    for index in range(count.value):
        handle = ctypes.c_void_p()
        if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == 0:
            answers.append(ask(library, handle))
    library.nvmlShutdown()
    return answers
