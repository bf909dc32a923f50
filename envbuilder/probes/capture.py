#!/usr/bin/env python3
"""Describe the environment that this runs in, for a report: one file, standard library only, Python 3.6 and newer.

Run it with the Python of your TensorFlow (``python capture.py``) and paste what it prints. It imports TensorFlow, lists
its devices and, with a GPU, computes one small convolution. It leaves out home folders, user and host names, addresses,
tokens, serial numbers, processes and packages that are not from an index.
"""

from __future__ import print_function

import ctypes
import glob
import json
import os
import platform
import re
import socket
import subprocess
import sys
from typing import Any, Dict, Iterator, List, Optional, Tuple

SCHEMA = "envbuilder/capture/v1"
TIME_LIMIT = 180
MOST_LINES = 200

VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_DISABLE_REQUIRE",
    "LD_LIBRARY_PATH", "CUDA_CACHE_PATH", "CUDA_CACHE_MAXSIZE", "CUDA_CACHE_DISABLE", "CUDA_MODULE_LOADING",
    "CUDA_FORCE_PTX_JIT", "TF_FORCE_GPU_ALLOW_GROWTH", "TF_GPU_ALLOCATOR", "TF_CUDNN_USE_AUTOTUNE", "TF_XLA_FLAGS",
    "XLA_FLAGS", "TF_USE_LEGACY_KERAS", "TF_ENABLE_ONEDNN_OPTS",
)  # fmt: skip

DISTRIBUTIONS = ("tensorflow", "tensorflow-gpu", "tensorflow-cpu", "tf-nightly", "tensorflow-macos", "tensorflow-intel",
                 "tf-nightly-gpu", "tf-nightly-cpu", "tensorflow-rocm", "intel-tensorflow")  # fmt: skip
WITHOUT_CUDA = ("tensorflow-cpu", "tensorflow-macos", "tensorflow-intel", "tf-nightly-cpu", "tensorflow-rocm",
                "intel-tensorflow")  # fmt: skip
LIBRARIES = re.compile(r"lib(?:cud|cublas|cufft|curand|cusolver|cusparse|nccl|nvinfer|nvrtc|nvJitLink|nvidia-ml|cupti)")
TELLING = re.compile(
    r"dso_loader|gpu_device|cuda_d|cudart_stub|cuda_platform|cuda_executor|cuda_gpu_executor|cpu_feature|Error|error:"
    r"|Cannot dlopen|Could not|Skipping registering|failed|compute capability|NumPy|protobuf"
)

# Names that are words of the subject or everybody's: taking them out would hide facts and no one.
COMMON_NAMES = ("root", "user", "users", "python", "tensorflow", "nvidia", "cuda", "docker", "ubuntu", "debian", "gpu",
                "runner", "jovyan", "home", "localhost", "linux", "conda", "lib", "local", "build", "admin", "test",
                "host")  # fmt: skip

CHILD = r"""
import json, os, re, sys, ctypes
answer = {}
import tensorflow as tf
version = getattr(tf, "version", None)
answer["tensorflow"] = getattr(version, "VERSION", None) or tf.__version__
answer["git_version"] = str(getattr(version, "GIT_VERSION", ""))
try:
    information = dict(tf.sysconfig.get_build_info())
    names = [name for name in ("cuda_version", "cudnn_version") if name in information]
    answer["built"] = {name: str(information[name]) for name in names}
    answer["is_cuda_build"] = bool(information.get("is_cuda_build", tf.test.is_built_with_cuda()))
except Exception:
    answer["is_cuda_build"] = bool(tf.test.is_built_with_cuda())
try:
    if hasattr(tf, "config") and hasattr(tf.config, "list_physical_devices"):
        devices = tf.config.list_physical_devices()
    else:
        from tensorflow.python.client.device_lib import list_local_devices
        devices = list_local_devices()
    answer["devices"] = [device.device_type for device in devices]
except Exception as error:
    sys.stderr.write("%s: %s\n" % (type(error).__name__, error))
if "GPU" in answer.get("devices", []):
    try:
        with tf.device("/GPU:0"):
            image, kernel = tf.ones((1, 8, 8, 1)), tf.ones((3, 3, 1, 1))
            total = tf.reduce_sum(tf.nn.conv2d(image, kernel, strides=(1, 1, 1, 1), padding="SAME"))
        value = total.numpy() if hasattr(total, "numpy") else tf.compat.v1.Session().run(total)
        answer["computes"] = float(value) == 484.0
    except Exception as error:
        sys.stderr.write("%s: %s\n" % (type(error).__name__, error))
loaded = {}
try:
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.split()[-1]
            name = os.path.basename(path)
            if re.match(r"lib(cudart|cudnn|cublas|cublasLt|cufft|curand|cusolver|cusparse|nccl|cuda)\.so", name):
                loaded[name] = path
except Exception:
    pass
answer["loaded"] = sorted(loaded)
def number(stem, function):
    for name in loaded:
        if name.startswith(stem + ".so"):
            call = getattr(ctypes.CDLL(loaded[name]), function)
            if function == "cudnnGetVersion":
                call.restype = ctypes.c_size_t
                return int(call())
            value = ctypes.c_int()
            return int(value.value) if call(ctypes.byref(value)) == 0 else None
try:
    answer["runtime"] = number("libcudart", "cudaRuntimeGetVersion")
    answer["cudnn"] = number("libcudnn", "cudnnGetVersion")
except Exception:
    pass
print("captured" + json.dumps(answer))
"""


def run(command: List[str], seconds: float = 20, env: Optional[Dict[str, str]] = None) -> str:
    """Run a command and return its output on both streams; an empty text if it cannot run."""
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env)
    except OSError:
        return ""
    try:
        output = process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        output = process.communicate()[0] + b"\nthe time limit of %d s ended this\n" % seconds
    ended = {-4: b"Illegal instruction", -6: b"Aborted", -7: b"Bus error", -9: b"Killed", -11: b"Segmentation fault"}
    return (output + ended.get(process.returncode, b"")).decode("utf-8", "replace")


def content(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(1000000).decode("utf-8", "replace")
    except OSError:
        return ""


def first(pattern: str, text: str) -> Optional[str]:
    found = re.search(pattern, text, re.MULTILINE)
    return found.group(1) if found else None


KEYS = "gh[pousr]_|github_pat_|glpat-|hf_|sk-|xox[abp]-|AKIA|ASIA|eyJ"
"""How the tokens of well-known services begin."""


class Redactor:
    """Removes from texts what identifies a person, a machine or an account."""

    def __init__(self, home: str, user: str, host: str) -> None:
        self.rules = [
            (re.compile(r"[A-Za-z]+://[^/\s:@]+:[^/\s@]+@"), "url-with-credentials://"),
            (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "address-removed"),
            (re.compile(r"(?:/home|/Users|/root/home|/data/home|/mnt/home)/[^/\s:'\"]+"), "~"),
            (re.compile(r"[A-Za-z]:\\+Users\\+[^\\\s:'\"]+"), "~"),
            (re.compile(r"\b(?:GPU|MIG)-[0-9a-fA-F-]{20,}"), "serial-removed"),
            (re.compile(r"\b(?:" + KEYS + r")[A-Za-z0-9_.-]{8,}"), "token-removed"),
            (
                re.compile(r"(?i)\b((?:[a-z]+_)*(?:token|secret|password|passwd|api_?key))(\s*[=:]\s*)\S+"),
                r"\1\2removed",
            ),
            (re.compile(r"\b(?=[A-Za-z+_-]*[0-9])(?=[0-9+_-]*[A-Za-z])[A-Za-z0-9+_-]{40,}\b"), "token-removed"),
            (re.compile(r"(?<![\w.=-])(?:[1-9][0-9]{1,2}\.)(?:[0-9]{1,3}\.){2}[0-9]{1,3}(?![\w.])"), "address-removed"),
            (re.compile(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b"), "address-removed"),
        ]
        if home and home not in ("/", "/root"):
            self.rules.insert(0, (re.compile(re.escape(home)), "~"))
        for name, instead in ((user, "user"), (host, "host"), (host.split(".", maxsplit=1)[0], "host")):
            if len(name) > 2 and name.lower() not in COMMON_NAMES:
                self.rules.append((re.compile(r"(?<![\w])" + re.escape(name) + r"(?![\w])"), instead))

    def __call__(self, text: str) -> str:
        for pattern, instead in self.rules:
            text = pattern.sub(instead, text)
        return text


def system() -> Dict[str, Any]:
    """Describe the system: name, kind, machine, C library, and container or virtual machine."""
    name = first(r"^PRETTY_NAME=[\"']?([^\"'\n]+)", content("/etc/os-release"))
    kind = {"Linux": "linux", "Windows": "windows", "Darwin": "macos"}.get(platform.system())
    if kind == "windows":
        name = "Windows " + platform.release()
    elif kind == "macos":
        name = "macOS " + platform.mac_ver()[0]
    within = content("/proc/1/cgroup") + content("/proc/self/mountinfo")[:20000]
    kernel = platform.release()
    return {
        "os": name,
        "platform": kind,
        "arch": platform.machine() or None,
        "glibc": c_library() if kind == "linux" else None,
        "container": os.path.exists("/.dockerenv") or "docker" in within or "kubepods" in within,
        "wsl": "microsoft" in kernel.lower(),
        "avx": (" avx " in content("/proc/cpuinfo")) if kind == "linux" else None,
    }


def installed() -> Dict[str, str]:
    """Return the packages from an index, by name; a package from a folder or a repository is private."""
    found = {}
    try:
        from importlib import metadata
    except ImportError:
        return scanned()
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if not name or private(distribution.read_text("direct_url.json")):
            continue
        found[re.sub(r"[-_.]+", "-", name).lower()] = distribution.version
    return found


def c_library() -> Optional[str]:
    try:
        ask = ctypes.CDLL(None).gnu_get_libc_version
    except (OSError, AttributeError):
        return None
    ask.restype = ctypes.c_char_p
    return str(ask().decode())


def private(origin: Optional[str]) -> bool:
    """Return True for a package from a folder, a file or a repository of the user."""
    return origin is not None and bool(origin) and not re.search(r"feedstock_root|/croot/|/conda-bld/", origin)


def scanned() -> Dict[str, str]:
    """Return packages by the names of their folders, for Pythons without importlib.metadata."""
    found = {}
    for folder in sys.path:
        for entry in os.listdir(folder) if os.path.isdir(folder) else ():
            match = re.match(r"([A-Za-z0-9_.]+)-([0-9][A-Za-z0-9_.!+]*)(?:-py[0-9.]+)?\.(?:dist|egg)-info$", entry)
            if match and not private(content(os.path.join(folder, entry, "direct_url.json"))):
                found[re.sub(r"[-_.]+", "-", match.group(1)).lower()] = match.group(2)
    return found


def driver() -> Dict[str, Any]:
    """Return what the driver reports of itself and of its GPUs: its management library, else nvidia-smi."""
    table = run(["nvidia-smi"])
    managed, gpus, capabilities = management()
    lines = table.split("Processes:")[0].splitlines()
    version = first(r"Kernel Module(?: for \S+)?\s+([0-9]{3}[0-9.]+)", content("/proc/driver/nvidia/version"))
    result, promised = libcuda()
    return {
        "driver": version or managed or first(r"(?:Driver|KMD) Version:\s*([0-9]{3}[0-9.]+)", table),
        "driver_cuda": first(r"CUDA (?:UMD )?Version:\s*([0-9]+\.[0-9]+)", table) or promised,
        "driver_result": result,
        "gpus": gpus or re.findall(r"^\|\s+[0-9]+\s+([A-Z].{2,40}?)\s+(?:On|Off|N/A)\s+\|", table, re.MULTILINE),
        "compute_capabilities": sorted(set(capabilities)),
        "nvidia_smi": lines[:60] if "NVIDIA-SMI" in table else lines[:3],
    }


def management() -> Tuple[Optional[str], List[str], List[str]]:
    """Ask NVML, which containers have more often than nvidia-smi: driver, names of GPUs, compute capabilities."""
    text, handle, count = ctypes.create_string_buffer(96), ctypes.c_void_p(), ctypes.c_uint()
    major, minor = ctypes.c_int(), ctypes.c_int()
    gpus, capabilities = [], []
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        if library.nvmlInit_v2() or library.nvmlSystemGetDriverVersion(text, 96):
            return None, [], []
        version = text.value.decode()
        library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        for index in range(count.value):
            if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == 0:
                library.nvmlDeviceGetName(handle, text, 96)
                gpus.append(text.value.decode())
                if not library.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor)):
                    capabilities.append("%d.%d" % (major.value, minor.value))
    except (OSError, AttributeError):
        return None, [], []
    return version, gpus, capabilities


def libcuda() -> Tuple[Optional[int], Optional[str]]:
    """Return the result of cuInit (0 is success, None a missing library), and the CUDA that the driver supports."""
    version = ctypes.c_int()
    try:
        library = ctypes.CDLL("libcuda.so.1")
        library.cuDriverGetVersion(ctypes.byref(version))
        result = int(library.cuInit(0))
    except (OSError, AttributeError):
        return None, None
    return result, dotted(version.value)


def toolkit() -> Dict[str, Any]:
    compiler = first(r"release ([0-9]+\.[0-9]+)", run(["nvcc", "--version"]))
    file = content("/usr/local/cuda/version.json") or content("/usr/local/cuda/version.txt")
    lines = [line.strip() for line in run(["ldconfig", "-p"]).splitlines() if LIBRARIES.search(line)]
    version = first(r"([0-9]+\.[0-9]+\.[0-9]+)", file)
    return {"nvcc": compiler, "version_file": version, "libraries": list(on_path())[:160] + lines[:80]}


def on_path() -> Iterator[str]:
    """List CUDA's libraries in the order of the loader: LD_LIBRARY_PATH, the wheels, this Python's own folder."""
    folders = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    for root in sys.path:
        folders += sorted(glob.glob(os.path.join(root, "nvidia", "*", "lib")))
    for folder in [*folders, os.path.join(sys.prefix, "lib")]:
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            path = os.path.join(folder, name)
            if LIBRARIES.match(name) and ".so." in name and os.path.exists(path):
                yield "%s => %s" % (name, path)


def framework() -> Tuple[Dict[str, Any], List[str]]:
    env = dict(os.environ)
    env["TF_CPP_MIN_LOG_LEVEL"] = "0"
    env["TF_CPP_VMODULE"] = "dso_loader=3,gpu_device=1,cuda_diagnostics=3,cuda_platform=3,cuda_driver=1,cuda_dnn=1"
    output = run([sys.executable, "-c", CHILD], TIME_LIMIT, env)  # its end by a signal is a line of the log
    answer, log = {}, []
    for line in output.splitlines():
        if line.startswith("captured{"):
            answer = json.loads(line[len("captured") :])
        else:
            log.append(line.rstrip()[:1000])
    telling = [line for line in log if TELLING.search(line)]
    kept = telling if answer else telling + [line for line in log[-25:] if line not in telling]
    return answer, kept[-MOST_LINES:]


def dotted(number: Optional[int]) -> Optional[str]:
    """Return the number of a runtime as text: 12050 is 12.5."""
    return "%d.%d" % (number // 1000, number % 1000 // 10) if number else None


def dotted_cudnn(number: Optional[int]) -> Optional[str]:
    """Return the number of cuDNN as text: 8907 is 8.9.7, 90300 is 9.3.0."""
    if not number:
        return None
    factor = 10000 if number >= 10000 else 1000
    return "%d.%d.%d" % (number // factor, number % factor // 100, number % 100)


def built_with(answer: Dict[str, Any]) -> Dict[str, str]:
    found = {}
    for name, key in (("cuda", "cuda_version"), ("cudnn", "cudnn_version")):
        text = answer.get("built", {}).get(key, "")
        windows = re.match(r"64_(1[01])([0-9])$", text)
        if windows:
            text = "%s.%s" % windows.groups()
        if re.match(r"[0-9]+(\.[0-9]+){0,2}$", text):
            found[name] = text
    return found


def installer() -> str:
    if os.path.isdir(os.path.join(sys.prefix, "conda-meta")):
        names = os.listdir(os.path.join(sys.prefix, "conda-meta"))
        if any(name.startswith("tensorflow-") for name in names):
            return "conda"
    return "pip"


def tag_of(distribution: str) -> Optional[str]:
    """Return the tag of the installed wheel, such as ``cp311-cp311-manylinux_2_17_x86_64``."""
    name = distribution.replace("-", "_") + "-*.dist-info"
    files = (path for folder in sys.path for path in sorted(glob.glob(os.path.join(folder, name, "WHEEL"))))
    return first(r"^Tag: (\S+)", content(next(files, "")))


def kind_of_build(with_cuda: Any, distribution: Optional[str]) -> Optional[str]:
    if with_cuda is None:
        return "cpu" if distribution in WITHOUT_CUDA else None
    return "gpu" if with_cuda else "cpu"


def wheel(packages: Dict[str, str], part: str) -> Optional[str]:
    return next((packages[name] for name in sorted(packages) if re.match("nvidia-%s(-cu[0-9]+)?$" % part, name)), None)


def capture() -> Dict[str, Any]:
    home = os.path.expanduser("~")
    user = os.environ.get("USER") or os.environ.get("USERNAME") or os.path.basename(home)
    clean = Redactor(home, user, socket.gethostname())
    packages = {clean(name): version for name, version in installed().items()}
    answer, log = framework()
    card, kit = driver(), toolkit()
    distribution = next((name for name in DISTRIBUTIONS if name in packages), None)
    document = {"schema": SCHEMA, "tensorflow": answer.get("tensorflow") or packages.get(str(distribution))}
    document["distribution"] = distribution
    document["build"] = kind_of_build(answer.get("is_cuda_build"), distribution)
    document["install"] = installer() if distribution else None
    document["wheel_tag"] = tag_of(distribution) if distribution else None
    document["git_version"] = answer.get("git_version")
    document["python"] = platform.python_version()
    document.update(system())
    document.update({key: card[key] for key in ("driver", "driver_cuda", "driver_result", "gpus")})
    document["compute_capabilities"] = card["compute_capabilities"]
    document["cuda"] = (
        dotted(answer.get("runtime")) or wheel(packages, "cuda-runtime") or kit["version_file"] or kit["nvcc"]
    )
    document["cudnn"] = dotted_cudnn(answer.get("cudnn")) or wheel(packages, "cudnn")
    document["built"] = built_with(answer)
    document["imports"] = "tensorflow" in answer
    document["devices"] = answer.get("devices", [])
    document["computes"] = answer.get("computes", False)
    document["loaded"] = answer.get("loaded", [])
    document["environment"] = {name: clean(os.environ[name])[:1000] for name in VARIABLES if name in os.environ}
    document["packages"] = packages
    document["libraries"] = [clean(line) for line in kit["libraries"]]
    document["nvidia_smi"] = [clean(line) for line in card["nvidia_smi"]]
    document["log"] = [clean(line) for line in log]
    return document


def main() -> None:
    print(json.dumps(capture(), indent=1, sort_keys=False))


if __name__ == "__main__":
    main()
