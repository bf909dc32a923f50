"""Load checks: every library that TensorFlow opens at run time is found where it looks, and opens."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Sequence

from . import framework
from .answer import Answer, Facts, Finding, finding, judged, measure, skipped
from .elf import Elf, NotElfError

FIX = "install the package that brings it, or put its folder on the loader's path"
MISSING = re.compile(r"(lib[\w.+-]+\.so[\w.]*): cannot open shared object file")
DAMAGED = re.compile(r"(?P<path>[^\s:]+): (?:file too short|invalid ELF header|cannot read file data)")
WRONG_VERSION = re.compile(r"version `?([\w.]+)'? not found")


def opened(facts: Facts) -> Answer:
    """Open each run-time library by name in TensorFlow's order, where its own code would find it."""
    names = list(facts.get("libraries") or ())
    if not names:
        return skipped("this build opens no CUDA libraries") if facts.get("flavor") == "cpu" else _unknown()
    search = framework.new_search()
    objects = framework.callers(search)
    findings, lines = [], []
    for name in names:
        path, tried = framework.find(search, name, objects)
        problem = _absent(name, tried) if path is None else _try(name, path)
        if problem is not None:
            findings.append(problem)
        lines.append("{0} → {1}".format(name, path or "not found"))
    return judged(
        findings,
        "open: " + " ".join(names),
        "\n".join(lines),
        measurements={"libraries": measure(len(names) - len(findings), "1")},
    )


def _unknown() -> Answer:
    return skipped("the catalogue does not say which libraries this build opens")


def _absent(name: str, tried: Sequence[str]) -> Finding:
    """Name what is missing; where a wheel has it in a folder that is not searched, that is another mistake."""
    misplaced = elsewhere(name, "one of: " + ", ".join(tried))
    if misplaced is not None:
        return misplaced
    return finding(
        "MISSING_LIBRARY",
        name,
        "{0} is nowhere that TensorFlow looks".format(name),
        requires=name,
        found="tried: " + ", ".join(tried),
        fix=FIX,
    )


def elsewhere(name: str, requires: str) -> Finding | None:
    """Say that a wheel has a library that was not found, in a folder that is not searched; None where none has."""
    places = [os.path.join(folder, name) for folder in framework.wheel_folders()]
    there = next((path for path in places if os.path.exists(path)), None)
    if there is None:
        return None
    return finding(
        "LIBRARY_PATH",
        name,
        "{0} is installed, but not where this build looks".format(name),
        requires=requires,
        found=there,
        fix="put {0} on LD_LIBRARY_PATH, or use a release that looks there".format(os.path.dirname(there)),
    )


def _try(name: str, path: str) -> Finding | None:
    try:
        ctypes.CDLL(path)
    except OSError as error:
        text = str(error)
        lacks = MISSING.search(text)
        if lacks:
            needed = "{0}, which {1} needs, is absent".format(lacks.group(1), name)
            return finding("MISSING_LIBRARY", lacks.group(1), needed, requires=lacks.group(1), found=text, fix=FIX)
        damaged = DAMAGED.search(text)
        if damaged:
            return broken(name, damaged.group("path"), text)
        if WRONG_VERSION.search(text) and "GLIBC" in text:
            return finding("GLIBC_TOO_OLD", name, text, found=text, fix="use a newer base image")
        return finding("CUDA_MISMATCH", name, "{0} does not load: {1}".format(name, text), found=text)
    return None


def broken(name: str, path: str, said: str) -> Finding:
    """Name the file that is damaged: what asked for it is not to blame."""
    leaf = os.path.basename(path)
    text = "{0} is damaged{1}".format(leaf, "" if leaf == name else ", and {0} needs it".format(name))
    return finding("MISSING_LIBRARY", leaf, text, leaf, said, "install the package that brings it anew")


def cudnn(facts: Facts) -> Answer:
    """Ask the cuDNN that TensorFlow would open for its version: same major as the build, minor not older."""
    name = next((one for one in facts.get("libraries") or () if one.startswith("libcudnn.so")), None)
    if name is None:
        return skipped("this build opens no cuDNN")
    search = framework.new_search()
    path, _ = framework.find(search, name, framework.callers(search))
    if path is None:
        return skipped("{0} is not there; the check of the libraries says so".format(name))
    loaded, said = ask_cudnn(path)
    problem = cudnn_conflict(path, loaded, facts) if loaded else _silent(name, path, said)
    seen = "{0} at {1}".format(loaded or "no version", path)
    return judged([problem] if problem else [], "cuDNN {0} or a newer minor".format(facts.get("built_cudnn")), seen)


def _silent(name: str, path: str, said: str) -> Finding:
    """Name a cuDNN that opens and does not answer: since 8 it is in parts, and the one in front loads the others.

    Where it says which library a part lacks (``libnvrtc.so`` by 8.7's wheels, which have it under another name),
    that one is the missing library.
    """
    lacks = MISSING.search(said)
    if lacks:
        text = "{0}, which a part of {1} needs, is absent: {2}".format(lacks.group(1), path, said.strip())
        return finding("MISSING_LIBRARY", lacks.group(1), text, requires=lacks.group(1), found=said.strip(), fix=FIX)
    text = "{0} opens and cannot say its version: parts of cuDNN are missing or of another version".format(path)
    return finding("MISSING_LIBRARY", name, text, "a whole cuDNN", path, "install cuDNN anew, all of its parts")


def cudnn_conflict(path: str, loaded: str | None, facts: Facts) -> Finding | None:
    """Return the finding where this cuDNN does not serve the build, None where it does or nothing is known."""
    built = facts.get("built_cudnn")
    if not built or not loaded:
        return None
    want = tuple(int(part) for part in built.split(".")[:2])
    have = tuple(int(part) for part in loaded.split(".")[:2])
    if have[0] == want[0] and have >= want:
        return None
    return finding(
        "CUDNN_MISMATCH",
        "cuDNN {0}".format(loaded),
        "TensorFlow was built with cuDNN {0} and would load {1} from {2}".format(built, loaded, path),
        requires="{0}.x with x at least {1}".format(want[0], want[1] if len(want) > 1 else 0),
        found="{0} at {1}".format(loaded, path),
        fix="install cuDNN {0} or a newer minor, and leave no other in front of it".format(built),
    )


def cudnn_version(path: str) -> str | None:
    """Return a cuDNN library's version as text, None where it cannot be asked."""
    return ask_cudnn(path)[0]


def ask_cudnn(path: str) -> tuple[str | None, str]:
    """Ask a cuDNN library for its version in a process of its own: its text or None, and what it said of a failure."""
    import subprocess
    import sys

    code = (
        "import ctypes, sys; ask = ctypes.CDLL(sys.argv[1]).cudnnGetVersion;ask.restype = ctypes.c_size_t; print(ask())"
    )
    command = [sys.executable, "-c", code, path]
    try:
        done = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        text, said = done.communicate(timeout=60)
        return cudnn_text(int(text)), ""
    except ValueError:
        return None, said
    except subprocess.TimeoutExpired:
        done.kill()
        done.communicate()
        return None, "no answer within 60 s"
    except OSError as error:
        return None, str(error)


def cudnn_text(number: int) -> str:
    """Write ``cudnnGetVersion()`` as text: 8907 is 8.9.7, 90300 is 9.3.0 (the scheme changed with 9)."""
    if number >= 10000 * 9:
        return "{0}.{1}.{2}".format(number // 10000, number // 100 % 100, number % 100)
    return "{0}.{1}.{2}".format(number // 1000, number // 100 % 10, number % 100)


def _runtime_version(path: str, name: str) -> str:
    """Ask a CUDA run time for its version; without a driver those of CUDA 11 refuse, and its own soname says the major.

    The file's own: under which name it was found says what was asked for, not what it is.
    """
    value = ctypes.c_int(0)
    ask = getattr(ctypes.CDLL(path), "cudaRuntimeGetVersion", None)
    if ask is not None and ask(ctypes.byref(value)) == 0 and value.value:
        return "{0}.{1}".format(value.value // 1000, value.value % 1000 // 10)
    try:
        soname = Elf(path).soname or name
    except NotElfError:
        soname = name
    return soname.partition(".so.")[2].partition(".")[0] + " (by its soname)"


def cuda_runtime(facts: Facts) -> Answer:
    """Ask the CUDA run time that TensorFlow would open for its version: same major as the build."""
    name = next((one for one in facts.get("libraries") or () if one.startswith("libcudart.so")), None)
    if name is None:
        return skipped("this build opens no CUDA run time")
    search = framework.new_search()
    path, _ = framework.find(search, name, framework.callers(search))
    if path is None:
        return skipped("{0} is not there; the check of the libraries says so".format(name))
    found = _runtime_version(path, name)
    built = facts.get("built_cuda") or ""
    findings = []
    if built and built.split(".")[0] != found.split(" ")[0].split(".")[0]:
        text = "TensorFlow was built with CUDA {0} and would load the run time of {1}".format(built, found)
        findings.append(
            finding("CUDA_MISMATCH", "CUDA " + found, text, built, found, "install the CUDA it was built with")
        )
    return judged(findings, "CUDA {0}".format(built or "any"), "{0} at {1}".format(found, path))
