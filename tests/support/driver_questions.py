"""Ask the CUDA driver and NVML, and print their answers as JSON: ``python driver_questions.py FOLDER``.

It runs with a real driver and with the simulated one; ``tests/data/driver`` holds what a real one answered, and the
files of machine code and PTX that FOLDER has to hold. Standard library only.
"""

import ctypes
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

BYTES = 1 << 20
PTX = ".version {}\n.target sm_{}\n.address_size 64\n.visible .entry nothing() {{ ret; }}\n"
PTX_VERSIONS = ("6.0", "6.3", "7.0", "7.8", "8.0", "8.8", "9.0", "9.1", "9.9")
PTX_TARGETS = {
    "50": "4.0",
    "75": "6.3",
    "80": "7.0",
    "89": "7.8",
    "90": "7.8",
    "90a": "8.0",
    "100": "8.6",
    "100f": "8.8",
    "120": "8.7",
}
"""Each with the first PTX version that knows it: a compiler writes no older one."""
TEXTS = {
    "empty": b"",
    "words": b"this is no code at all",
    "no version": b".target sm_50\n.address_size 64\n",
    "no target": b".version 6.0\n.address_size 64\n",
    "comment before": b"// nothing\n" + PTX.format("6.0", "50").encode(),
    "two targets": PTX.format("6.0", "50, texmode_independent").encode(),
    "cut ELF": b"\x7fELF" + bytes(60),
    "cut bundle": b"\x50\xed\x55\xba\x01\x00\x10\x00" + bytes(8),
}
VISIBLE = "|-1|0|00|0,0|1|0,1|1,0|0,-1,0| 0|0 |0;|x|GPU-|GPU-0|MIG-0|0,x"
SYMBOLS = (("cuMemAlloc", 12050), ("cuMemAlloc", 2000), ("cuMemAlloc_v2", 12050), ("cuNone", 12050), ("", 12050))

number, other, pointer, size = ctypes.c_int(), ctypes.c_int(), ctypes.c_uint64(), ctypes.c_size_t()
handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(256)


def opened(name: str) -> Any:
    return ctypes.CDLL(name)


def started() -> Any:
    cuda = opened("libcuda.so.1")
    cuda.cuInit(0)
    return cuda


def with_context() -> Any:
    cuda = started()
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(handle), 0)
    cuda.cuCtxSetCurrent(handle)
    return cuda


def before_start(folder: Path) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    cuda = opened("libcuda.so.1")
    answers["cuDriverGetVersion"] = [cuda.cuDriverGetVersion(ctypes.byref(number)), number.value]
    answers["cuDeviceGetCount"] = cuda.cuDeviceGetCount(ctypes.byref(number))
    answers["cuDeviceGet"] = cuda.cuDeviceGet(ctypes.byref(number), 0)
    answers["cuCtxGetCurrent"] = cuda.cuCtxGetCurrent(ctypes.byref(handle))
    answers["cuModuleLoadData"] = cuda.cuModuleLoadData(ctypes.byref(handle), PTX.format("6.0", "50").encode())
    answers["cuInit(1)"] = cuda.cuInit(1)
    answers["cuInit(0)"] = [cuda.cuInit(0), cuda.cuInit(0)]
    return answers


def errors(folder: Path) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    cuda, nvml = started(), opened("libnvidia-ml.so.1")
    for code in range(1000):
        name, sentence = ctypes.c_char_p(), ctypes.c_char_p()
        if cuda.cuGetErrorName(code, ctypes.byref(name)) == 0:
            cuda.cuGetErrorString(code, ctypes.byref(sentence))
            answers[f"CUDA {code}"] = [(one.value or b"").decode() for one in (name, sentence)]
    nvml.nvmlErrorString.restype = ctypes.c_char_p
    answers.update((f"NVML {code}", nvml.nvmlErrorString(code).decode()) for code in [*range(30), 999])
    return answers


def devices(folder: Path) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    cuda = started()
    for device in (0, 1, -1):
        answers[f"cuDeviceGet {device}"] = cuda.cuDeviceGet(ctypes.byref(number), device)
        answers[f"cuDeviceGetName {device}"] = cuda.cuDeviceGetName(text, 96, device)
        answers[f"cuDeviceGetAttribute {device}"] = cuda.cuDeviceGetAttribute(ctypes.byref(number), 75, device)
        answers[f"cuDevicePrimaryCtxRetain {device}"] = cuda.cuDevicePrimaryCtxRetain(ctypes.byref(handle), device)
        answers[f"cuDeviceCanAccessPeer {device}"] = cuda.cuDeviceCanAccessPeer(ctypes.byref(number), 0, device)
    cuda.cuDeviceGetName(text, 5, 0)
    answers["short name"] = text.value.decode()
    answers["attributes"] = {}
    for attribute in range(-1, 150):
        result = cuda.cuDeviceGetAttribute(ctypes.byref(number), attribute, 0)
        answers["attributes"][str(attribute)] = [result, number.value if result == 0 else None]
    cuda.cuDeviceGetPCIBusId(text, 64, 0)
    answers["bus"] = [shape(), cuda.cuDeviceGetByPCIBusId(ctypes.byref(number), text), number.value]
    answers["no bus"] = cuda.cuDeviceGetByPCIBusId(ctypes.byref(number), b"0000:99:00.0")
    return answers


def shape() -> str:
    return re.sub("[0-9a-f]", "x", text.value.decode())


def contexts(folder: Path) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    cuda = started()
    state = (ctypes.byref(number), ctypes.byref(other))
    answers["none"] = [cuda.cuCtxGetCurrent(ctypes.byref(handle)), handle.value]
    answers["without"] = {
        "cuMemAlloc": cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(BYTES)),
        "cuMemGetInfo": cuda.cuMemGetInfo_v2(ctypes.byref(size), ctypes.byref(size)),
        "cuCtxSynchronize": cuda.cuCtxSynchronize(),
        "cuCtxGetDevice": cuda.cuCtxGetDevice(ctypes.byref(number)),
        "cuCtxPopCurrent": cuda.cuCtxPopCurrent_v2(ctypes.byref(handle)),
        "cuStreamCreate": cuda.cuStreamCreate(ctypes.byref(handle), 0),
        "cuModuleLoadData": cuda.cuModuleLoadData(ctypes.byref(handle), PTX.format("6.0", "50").encode()),
    }
    answers["release what was not retained"] = cuda.cuDevicePrimaryCtxRelease_v2(0)
    answers["state before"] = [cuda.cuDevicePrimaryCtxGetState(0, *state), number.value, other.value]
    answers["retain"] = cuda.cuDevicePrimaryCtxRetain(ctypes.byref(handle), 0)
    answers["state retained"] = [cuda.cuDevicePrimaryCtxGetState(0, *state), number.value, other.value]
    answers["retained, not current"] = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(BYTES))
    answers["current"] = [cuda.cuCtxSetCurrent(handle), cuda.cuCtxGetDevice(ctypes.byref(number)), number.value]
    answers["version"] = [cuda.cuCtxGetApiVersion(handle, ctypes.byref(number)), number.value]
    answers["priorities"] = [cuda.cuCtxGetStreamPriorityRange(*state), number.value, other.value]
    answers["flags"] = [cuda.cuCtxGetFlags(ctypes.byref(number)), number.value]
    answers["loading"] = [cuda.cuModuleGetLoadingMode(ctypes.byref(number)), number.value]
    answers["peer"] = cuda.cuCtxEnablePeerAccess(handle, 0)
    answers["released"] = [cuda.cuDevicePrimaryCtxRelease_v2(0), cuda.cuCtxSynchronize()]
    answers["state after"] = [cuda.cuDevicePrimaryCtxGetState(0, *state), number.value, other.value]
    return answers


def memory(folder: Path) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    cuda = with_context()

    def allocated(count: int) -> Any:
        return cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(count))

    total = ctypes.c_size_t()
    cuda.cuMemGetInfo_v2(ctypes.byref(ctypes.c_size_t()), ctypes.byref(total))
    cuda.cuDeviceTotalMem_v2(ctypes.byref(size), 0)
    answers["totals are equal"] = total.value == size.value
    answers["nothing"] = allocated(0)
    answers["more than there is"] = allocated(2 * total.value)
    answers["some"] = [allocated(BYTES), pointer.value % 256]
    block = pointer.value
    answers["middle freed"] = cuda.cuMemFree_v2(ctypes.c_uint64(block + 64))
    answers["freed"] = [cuda.cuMemFree_v2(ctypes.c_uint64(block)), cuda.cuMemFree_v2(ctypes.c_uint64(block))]
    answers["null freed"] = cuda.cuMemFree_v2(ctypes.c_uint64(0))
    answers["host"] = [cuda.cuMemAllocHost_v2(ctypes.byref(handle), ctypes.c_size_t(BYTES)), cuda.cuMemFreeHost(handle)]
    answers["pooled"] = cuda.cuMemAllocAsync(ctypes.byref(pointer), ctypes.c_size_t(BYTES), None)
    return answers


def code(folder: Path) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    cuda = with_context()

    def result(image: bytes) -> Any:
        held = ctypes.create_string_buffer(image, len(image) + 64)
        return cuda.cuModuleLoadData(ctypes.byref(handle), held)

    for target, first in PTX_TARGETS.items():
        for version in PTX_VERSIONS:
            if version >= first:
                answers[f"PTX {version} sm_{target}"] = result(PTX.format(version, target).encode())
    answers.update((name, result(image)) for name, image in TEXTS.items())
    answers.update((path.name, result(path.read_bytes())) for path in sorted(folder.glob("*.*bin")))
    result(PTX.format("6.0", "50").encode())
    function = ctypes.c_void_p()
    answers["function"] = cuda.cuModuleGetFunction(ctypes.byref(function), handle, b"nothing")
    answers["unloaded"] = cuda.cuModuleUnload(handle)
    return answers


def symbols(folder: Path) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    cuda = started()
    for name, version in SYMBOLS:
        function, status = ctypes.c_void_p(), ctypes.c_int(-1)
        arguments = (name.encode(), ctypes.byref(function), version, ctypes.c_uint64(0), ctypes.byref(status))
        answers[f"{name} {version}"] = [cuda.cuGetProcAddress_v2(*arguments), bool(function.value), status.value]
    return answers


def nvml(folder: Path) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    library = opened("libnvidia-ml.so.1")
    answers["before"] = library.nvmlSystemGetDriverVersion(text, 96)
    answers["shutdown before"] = library.nvmlShutdown()
    answers["start"] = [library.nvmlInit_v2(), library.nvmlInit_v2()]
    answers["count"] = [library.nvmlDeviceGetCount_v2(ctypes.byref(number)), number.value]
    answers["driver"] = [library.nvmlSystemGetDriverVersion(text, 96), shape()]
    answers["driver, short"] = library.nvmlSystemGetDriverVersion(text, 4)
    answers["NVML"] = [library.nvmlSystemGetNVMLVersion(text, 96), shape()]
    answers["CUDA"] = [library.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(number)), number.value]
    answers["no such GPU"] = library.nvmlDeviceGetHandleByIndex_v2(9, ctypes.byref(handle))
    library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
    answers["name, short"] = library.nvmlDeviceGetName(handle, text, 4)
    answers["UUID"] = [library.nvmlDeviceGetUUID(handle, text, 96), shape()]
    answers["index"] = [library.nvmlDeviceGetIndex(handle, ctypes.byref(number)), number.value]
    answers["minor"] = [library.nvmlDeviceGetMinorNumber(handle, ctypes.byref(number)), number.value]
    answers["mode"] = [library.nvmlDeviceGetComputeMode(handle, ctypes.byref(number)), number.value]
    answers["ECC"] = [library.nvmlDeviceGetEccMode(handle, ctypes.byref(number), ctypes.byref(other)), number.value]
    answers["errors"] = [library.nvmlDeviceGetTotalEccErrors(handle, 1, 0, ctypes.byref(pointer)), pointer.value]
    answers["MIG"] = [library.nvmlDeviceGetMigMode(handle, ctypes.byref(number), ctypes.byref(other)), number.value]
    memory = (ctypes.c_uint64 * 3)()
    library.nvmlDeviceGetMemoryInfo(handle, memory)
    answers["memory adds up"] = memory[0] == memory[1] + memory[2]
    answers["peer of itself"] = library.nvmlDeviceGetP2PStatus(handle, handle, 0, ctypes.byref(number))
    answers["end"] = [library.nvmlShutdown(), library.nvmlShutdown(), library.nvmlShutdown()]
    return answers


def uuid(folder: Path) -> str:
    library = opened("libnvidia-ml.so.1")
    library.nvmlInit_v2()
    library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
    library.nvmlDeviceGetUUID(handle, text, 96)
    return text.value.decode()


def visible(folder: Path) -> list[int]:
    cuda = opened("libcuda.so.1")
    return [cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(number)), number.value]


def answered(ask: Callable[[Path], Any], folder: Path, **variables: str) -> Any:
    """Run one group in a process of its own: a driver starts once per process."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.environ.update(variables)
        os.write(writer, json.dumps(ask(folder)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        answer = stream.read()
    status = os.waitpid(child, 0)[1]
    return json.loads(answer) if status == 0 else f"ended with status {status}"


if __name__ == "__main__":
    place = Path(sys.argv[1])
    groups = (before_start, errors, devices, contexts, memory, code, symbols, nvml)
    found = {ask.__name__: answered(ask, place) for ask in groups}
    name = answered(uuid, place)
    lists = dict(
        {value: value for value in VISIBLE.split("|")}, uuid=name, prefix=name[:9], twice="0," + name, case=name.lower()
    )
    found["visible"] = {key: answered(visible, place, CUDA_VISIBLE_DEVICES=value) for key, value in lists.items()}
    sys.stdout.write(json.dumps(found, indent=1))
