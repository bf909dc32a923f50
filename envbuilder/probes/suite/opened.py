"""Load checks by TensorFlow's own hands: it opens its run-time libraries itself, and its log says under which names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable

from . import driver
from .answer import Answer, Facts, finding, judged, measure, skipped
from .libraries import DAMAGED, FIX, MISSING, broken, elsewhere

SAID = re.compile(r"(?:Successfully opened|Could not load) dynamic library '?(lib[\w.+-]+?)'?(?:;|\s|\Z)")
LIMIT_S = 240.0


def by_tensorflow(facts: Facts) -> Answer:
    """Have TensorFlow open each library by name through the function that it opens CUDA with.

    ``load_op_library`` ends in the same ``LoadDynamicLibrary`` of TensorFlow's own code, so the loader searches for
    the name exactly as it does when TensorFlow starts on a GPU: by the RUNPATH of the object that calls.
    """
    names = list(facts.get("libraries") or ())
    if not names:
        return skipped("the catalogue does not say which libraries this build opens")
    import tensorflow as tf

    findings = []
    for name in names:
        try:
            tf.load_op_library(name)
        except (tf.errors.NotFoundError, RuntimeError, OSError) as error:
            damaged = DAMAGED.search(str(error))
            if damaged:
                findings.append(broken(name, damaged.group("path"), str(error)))
                continue
            lacks = MISSING.search(str(error))
            subject = lacks.group(1) if lacks else name
            text = "TensorFlow cannot open {0}: {1}".format(name, error)
            absent = finding("MISSING_LIBRARY", subject, text, name, str(error), FIX)
            misplaced = elsewhere(name, "a folder that TensorFlow's own code searches") if subject == name else None
            findings.append(misplaced or absent)
    return judged(findings, "open: " + " ".join(names), "\n".join(mapped(names)))


def mapped(names: Iterable[str]) -> list[str]:
    """List where the libraries of these names are mapped from in this process."""
    with open("/proc/self/maps", encoding="utf-8") as stream:
        paths = {line.split(None, 5)[5].strip() for line in stream if len(line.split(None, 5)) > 5}
    return sorted(path for path in paths if os.path.basename(path) in names)


def names_in_log(facts: Facts) -> Answer:
    """Let TensorFlow look for GPUs and log every library that it opens: no name may be one that we do not know."""
    code = "import tensorflow as tf; tf.config.list_physical_devices('GPU')"
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
