"""Load checks by TensorFlow's own hands: it opens its run-time libraries itself, and its log says under which names."""

from __future__ import annotations

import mmap
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence

from . import driver, framework
from .answer import Answer, Facts, Finding, finding, judged, measure, skipped
from .elf import Elf
from .libraries import DAMAGED, FIX, MISSING, broken, elsewhere

SAID = re.compile(r"(?:Successfully opened|Could not load) dynamic library '?(lib[\w.+-]+?)'?(?:;|\s|\Z)")
LIMIT_S = 240.0
PROFILER = "Cupti"
# The opener's functions for what not every GPU needs (GetCuptiDsoHandle), the library, its wheel (or "-cu12").
BESIDES = (
    (PROFILER, "libcupti", "nvidia-cuda-cupti"),
    ("Nvrtc", "libnvrtc", "nvidia-cuda-nvrtc"),
    ("Nccl", "libnccl", "nvidia-nccl"),
    ("Nvshmem", "libnvshmem_host", "nvidia-nvshmem"),
)
# What stands in an object that calls such a function: in others NCCL is linked in, and nothing calls any of them.
CALLED = {"Nccl": b"nccl_stub", "Nvrtc": b"nvrtc_stub", "Nvshmem": b"nvshmem_stub"}


def by_tensorflow(facts: Facts) -> Answer:
    """Have TensorFlow open each library by name through the function that it opens CUDA with.

    ``load_op_library`` ends in the same ``LoadDynamicLibrary`` of TensorFlow's own code, so the loader searches for
    the name exactly as it does when TensorFlow starts on a GPU: by the RUNPATH of the object that calls.
    """
    names = list(facts.get("libraries") or ())
    if not names:
        return skipped("the catalogue does not say which libraries this build opens")
    findings = [found for found in map(_refused, names) if found is not None]
    return judged(findings, "open: " + " ".join(names), "\n".join(mapped(names)))


def _refused(name: str) -> Finding | None:
    """Have TensorFlow open a library by name; say why where it cannot."""
    import tensorflow as tf

    try:
        tf.load_op_library(name)
    except (tf.errors.NotFoundError, RuntimeError, OSError) as error:
        damaged = DAMAGED.search(str(error))
        if damaged:
            return broken(name, damaged.group("path"), str(error))
        lacks = MISSING.search(str(error))
        subject = lacks.group(1) if lacks else name
        text = "TensorFlow cannot open {0}: {1}".format(name, error)
        absent = finding("MISSING_LIBRARY", subject, text, name, str(error), FIX)
        misplaced = elsewhere(name, "a folder that TensorFlow's own code searches") if subject == name else None
        return misplaced or absent
    return None


def besides(facts: Facts) -> Answer:
    """Have TensorFlow open what it opens only when it is asked for: by the functions that its opener has.

    What the lock brings has to be here and to open; what else is here is told where it does not. No GPU waits for any.
    """
    search = framework.new_search()
    objects = framework.callers(search)
    if not objects:
        return skipped("no object of TensorFlow's that opens libraries is here: what it opens cannot be told")
    functions = _functions(framework.openers(objects))
    places = framework.wheel_folders() + framework.search_path(search, objects)
    there = {stem: _named(stem, places) for function, stem, _ in BESIDES if function in functions}
    findings = []
    for function, stem, wheel in BESIDES:
        refused = [found for found in map(_refused, there.get(stem, ())) if found is not None]
        brings = _locked(wheel, facts)
        findings += [dict(one, severity="error" if brings else "warning") for one in refused]
        if there.get(stem) == []:
            findings += _absent(function, stem, "" if _left_out(stem, brings, facts) else brings)
    names = [name for found in there.values() for name in found]
    return judged(findings, "open: " + " ".join(names or ["nothing"]), "\n".join(mapped(names)))


def _locked(wheel: str, facts: Facts) -> str:
    """Name the locked distribution that a wheel's name stands for: ``nvidia-nccl-cu12``, ``nvidia-nccl``; else ''."""
    names = [name for name, _ in facts.get("locked") or ()]
    return next((name for name in names if name == wheel or name.startswith(wheel + "-cu")), "")


def _left_out(stem: str, wheel: str, facts: Facts) -> bool:
    """Tell whether the environment is meant to lack a library of a distribution: by its file, or all of a folder."""
    paths = [path for name, path in facts.get("left_out") or () if name == wheel]
    return any(path.endswith("/") or os.path.basename(path).startswith(stem + ".so") for path in paths)


def _absent(function: str, stem: str, brings: str) -> list[Finding]:
    """Name a library that is nowhere although the lock brings it; without CUPTI, say what its absence costs."""
    if brings:
        text = "{0} is locked, and no {1}.so is where TensorFlow looks".format(brings, stem)
        return [finding("MISSING_LIBRARY", stem, text, stem + ".so", "none", FIX)]
    if function == PROFILER:
        text = "nothing here brings CUPTI: TensorFlow's profiler sees nothing of a GPU"
        return [finding("MISSING_LIBRARY", stem, text, stem + ".so", "none", FIX, severity="warning")]
    return []


def _functions(openers: Sequence[Elf]) -> set[str]:
    """List what TensorFlow's opener has functions for, as their names in its bytes say; not what it calls none for."""
    found = set()
    for one in openers:
        with open(one.path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as image:
            for function, _, _ in BESIDES:
                mark = CALLED.get(function, function.encode())
                if image.find(b"Get" + function.encode() + b"DsoHandle") >= 0 and image.find(mark) >= 0:
                    found.add(function)
    return found


def _named(stem: str, places: Iterable[str]) -> list[str]:
    """List the names under which these folders have a library: ``libcupti.so.12``."""
    wanted = re.compile(re.escape(stem) + r"\.so\.[0-9.]+\Z")
    held = (name for place in places if os.path.isdir(place) for name in sorted(os.listdir(place)))
    return list(dict.fromkeys(name for name in held if wanted.match(name)))


def mapped(names: Iterable[str]) -> list[str]:
    """List where the libraries of these names are mapped from in this process."""
    with open("/proc/self/maps", encoding="utf-8") as stream:
        paths = {line.split(None, 5)[5].strip() for line in stream if len(line.split(None, 5)) > 5}
    return sorted(path for path in paths if os.path.basename(path) in names)


def names_in_log(facts: Facts) -> Answer:
    """Let TensorFlow look for GPUs and log every library that it opens: no name may be one that we do not know."""
    code = "import tensorflow as tf; c = tf.config"
    code += "; getattr(c, 'list_physical_devices', c.experimental.list_physical_devices)('GPU')"
    env = dict(os.environ, TF_CPP_MAX_VLOG_LEVEL="3", TF_CPP_MIN_LOG_LEVEL="0")
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=env,
        timeout=LIMIT_S,
        check=False,
    )
    said = names_said(done.stderr.decode("utf-8", "replace"))
    known = set(facts.get("libraries") or ())
    findings = []
    for name in said:
        if known and name not in known and not name.startswith(("libcuda.so", "libnvinfer", "libnccl")):
            text = "TensorFlow opens {0}, and the environment does not name it".format(name)
            findings.append(finding("IMAGE_CLAIM", name, text, " ".join(sorted(known)), name))
    if not said:
        return skipped("this release does not log the names")
    more = "" if driver.look().present else " (it stops at the driver, which is not here)"
    count = {"names": measure(len(said), "1")}
    return judged(findings, "only names that are known", " ".join(said) + more, measurements=count)


def names_said(log: str) -> list[str]:
    """Return the libraries that a log of TensorFlow names, each once, in order."""
    return list(dict.fromkeys(SAID.findall(log)))
