"""Check the libraries that TensorFlow opens at run time: each is found, opens, and has a version that fits."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence

from . import cuda_driver, tensorflow_install
from .elf import Elf, NotElfError
from .result import Answer, Facts, Finding, finding, judged, measure, skipped

FIX = "install the package that brings it, or put its folder on the loader's path"
UNLISTED = "the catalogue does not list the libraries of this build"
MISSING = re.compile(r"(lib[\w.+-]+\.so[\w.]*): cannot open shared object file")
DAMAGED = re.compile(r"(?P<path>[^\s:]+): (?:file too short|invalid ELF header|cannot read file data)")
WRONG_VERSION = re.compile(r"version `?([\w.]+)'? not found")


def opened(facts: Facts) -> Answer:
    """Open each runtime library by name in TensorFlow's order, where TensorFlow would find it."""
    names = list(facts.get("libraries") or ())
    if not names:
        is_cpu = facts.get("flavor") == "cpu"
        return skipped("this build opens no CUDA libraries" if is_cpu else UNLISTED)
    search = tensorflow_install.new_search()
    objects = tensorflow_install.callers(search)
    findings, lines = [], []
    for name in names:
        path, tried = tensorflow_install.find(search, name, objects)
        problem = _absent(name, tried) if path is None else _try(name, path)
        findings += [problem] if problem else []
        lines.append(f"{name} → {path or 'not found'}")
    measured = {"libraries": measure(len(names) - len(findings), "1")}
    return judged(findings, "open: " + " ".join(names), "\n".join(lines), measurements=measured)


def _absent(name: str, tried: Sequence[str]) -> Finding:
    """Describe a missing library; a copy in a folder that is not searched has another code."""
    text, places = f"TensorFlow does not find {name}", ", ".join(tried)
    misplaced = elsewhere(name, "one of: " + places)
    return misplaced or finding("MISSING_LIBRARY", name, text, name, "tried: " + places, FIX)


def elsewhere(name: str, requires: str) -> Finding | None:
    """Return a finding if a wheel has the library in a folder that is not searched; None otherwise."""
    places = [os.path.join(folder, name) for folder in tensorflow_install.wheel_folders()]
    there = next((path for path in places if os.path.exists(path)), None)
    if there is None:
        return None
    text = f"{name} is installed in a folder that this build does not search"
    fix = f"put {os.path.dirname(there)} on LD_LIBRARY_PATH, or use a release that searches it"
    return finding("LIBRARY_PATH", name, text, requires, there, fix)


def _try(name: str, path: str) -> Finding | None:
    try:
        ctypes.CDLL(path)
    except OSError as error:
        text = str(error)
        if WRONG_VERSION.search(text) and "GLIBC" in text:
            return finding("GLIBC_TOO_OLD", name, text, found=text, fix="use a newer base image")
        code = "MISSING_LIBRARY" if MISSING.search(text) else "CUDA_MISMATCH"
        return _cause(name, text) or finding(code, name, f"{name} does not load: {text}", found=text)
    return None


def _cause(name: str, text: str) -> Finding | None:
    """Return the cause that an error of the loader names: a damaged file, or another library that is missing."""
    damaged, missing = DAMAGED.search(text), MISSING.search(text)
    if damaged:
        leaf = os.path.basename(damaged.group("path"))
        message = f"{leaf} is damaged" + ("" if leaf == name else f", and {name} needs it")
        return finding("MISSING_LIBRARY", leaf, message, leaf, text, "reinstall the package that brings it")
    if missing and missing.group(1) != name:
        message = f"{missing.group(1)}, which {name} needs, is absent"
        return finding("MISSING_LIBRARY", missing.group(1), message, missing.group(1), text, FIX)
    return None


def _listed(stem: str, facts: Facts) -> tuple[str, str | None]:
    """Return the name of a library that the environment lists, or '', and its path, if TensorFlow finds it."""
    name = next((one for one in facts.get("libraries") or () if one.startswith(stem)), "")
    return name, tensorflow_install.located(name) if name else None


def cudnn(facts: Facts) -> Answer:
    name, path = _listed("libcudnn.so", facts)
    if path is None:
        return skipped(f"{name} is missing; see the check 'libraries'" if name else "this build opens no cuDNN")
    loaded, output = ask_cudnn(path)
    problem = cudnn_conflict(path, loaded, facts) if loaded else _silent(name, path, output)
    expected = f"cuDNN {facts.get('built_cudnn')} or a newer minor"
    return judged([problem] if problem else [], expected, f"{loaded or 'no version'} at {path}")


def _silent(name: str, path: str, output: str) -> Finding:
    """Describe a cuDNN that opens and does not answer: since version 8 it has parts, and the first loads the others.

    If it reports which library a part lacks (``libnvrtc.so`` for wheels of 8.7, which have it under another name), that
    one is the missing library.
    """
    text = f"{path} opens without reporting its version: parts of cuDNN are missing or of another version"
    fix = "reinstall cuDNN with all of its parts"
    return _cause(path, output.strip()) or finding("MISSING_LIBRARY", name, text, "a complete cuDNN", path, fix)


def cudnn_conflict(path: str, loaded: str | None, facts: Facts) -> Finding | None:
    """Return a finding if this cuDNN does not fit the build; None if it does, or nothing is known."""
    built = facts.get("built_cudnn")
    if not built or not loaded:
        return None
    want = tuple(int(part) for part in built.split(".")[:2])
    have = tuple(int(part) for part in loaded.split(".")[:2])
    if have[0] == want[0] and have >= want:
        return None
    text = f"TensorFlow was built with cuDNN {built} and would load {loaded} from {path}"
    requires = f"{want[0]}.x with x at least {want[1] if len(want) > 1 else 0}"
    fix = f"install cuDNN {built} or a newer minor, and leave no other in front of it"
    return finding("CUDNN_MISMATCH", f"cuDNN {loaded}", text, requires, f"{loaded} at {path}", fix)


def ask_cudnn(path: str) -> tuple[str | None, str]:
    """Ask a cuDNN library for its version in another process; return it or None, and the text of a failure."""
    code = "import ctypes, sys; ask = ctypes.CDLL(sys.argv[1]).cudnnGetVersion; ask.restype = ctypes.c_size_t"
    code += "; print(ask())"
    command = [sys.executable, "-c", code, path]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=60, check=False
        )
    except subprocess.TimeoutExpired:
        return None, "no answer within 60 s"
    except OSError as error:
        return None, str(error)
    return (cudnn_text(int(done.stdout)), "") if done.stdout.strip().isdigit() else (None, done.stderr)


def cudnn_text(number: int) -> str:
    """Return the value of ``cudnnGetVersion()`` as text: 8907 is 8.9.7, 90300 is 9.3.0 (the scheme changed with 9)."""
    if number >= 10000 * 9:
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    return f"{number // 1000}.{number // 100 % 10}.{number % 100}"


def _runtime_version(path: str, name: str) -> str:
    """Ask a CUDA runtime for its version. Without a driver, those of CUDA 11 refuse: then the soname has the major.

    The soname in the file counts, not the name under which it was found.
    """
    value = ctypes.c_int(0)
    ask = getattr(ctypes.CDLL(path), "cudaRuntimeGetVersion", None)
    if ask is not None and ask(ctypes.byref(value)) == 0 and value.value:
        return f"{value.value // 1000}.{value.value % 1000 // 10}"
    try:
        soname = Elf(path).soname or name
    except NotElfError:
        soname = name
    return soname.partition(".so.")[2].partition(".")[0] + " (by its soname)"


def cuda_runtime(facts: Facts) -> Answer:
    name, path = _listed("libcudart.so", facts)
    if path is None:
        return skipped(f"{name} is missing; see the check 'libraries'" if name else "this build opens no CUDA run time")
    found = _runtime_version(path, name)
    built = facts.get("built_cuda") or ""
    findings = []
    if built and built.split(".")[0] != found.split(" ")[0].split(".")[0]:
        text = f"TensorFlow was built with CUDA {built} and would load the run time of {found}"
        fix = "install the CUDA it was built with"
        findings.append(finding("CUDA_MISMATCH", "CUDA " + found, text, built, found, fix))
    return judged(findings, f"CUDA {built or 'any'}", f"{found} at {path}")


OPENED_IN_LOG = re.compile(r"(?:Successfully opened|Could not load) dynamic library '?(lib[\w.+-]+?)'?(?:;|\s|\Z)")
LIMIT_S = 240.0
PROFILER = "Cupti"
# The opener's functions for what not every GPU needs (GetCuptiDsoHandle), the library, its wheel (or "-cu12").
BESIDES = (
    (PROFILER, "libcupti", "nvidia-cuda-cupti"),
    ("Nvrtc", "libnvrtc", "nvidia-cuda-nvrtc"),
    ("Nccl", "libnccl", "nvidia-nccl"),
    ("Nvshmem", "libnvshmem_host", "nvidia-nvshmem"),
)
# Text in an object that calls such a function: other objects have NCCL linked in and call none of them.
CALLED = {"Nccl": b"nccl_stub", "Nvrtc": b"nvrtc_stub", "Nvshmem": b"nvshmem_stub"}


def by_tensorflow(facts: Facts) -> Answer:
    """Have TensorFlow open each library by name through the function that it opens CUDA with.

    ``load_op_library`` ends in the same ``LoadDynamicLibrary`` of TensorFlow's own code, so the loader searches for
    the name exactly as it does when TensorFlow starts on a GPU: by the RUNPATH of the object that calls.
    """
    names = list(facts.get("libraries") or ())
    if not names:
        return skipped(UNLISTED)
    findings = [found for found in map(_refused, names) if found is not None]
    return judged(findings, "open: " + " ".join(names), "\n".join(mapped(names)))


def _refused(name: str) -> Finding | None:
    import tensorflow as tf

    try:
        tf.load_op_library(name)
    except (tf.errors.NotFoundError, RuntimeError, OSError) as error:
        absent = finding("MISSING_LIBRARY", name, f"TensorFlow cannot open {name}: {error}", name, str(error), FIX)
        return _cause(name, str(error)) or elsewhere(name, "a folder that TensorFlow's own code searches") or absent
    return None


def besides(facts: Facts) -> Answer:
    """Open the libraries that TensorFlow opens only on request, through the functions of its opener.

    A library of a locked package has to exist and to open; others that exist and do not open are warnings. No GPU is
    needed for any of them.
    """
    search = tensorflow_install.new_search()
    objects = tensorflow_install.callers(search)
    if not objects:
        return skipped("TensorFlow has no object that opens libraries")
    functions = _functions(tensorflow_install.openers(objects))
    places = tensorflow_install.wheel_folders() + tensorflow_install.search_path(search, objects)
    there = {stem: _named(stem, places) for function, stem, _ in BESIDES if function in functions}
    findings = []
    for function, stem, wheel in BESIDES:
        refused = [found for found in map(_refused, there.get(stem, ())) if found is not None]
        locked = (name for name, _ in facts.get("locked") or ())  # nvidia-nccl-cu12 for nvidia-nccl
        brings = next((name for name in locked if name == wheel or name.startswith(wheel + "-cu")), "")
        findings += [dict(one, severity="error" if brings else "warning") for one in refused]
        if there.get(stem) == []:
            findings += _not_there(function, stem, "" if _left_out(stem, brings, facts) else brings)
    names = [name for found in there.values() for name in found]
    return judged(findings, "open: " + " ".join(names or ["nothing"]), "\n".join(mapped(names)))


def _left_out(stem: str, wheel: str, facts: Facts) -> bool:
    """Return True if the environment removes a library of a distribution: its file, or its folder."""
    paths = [path for name, path in facts.get("left_out") or () if name == wheel]
    return any(path.endswith("/") or os.path.basename(path).startswith(stem + ".so") for path in paths)


def _not_there(function: str, stem: str, brings: str) -> list[Finding]:
    """Describe a library that is missing although it is locked, or the consequence of a missing CUPTI."""
    if brings:
        text = f"{brings} is locked, and TensorFlow does not find {stem}.so"
        return [finding("MISSING_LIBRARY", stem, text, stem + ".so", "none", FIX)]
    if function == PROFILER:
        text = "CUPTI is missing: TensorFlow's profiler cannot record GPUs"
        return [finding("MISSING_LIBRARY", stem, text, stem + ".so", "none", FIX, severity="warning")]
    return []


def _functions(openers: Sequence[Elf]) -> set[str]:
    """Return the functions of TensorFlow's opener that its own code calls, by the names in its bytes."""
    found = set()
    for one in openers:
        with open(one.path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as image:
            for function, _, _ in BESIDES:
                mark = CALLED.get(function, function.encode())
                if image.find(b"Get" + function.encode() + b"DsoHandle") >= 0 and image.find(mark) >= 0:
                    found.add(function)
    return found


def _named(stem: str, places: Iterable[str]) -> list[str]:
    """Return the names under which these folders have a library: ``libcupti.so.12``."""
    wanted = re.compile(re.escape(stem) + r"\.so\.[0-9.]+\Z")
    held = (name for place in places if os.path.isdir(place) for name in sorted(os.listdir(place)))
    return list(dict.fromkeys(name for name in held if wanted.match(name)))


def mapped(names: Iterable[str]) -> list[str]:
    with open("/proc/self/maps", encoding="utf-8") as stream:
        paths = {line.split(None, 5)[5].strip() for line in stream if len(line.split(None, 5)) > 5}
    return sorted(path for path in paths if os.path.basename(path) in names)


def names_in_log(facts: Facts) -> Answer:
    """Let TensorFlow look for GPUs and log every library that it opens: the environment has to name each."""
    code = "import tensorflow as tf; c = tf.config"
    code += "; getattr(c, 'list_physical_devices', c.experimental.list_physical_devices)('GPU')"
    env = dict(os.environ, TF_CPP_MAX_VLOG_LEVEL="3", TF_CPP_MIN_LOG_LEVEL="0")
    command, null, pipe = [sys.executable, "-c", code], subprocess.DEVNULL, subprocess.PIPE
    done = subprocess.run(command, stdout=null, stderr=pipe, env=env, timeout=LIMIT_S, check=False)
    names = list(dict.fromkeys(OPENED_IN_LOG.findall(done.stderr.decode("utf-8", "replace"))))
    known = set(facts.get("libraries") or ())
    findings = []
    for name in names:
        if known and name not in known and not name.startswith(("libcuda.so", "libnvinfer", "libnccl")):
            text = f"TensorFlow opens {name}, which the environment does not list"
            findings.append(finding("IMAGE_CLAIM", name, text, " ".join(sorted(known)), name))
    if not names:
        return skipped("this release does not log the names")
    more = "" if cuda_driver.read_state().present else " (it stops without a driver)"
    count = {"names": measure(len(names), "1")}
    return judged(findings, "only names that are known", " ".join(names) + more, measurements=count)
