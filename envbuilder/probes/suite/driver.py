"""Ask the driver by ctypes for versions and GPUs, never the framework that is under test."""

from __future__ import annotations

import ctypes
import glob
import os
import re
from collections.abc import Callable
from typing import Any, TypeVar

from . import tensorflow_install
from .result import Answer, Facts, Finding, finding, judged, measure, passed, skipped

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
    222: ("CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "PTX_TOO_NEW"),
    802: ("CUDA_ERROR_SYSTEM_NOT_READY", "GPU_NOT_VISIBLE"),
    803: ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "DRIVER_MISMATCH"),
    804: ("CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "DRIVER_FORWARD_COMPAT"),
    999: ("CUDA_ERROR_UNKNOWN", "GPU_NOT_VISIBLE"),
}
STUB = 34
# cudaErrorSymbolNotFound: the result of the runtime after it has accepted the version and state of a driver, for tables
# that only the real driver has. A simulated driver does not have them.
BEYOND_SIMULATION = 500

FIXES = {
    "GPU_MEMORY": "end the processes that hold the GPU's memory; nvidia-smi lists them",
    "GPU_ERRORS": "reset the GPU or take it out of service; see nvidia-smi -q",
    "NO_KERNEL_IMAGE": "use a TensorFlow that was built for this GPU",
    "GPU_NOT_VISIBLE": "start the container with --gpus all, and check the driver on the host with nvidia-smi",
    "PTX_TOO_NEW": "use a newer driver, or a TensorFlow that was built with an older CUDA",
    "DRIVER_TOO_OLD": "use a newer driver, or an environment built with an older CUDA",
    "DRIVER_MISMATCH": "the kernel module and the user-space driver differ: reboot, or mount the matching libcuda",
    "DRIVER_FORWARD_COMPAT": "remove the cuda-compat package from the image; this GPU does not support it",
    "STUB_LIBCUDA": "take the toolkit's stubs folder off the loader's path",
}


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
    """Return the version of the loaded kernel module; None if none is loaded."""
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
    if seen.version is None:
        seen.version = seen.kernel_module
    return seen


def opened(name: str) -> Any:
    """Open a library as TensorFlow would find it; None if there is none, or it does not open."""
    search = tensorflow_install.new_search()
    path, _ = tensorflow_install.find(search, name, tensorflow_install.callers(search))
    if path is None:
        return None
    try:
        return ctypes.CDLL(path)
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
    name = ctypes.create_string_buffer(96)
    uuid = ctypes.create_string_buffer(96)
    major, minor = ctypes.c_int(0), ctypes.c_int(0)
    memory = _Memory()
    persistence = ctypes.c_int(-1)
    _call(library, "nvmlDeviceGetName", handle, name, 96)
    _call(library, "nvmlDeviceGetUUID", handle, uuid, 96)
    _call(library, "nvmlDeviceGetCudaComputeCapability", handle, ctypes.byref(major), ctypes.byref(minor))
    _call(library, "nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
    _call(library, "nvmlDeviceGetPersistenceMode", handle, ctypes.byref(persistence))
    return {
        "name": name.value.decode(),
        "uuid": uuid.value.decode(),
        "compute_capability": "{0}.{1}".format(major.value, minor.value),
        "memory": int(memory.total),
        "persistence": {0: False, 1: True}.get(persistence.value),
    }


def _call(library: Any, name: str, *arguments: Any) -> Any:
    """Call a function that this library may lack: then None."""
    try:
        function = getattr(library, name)
    except AttributeError:
        return None
    return function(*arguments)


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
        seen.cuda = "{0}.{1}".format(version.value // 1000, version.value % 1000 // 10)
    if seen.result == 0:
        count = ctypes.c_int(0)
        seen.result = library.cuDeviceGetCount(ctypes.byref(count))
        seen.count = count.value
    if not seen.gpus:
        seen.gpus = [_by_cuda(library, device) for device in range(seen.count)]


def _by_cuda(library: Any, device: int) -> dict[str, Any]:
    """Describe a GPU by the CUDA driver, if NVML does not."""
    name = ctypes.create_string_buffer(96)
    major, minor = ctypes.c_int(0), ctypes.c_int(0)
    memory = ctypes.c_size_t(0)
    library.cuDeviceGetName(name, 96, device)
    library.cuDeviceGetAttribute(ctypes.byref(major), 75, device)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
    library.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)
    _call(library, "cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    return {
        "name": name.value.decode(),
        "uuid": "",
        "compute_capability": "{0}.{1}".format(major.value, minor.value),
        "memory": int(memory.value),
        "persistence": None,
    }


def identity(facts: Facts) -> Answer:
    """Describe driver and GPUs, and compare the driver with what this environment needs."""
    seen = read_state()
    data = {"driver": seen.version, "cuda": seen.cuda, "gpus": seen.gpus, "nodes": seen.nodes, "count": seen.count}
    if not seen.present:
        if facts.get("gpus_expected"):
            return _invisible(facts, data)
        return skipped(NO_DRIVER, expected="an NVIDIA driver", data=data)
    findings = conflicts(seen, facts) + without_code(seen, facts)
    observed = "driver {0}, CUDA {1}, {2} GPU(s): {3}".format(
        seen.version, seen.cuda, seen.count, ", ".join(gpu["name"] for gpu in seen.gpus) or "none"
    )
    need = "driver {0} or newer".format(facts["minimum_driver"]) if facts.get("minimum_driver") else "a driver"
    return judged(findings, need, observed, data=data, measurements={"gpus": measure(seen.count, "1")})


def _invisible(facts: Facts, data: dict[str, Any]) -> Answer:
    text = "the host has {0} GPU(s) and the container sees none".format(facts["gpus_expected"])
    found = finding("GPU_NOT_VISIBLE", "GPU", text, fix=FIXES["GPU_NOT_VISIBLE"])
    return judged([found], "{0} GPU(s)".format(facts["gpus_expected"]), "no driver", data=data)


def conflicts(seen: DriverState, facts: Facts) -> list[Finding]:
    """Return the findings about this driver and this environment."""
    findings = []
    need = facts.get("minimum_driver")
    old = bool(need and seen.version and numbers(seen.version) < numbers(need))
    if old and carried_forward(seen, facts):
        text = "driver {0} is older than {1}, and a compatibility package brings CUDA {2} to it".format(
            seen.version, need, seen.cuda
        )
        findings.append(
            finding(
                "DRIVER_FORWARD_COMPAT", "driver {0}".format(seen.version), text, need, seen.version, severity="warning"
            )
        )
    elif old:
        text = "driver {0} is older than {1}, the minimum for CUDA {2}".format(seen.version, need, facts.get("cuda"))
        findings.append(
            finding(
                "DRIVER_TOO_OLD", "driver {0}".format(seen.version), text, need, seen.version, FIXES["DRIVER_TOO_OLD"]
            )
        )
    if seen.result not in (0, None) and not findings:
        name, code = RESULTS.get(seen.result, ("CUresult {0}".format(seen.result), "GPU_NOT_VISIBLE"))
        text = "the driver returns {0} ({1})".format(name, seen.result)
        findings.append(finding(code, "libcuda", text, "cuInit succeeds", name, FIXES.get(code, "")))
    if seen.library is None and not findings:
        text = "the container has GPU device nodes or NVML, and no libcuda.so.1"
        findings.append(
            finding("GPU_NOT_VISIBLE", "libcuda.so.1", text, fix="ask the runtime for the compute capability")
        )
    if seen.library and seen.version is None and not findings:
        text = "the driver's version cannot be read: the container has no NVML (libnvidia-ml.so.1)"
        fix = "ask the runtime for the utility capability (NVIDIA_DRIVER_CAPABILITIES=compute,utility)"
        findings.append(finding("GPU_NOT_VISIBLE", "libnvidia-ml.so.1", text, fix=fix))
    if seen.result == 0 and seen.gpus and seen.count != len(seen.gpus) and "CUDA_VISIBLE_DEVICES" not in os.environ:
        text = "NVML sees {0} GPU(s), CUDA {1}".format(len(seen.gpus), seen.count)
        findings.append(finding("GPU_NOT_VISIBLE", "GPU", text, str(len(seen.gpus)), str(seen.count)))
    return findings


def refused(device: int, text: str, result: int) -> Finding:
    """Describe a driver call on a GPU that did not succeed."""
    name, code = RESULTS.get(result, ("CUresult {0}".format(result), "GPU_NOT_VISIBLE"))
    fix = "end the process that holds the GPU exclusively; nvidia-smi lists it" if result == 46 else FIXES.get(code, "")
    message = "GPU {0}: {1}: {2} ({3})".format(device, text, name, result)
    return finding(code, "GPU {0}".format(device), message, "success", name, fix)


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


def without_gpu(seen: DriverState, expected: str) -> Answer | None:
    """Return the result of a check that needs a GPU if the driver has none; None if it has one."""
    if not seen.present:
        return skipped(NO_DRIVER, expected=expected)
    if seen.result != 0 or not seen.count:
        return skipped("the driver has no GPU; see the check 'driver'")
    return None


def without_code(seen: DriverState, facts: Facts) -> list[Finding]:
    """Return a finding for each GPU for which this build has neither machine code nor PTX that can be compiled."""
    cubins, ptx = facts.get("cubins") or (), facts.get("ptx") or ()
    if not cubins and not ptx:
        return []
    findings = []
    for gpu in seen.gpus:
        capability = numbers(gpu["compute_capability"])
        runs = any(numbers(one)[0] == capability[0] and numbers(one) <= capability for one in cubins)
        if not runs and not any(numbers(one) <= capability for one in ptx):
            text = "this TensorFlow holds neither machine code nor PTX for {0} ({1})".format(
                gpu["name"], gpu["compute_capability"]
            )
            held = "machine code {0}; PTX {1}".format(" ".join(cubins) or "none", " ".join(ptx) or "none")
            fix = "take a TensorFlow that was built for this GPU"
            findings.append(finding("NO_KERNEL_IMAGE", gpu["name"], text, gpu["compute_capability"], held, fix))
    return findings


def carried_forward(seen: DriverState, facts: Facts) -> bool:
    """Return True if libcuda works and has the toolkit's CUDA although its kernel module is older."""
    if seen.result != 0 or not seen.cuda or not facts.get("cuda"):
        return False
    return numbers(seen.cuda)[0] >= numbers(facts["cuda"])[0]


def runtime_accepts(facts: Facts) -> Answer:
    """Ask the CUDA runtime that TensorFlow loads whether this driver is new enough."""
    seen = read_state()
    if not seen.present:
        return skipped(NO_DRIVER)
    name = next((one for one in facts.get("libraries") or () if one.startswith("libcudart.so")), None)
    library = opened(name) if name else None
    if library is None:
        return skipped("there is no CUDA runtime")
    count = ctypes.c_int(0)
    result = library.cudaGetDeviceCount(ctypes.byref(count))
    library.cudaGetErrorString.restype = ctypes.c_char_p
    text = library.cudaGetErrorString(result).decode()
    if result == 0:
        return passed("cudaGetDeviceCount succeeds", "{0} device(s)".format(count.value))
    if facts.get("simulated") and result == BEYOND_SIMULATION and seen.result == 0:
        return skipped("the runtime accepted the driver's version; a simulated driver cannot do more")
    _, code = RESULTS.get(result, ("", "GPU_NOT_VISIBLE"))
    found = finding(code, name, text, "success", "cudaError {0}".format(result), FIXES.get(code, ""))
    return judged([found], "cudaGetDeviceCount succeeds", text)


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
    found = {}
    for index, (ecc, rows) in enumerate(_each_gpu(_errors_of)):
        if ecc is not None:
            found["GPU {0} uncorrected ECC".format(index)] = ecc
        if rows is not None:
            found["GPU {0} remapped rows".format(index)] = rows
    xids = _xids()
    if xids is not None:
        found["Xid lines"] = xids
    return found


def _errors_of(library: Any, handle: Any) -> tuple[int | None, int | None]:
    ecc, corrected, uncorrected = ctypes.c_ulonglong(0), ctypes.c_uint(0), ctypes.c_uint(0)
    pending, failed = ctypes.c_uint(0), ctypes.c_uint(0)
    # Uncorrected (1), since the driver was loaded (0): nvml.h, nvmlMemoryErrorType_t and nvmlEccCounterType_t.
    has_ecc = _call(library, "nvmlDeviceGetTotalEccErrors", handle, 1, 0, ctypes.byref(ecc)) == 0
    places = (ctypes.byref(corrected), ctypes.byref(uncorrected), ctypes.byref(pending), ctypes.byref(failed))
    has_rows = _call(library, "nvmlDeviceGetRemappedRows", handle, *places) == 0
    return (int(ecc.value) if has_ecc else None, int(uncorrected.value) if has_rows else None)


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
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


def contexts_of_this_process() -> list[int]:
    """Return the number of contexts of this process on each GPU (NVML has process ids from outside the container)."""
    return list(_each_gpu(_contexts_on))


def _contexts_on(library: Any, handle: Any) -> int:
    room = ctypes.c_uint(64)
    rows = (_Process * 64)()
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
