"""Time start-up in fresh processes, cold, warm and with each setting that changes it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from . import cuda_timeline, driver, startup_diagnosis, tensorflow_install
from .result import Answer, Facts, Measurement, judged, measure, phase, skipped

HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLE_LIMIT_S = 240.0

# Name, variables, options of the sample; the base case has none. Without a GPU, the settings for GPUs are left out.
KNOBS: tuple[tuple[str, dict[str, str], dict[str, bool], bool], ...] = (
    ("one visible GPU", {"CUDA_VISIBLE_DEVICES": "0"}, {}, True),
    ("memory growth", {}, {"growth": True}, True),
    ("eager module loading", {"CUDA_MODULE_LOADING": "EAGER"}, {}, True),
    ("lazy module loading", {"CUDA_MODULE_LOADING": "LAZY"}, {}, True),
    ("no kernel cache", {"CUDA_CACHE_DISABLE": "1"}, {}, True),
    ("kernel cache of 4 GiB", {"CUDA_CACHE_MAXSIZE": "4294967296"}, {}, True),
    ("no JIT from PTX", {"CUDA_DISABLE_PTX_JIT": "1"}, {}, True),
    ("no GPU", {"CUDA_VISIBLE_DEVICES": "-1"}, {}, True),
    ("no oneDNN", {"TF_ENABLE_ONEDNN_OPTS": "0"}, {}, False),
    ("quiet log", {"TF_CPP_MIN_LOG_LEVEL": "3"}, {}, False),
)


class SampleError(Exception):
    """A sample without a result."""


def sample(env: Mapping[str, str], options: Mapping[str, Any] | None = None) -> startup_diagnosis.Sample:
    """Time one start-up in a fresh process."""
    return _timed([HERE, "--sample"], env, dict(options or {}, spawned=time.monotonic()))


def _timed(arguments: list[str], env: Mapping[str, str], order: Mapping[str, Any]) -> startup_diagnosis.Sample:
    """Run a fresh Python and return the document that it prints. Raises SampleError with the end of its log."""
    with tempfile.TemporaryFile() as log:
        try:
            printed = subprocess.run(
                [sys.executable, *arguments],
                input=json.dumps(order).encode(),
                stdout=subprocess.PIPE,
                stderr=log,
                env=dict(os.environ, **env),
                timeout=SAMPLE_LIMIT_S,
                check=False,
            ).stdout
            document: startup_diagnosis.Sample = json.loads(printed.decode())
            return document
        except (ValueError, subprocess.TimeoutExpired):
            log.seek(0)
            raise SampleError(log.read()[-2000:].decode("utf-8", "replace"))


def measured(facts: Facts) -> Answer:
    """Take cold and warm samples in turn, then one for each setting; name the causes of slow phases."""
    count = int(facts.get("samples", 5))
    folder = tempfile.mkdtemp(prefix="kernels-")
    cold, warm = [], []
    # With a simulated driver TensorFlow can only list devices, so it is hidden.
    hidden = {"CUDA_VISIBLE_DEVICES": "-1"} if facts.get("simulated") else {}
    try:
        for index in range(count):
            cache = os.path.join(folder, str(index))
            os.mkdir(cache)
            evicted = evict()
            env = dict(hidden, CUDA_CACHE_PATH=cache)
            before = cuda_cache_size(cache)
            document = sample(env)
            document["cache_grew"] = cuda_cache_size(cache) - before
            document["evicted"] = evicted
            cold.append(document)
            warm.append(sample(env))
        knobs = _knobs(env, has_gpu=warm[0]["gpus"] > 0)
    except SampleError as error:
        return judged([startup_diagnosis.broken(str(error))], "{0} samples".format(2 * count), str(error)[-500:])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    seen = driver.read_state()
    findings = startup_diagnosis.causes(cold, warm, knobs, [gpu.get("persistence") for gpu in seen.gpus])
    return judged(
        findings,
        "{0} cold and {0} warm samples, no slow phase".format(count),
        "; ".join(one["message"] for one in findings) or _summary(warm),
        phases=startup_diagnosis.phases(cold, warm),
        measurements=_measurements(warm, knobs),
    )


def _knobs(env: Mapping[str, str], *, has_gpu: bool) -> dict[str, startup_diagnosis.Sample]:
    found = {}
    for name, variables, options, for_gpu in KNOBS:
        if for_gpu and not has_gpu:
            continue
        try:
            found[name] = sample(dict(env, **variables), options)
        except SampleError as error:
            found[name] = {"error": str(error)[-500:]}
    return found


def _measurements(
    warm: list[startup_diagnosis.Sample], knobs: Mapping[str, startup_diagnosis.Sample]
) -> dict[str, Measurement]:
    found = {"peak_memory": measure(max(one["peak_memory"] for one in warm), "B")}
    for name, document in knobs.items():
        if "phases" in document:
            found["knob: " + name] = measure(_total(document), "s")
    found["knob: none"] = measure(startup_diagnosis.median(map(_total, warm)), "s")
    return found


def _total(document: startup_diagnosis.Sample) -> float:
    return float(sum(row["seconds"] for row in document["phases"]))


def _summary(warm: list[startup_diagnosis.Sample]) -> str:
    imports = sorted(startup_diagnosis.of(warm, "import"))
    spread = imports[-1] - imports[0]
    return "import {0:.2f} s (median of {1} warm, spread {2:.2f} s)".format(
        imports[len(imports) // 2], len(imports), spread
    )


def cuda_cache_size(folder: str) -> int:
    return sum(os.path.getsize(os.path.join(place, name)) for place, _, files in os.walk(folder) for name in files)


def evict() -> int:
    """Drop TensorFlow's own files from the page cache, so that a sample reads them from disk; return their size."""
    total = 0
    roots = [tensorflow_install.tensorflow_folder() or "", *tensorflow_install.wheel_folders()]
    for root in roots:
        for folder, _, files in os.walk(root) if root else ():
            for name in files:
                if name.endswith((".pyc", ".py")) or ".so" in name:
                    total += _drop(os.path.join(folder, name))
    return total


def _drop(path: str) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return 0
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def cuda_level(facts: Facts) -> Answer:
    """Time the CUDA driver's own phases, cold and warm, in fresh processes without a framework."""
    if not driver.read_state().present:
        return skipped(driver.NO_DRIVER)
    if facts.get("simulated"):
        return skipped("a simulated driver's times say nothing")
    folder = tempfile.mkdtemp(prefix="kernels-")
    runs: dict[str, list[startup_diagnosis.Sample]] = {"cold": [], "warm": []}
    try:
        for index in range(int(facts.get("samples", 5))):
            cache = os.path.join(folder, str(index))
            for kind in ("cold", "warm"):
                runs[kind].append(_timed([cuda_timeline.__file__], {"CUDA_CACHE_PATH": cache}, {}))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return startup_diagnosis.cuda_answer(runs)


def loading(facts: Facts) -> Answer:
    """Divide the import: Python modules, mapping and relocating shared objects, their initialisers (registration)."""
    split = startup_diagnosis.split()
    return judged(
        [],
        "a split of the import",
        ", ".join("{0} {1:.2f} s".format(name, seconds) for name, seconds in split["seconds"].items()),
        phases={"import: " + name: phase((), [seconds]) for name, seconds in split["seconds"].items()},
        measurements={
            "objects": measure(split["objects"], "1"),
            "slowest initialiser": measure(split["slowest"][1], "s"),
        },
    )
