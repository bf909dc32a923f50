"""Time start-up in fresh processes, cold, warm and with each setting that changes it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from . import cuda_driver, cuda_timeline, startup, startup_diagnosis, tensorflow_install
from .result import Answer, Facts, Measurement, finding, judged, measure, phase, skipped
from .startup_diagnosis import Sample, median

HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLE_LIMIT_S = 240.0

FEWEST, MOST, ENOUGH_S = 2, 5, 10.0
"""The fewest pairs of a cold and a warm sample; after so many seconds no further pair begins."""

LARGE_CACHE = {"CUDA_CACHE_DISABLE": "0", "CUDA_CACHE_MAXSIZE": "4294967296"}
# These three share a cache of their own, empty at first: with JIT forbidden, a driver still takes what a cache holds.
NEW_CACHE = ("no JIT from PTX", "kernel cache of 4 GiB", "kernel cache of 4 GiB, again")

# Name, variables, options of the sample; the base case has none. Without a GPU, the settings for GPUs are left out.
KNOBS: tuple[tuple[str, dict[str, str], dict[str, bool], bool], ...] = (
    ("one visible GPU", {"CUDA_VISIBLE_DEVICES": "0"}, {}, True),
    ("memory growth", {}, {"growth": True}, True),
    ("eager module loading", {"CUDA_MODULE_LOADING": "EAGER"}, {}, True),
    ("lazy module loading", {"CUDA_MODULE_LOADING": "LAZY"}, {}, True),
    ("no kernel cache", {"CUDA_CACHE_DISABLE": "1"}, {}, True),
    ("no JIT from PTX", {"CUDA_DISABLE_PTX_JIT": "1"}, {}, True),
    ("kernel cache of 4 GiB", LARGE_CACHE, {}, True),
    ("kernel cache of 4 GiB, again", LARGE_CACHE, {}, True),
    ("no GPU", {"CUDA_VISIBLE_DEVICES": "-1"}, {}, True),
    ("no oneDNN", {"TF_ENABLE_ONEDNN_OPTS": "0"}, {}, False),
    ("quiet log", {"TF_CPP_MIN_LOG_LEVEL": "3"}, {}, False),
)


class SampleError(Exception):
    """A sample without a result."""


def sample(env: Mapping[str, str], options: Mapping[str, Any] | None = None) -> Sample:
    return _timed([HERE, "--sample"], env, dict(options or {}, spawned=time.monotonic()))


def _timed(arguments: list[str], env: Mapping[str, str], order: Mapping[str, Any]) -> Sample:
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
            document: Sample = json.loads(printed.decode())
            return document
        except (ValueError, subprocess.TimeoutExpired):
            log.seek(0)
            raise SampleError(log.read()[-2000:].decode("utf-8", "replace"))


def measured(facts: Facts) -> Answer:
    """Take cold and warm samples in turn, then one for each setting; name the causes of slow phases."""
    # With a simulated driver TensorFlow can only list devices, so it is hidden.
    env = {"CUDA_VISIBLE_DEVICES": "-1"} if facts.get("simulated") else {}
    cold: list[Sample] = []
    warm: list[Sample] = []
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kernels-") as folder:
        try:
            while len(cold) < FEWEST or (len(cold) < MOST and time.monotonic() - begun < ENOUGH_S):
                cache = env["CUDA_CACHE_PATH"] = tempfile.mkdtemp(dir=folder)
                evict()
                cold.append(dict(sample(env), cache_grew=cuda_timeline.cache_bytes(cache)))
                warm.append(sample(env))
        except SampleError as error:
            text = "a fresh process gave no answer"
            broken = finding("PROBE_CRASHED", "sample of start-up", text, found=str(error)[-1500:])
            return judged([broken], "cold and warm samples", str(error)[-500:])
        wanted = [knob for knob in KNOBS if warm[0]["gpus"] or not knob[3]]
        other = dict(env, CUDA_CACHE_PATH=tempfile.mkdtemp(dir=folder))
        knobs = {
            name: _knob(other if name in NEW_CACHE else env, variables, options)
            for name, variables, options, _ in wanted
        }
    persistence = [gpu.get("persistence") for gpu in cuda_driver.read_state().gpus]
    findings = startup_diagnosis.causes(cold, warm, knobs, persistence)
    return judged(
        findings,
        f"{len(cold)} cold and {len(warm)} warm samples, no slow phase",
        "; ".join(one["message"] for one in findings) or _summary(warm),
        phases=startup_diagnosis.phases(cold, warm),
        measurements=_measurements(warm, knobs),
    )


def _knob(env: Mapping[str, str], variables: Mapping[str, str], options: Mapping[str, bool]) -> Sample:
    try:
        return sample(dict(env, **variables), options)
    except SampleError as error:
        return {"error": str(error)[-500:]}


def _measurements(warm: list[Sample], knobs: Mapping[str, Sample]) -> dict[str, Measurement]:
    found = {"peak_memory": measure(max(one["peak_memory"] for one in warm), "B")}
    totals = {name: _total(document) for name, document in knobs.items() if "phases" in document}
    totals["none"] = median(map(_total, warm))
    return dict(found, **{"knob: " + name: measure(seconds, "s") for name, seconds in totals.items()})


def _total(document: Sample) -> float:
    return float(sum(row["seconds"] for row in document["phases"]))


def _summary(warm: list[Sample]) -> str:
    imports = startup_diagnosis.of(warm, "import")
    spread = max(imports) - min(imports)
    return f"import {median(imports):.2f} s (median of {len(imports)} warm, spread {spread:.2f} s)"


def evict() -> None:
    """Drop TensorFlow's own files from the page cache, so that a sample reads them from disk."""
    roots = [tensorflow_install.tensorflow_folder() or "", *tensorflow_install.wheel_folders()]
    for place, _, files in (found for root in roots if root for found in os.walk(root)):
        for name in files:
            if name.endswith((".pyc", ".py")) or ".so" in name:
                with suppress(OSError), open(os.path.join(place, name), "rb") as stream:
                    os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cuda_level(facts: Facts) -> Answer:
    if not cuda_driver.read_state().present:
        return skipped(cuda_driver.NO_DRIVER)
    if facts.get("simulated"):
        return skipped("a simulated driver's times say nothing")
    runs: dict[str, list[Sample]] = {"cold": [], "warm": []}
    with tempfile.TemporaryDirectory(prefix="kernels-") as folder:
        for _ in range(MOST):
            cache = tempfile.mkdtemp(dir=folder)
            for documents in runs.values():  # the cold one fills the cache
                documents.append(_timed([cuda_timeline.__file__], {"CUDA_CACHE_PATH": cache}, {}))
    return startup_diagnosis.cuda_answer(runs)


def loading(facts: Facts) -> Answer:
    """Divide an import by the loader's trace: Python modules, mapping and relocation, initialisers (registration)."""
    process = subprocess.Popen(
        [sys.executable, HERE, "--traced-import"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=dict(os.environ, LD_DEBUG="files"),
    )
    events = []
    deadline = time.monotonic() + SAMPLE_LIMIT_S
    assert process.stderr is not None  # asked for above
    with process:
        rest = b""
        while time.monotonic() < deadline:
            data = os.read(process.stderr.fileno(), 1 << 16)
            if not data:
                break
            now = time.perf_counter()
            *lines, rest = (rest + data).split(b"\n")
            events += [(now, line) for line in lines]
        process.kill()
    found = startup.analyse(events)
    seconds = found["seconds"]
    return judged(
        [],
        "a split of the import",
        ", ".join(f"{name} {took:.2f} s" for name, took in seconds.items()),
        phases={"import: " + name: phase((), [took]) for name, took in seconds.items()},
        measurements={
            "objects": measure(found["objects"], "1"),
            "slowest initialiser": measure(found["slowest"], "s"),
        },
    )
