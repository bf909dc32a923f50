"""Name the cause of a start-up phase that takes long, and divide the time of an import."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Dict

from . import driver
from .result import Answer, Finding, Phase, finding, judged, measure, phase

Sample = Dict[str, Any]
"""The document of one start-up, with rows of ``phase`` and ``seconds``."""
GREW_AT_LEAST = 1024 * 1024
FIRST_USE = ("first op", "first matmul", "first convolution", "first function")


def median(values: Iterable[float]) -> float:
    """Return the middle value; 0 without values."""
    values = sorted(values)
    return values[len(values) // 2] if values else 0.0


def of(documents: Iterable[Sample], name: str) -> list[float]:
    """Return the seconds of a phase in every document that has it, with or without the GPU prefix."""
    return [row["seconds"] for one in documents for row in one["phases"] if row["phase"] in (name, "GPU " + name)]


def phases(cold: list[Sample], warm: list[Sample], prefix: str = "") -> dict[str, Phase]:
    """Return every phase with its seconds, cold and warm."""
    names = dict.fromkeys(row["phase"] for one in cold + warm for row in one["phases"])
    return {prefix + name: phase(_times(cold, name), _times(warm, name)) for name in names}


def causes(
    cold: list[Sample], warm: list[Sample], knobs: Mapping[str, Sample], persistence: Sequence[bool | None]
) -> list[Finding]:
    """Return a warning for every phase that takes long for a known reason.

    ``cold`` and ``warm`` are documents of samples, ``knobs`` documents by setting, ``persistence`` the persistence mode
    of each GPU (None if unknown).
    """
    findings = []
    findings += _jit(cold, warm, knobs)
    findings += _disk(cold, warm)
    findings += _many(warm, knobs)
    findings += _persistence(warm, persistence)
    return findings


def _jit(cold: list[Sample], warm: list[Sample], knobs: Mapping[str, Sample]) -> list[Finding]:
    """Kernels compiled from PTX: the cache grew, first use became fast with it, and it fails if JIT is forbidden."""
    grew = median([one.get("cache_grew", 0) for one in cold])
    first, again = (sum(median(of(rows, name)) for name in FIRST_USE) for rows in (cold, warm))
    if grew < GREW_AT_LEAST or first < 5 * max(again, 0.05):
        return []
    proof = "error" in knobs.get("no JIT from PTX", {})
    text = "kernels are compiled from PTX at first use: {0:.1f} s cold, {1:.1f} s warm".format(first, again)
    text += "; the kernel cache grew {0:.0f} MB".format(grew / 1e6)
    text += "; with CUDA_DISABLE_PTX_JIT=1 the same program fails" if proof else ""
    fix = "keep CUDA_CACHE_PATH on a volume, or use a release with machine code for this GPU"
    return [finding("PTX_JIT", "first use", text, fix=fix, severity="warning")]


def _disk(cold: list[Sample], warm: list[Sample]) -> list[Finding]:
    first, again = median(of(cold, "import")), median(of(warm, "import"))
    if first < 2 * again or first - again < 2:
        return []
    text = "import takes {0:.1f} s from disk and {1:.1f} s from memory: the image's storage is slow".format(
        first, again
    )
    fix = "put the image on a local disk, or read it once before it is needed"
    return [finding("SLOW_PHASE", "import", text, fix=fix, severity="warning")]


def _many(warm: list[Sample], knobs: Mapping[str, Sample]) -> list[Finding]:
    alone = knobs.get("one visible GPU", {})
    if "phases" not in alone or alone.get("gpus", 0) == median([one["gpus"] for one in warm]):
        return []
    every, one = median(of(warm, "contexts and allocator")), median(of([alone], "contexts and allocator"))
    if every < 2 * one or every - one < 1:
        return []
    text = "contexts on every GPU take {0:.1f} s, on one {1:.1f} s".format(every, one)
    fix = "set CUDA_VISIBLE_DEVICES to the GPUs that the process uses"
    return [finding("SLOW_PHASE", "contexts", text, fix=fix, severity="warning")]


def _persistence(warm: list[Sample], persistence: Sequence[bool | None]) -> list[Finding]:
    took = median(of(warm, "device listing"))
    if False not in persistence or took < 1.0 * max(1, len(persistence)):
        return []
    text = "listing {0} GPU(s) takes {1:.1f} s".format(len(persistence), took)
    text += ", and persistence mode is off: the driver starts again for every process"
    fix = "run nvidia-persistenced on the host"
    return [finding("SLOW_PHASE", "driver", text, fix=fix, severity="warning")]


def broken(log: str) -> Finding:
    return finding("PROBE_CRASHED", "sample of start-up", "a fresh process gave no answer", found=log[-1500:])


def cuda_answer(runs: Mapping[str, list[Sample]]) -> Answer:
    """Return the result for runs of the timeline without a framework, cold and warm."""
    errors = [one["error"] for one in runs["cold"] + runs["warm"] if one["error"]]
    if errors:
        text = errors[0]["text"]
        _, code = driver.RESULTS.get(errors[0].get("code"), ("", "GPU_NOT_VISIBLE"))
        return judged([finding(code, "CUDA driver", text, fix=driver.FIXES.get(code, ""))], "every phase", text)
    wrong = [gpu["name"] for one in runs["warm"] for gpu in one["facts"]["gpus"] if not gpu.get("kernel_right")]
    findings = [finding("WRONG_NUMBERS", "PTX kernel", "wrong on " + ", ".join(wrong))] if wrong else []
    to_context = median(
        [sum(row["seconds"] for row in one["phases"] if _before_work(row["phase"])) for one in runs["warm"]]
    )
    grew = median([one["facts"]["cache_after"] - one["facts"]["cache_before"] for one in runs["cold"]])
    return judged(
        findings,
        "every phase, and a kernel that computes",
        "{0:.2f} s to the contexts".format(to_context),
        phases=phases(runs["cold"], runs["warm"], "CUDA: "),
        measurements={"context": measure(to_context, "s"), "kernel_cache_grew": measure(grew, "B")},
    )


def _before_work(name: str) -> bool:
    return name in ("driver open", "cuInit", "device enumeration") or name.startswith("primary context")


def _times(documents: Iterable[Sample], name: str) -> list[float]:
    return [row["seconds"] for one in documents for row in one["phases"] if row["phase"] == name]


# Printed by glibc with LD_DEBUG=files for every initialiser that it calls (elf/dl-init.c).
INITIALISER = re.compile(rb"calling init: (\S+)")
BLANK = re.compile(rb"\s*[0-9]*:?\s*\Z")
MARK = b"envbuilder-object "
LIMIT_S = 240.0

CHILD = """
import importlib.machinery, os, time
plain = importlib.machinery.ExtensionFileLoader.create_module
def marked(self, spec):
    os.write(2, b"envbuilder-object begin\\n")
    try:
        return plain(self, spec)
    finally:
        os.write(2, b"envbuilder-object end\\n")
importlib.machinery.ExtensionFileLoader.create_module = marked
os.write(2, b"envbuilder-object start\\n")
import tensorflow
os.write(2, b"envbuilder-object done\\n")
os._exit(0)
"""


def split() -> dict[str, Any]:
    """Run an import with the loader's tracing; return seconds by part, objects, and the slowest initialiser."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=dict(os.environ, LD_DEBUG="files"),
    )
    events = []
    deadline = time.monotonic() + LIMIT_S
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
    return analyse(events)


def analyse(events: Iterable[tuple[float, bytes]]) -> dict[str, Any]:
    """Add up timed lines: within the loading of an extension, an initialiser lasts until the loader's next line."""
    inside = 0
    seconds = {"Python modules": 0.0, "mapping and relocation": 0.0, "initialisers (registration)": 0.0}
    by_object: dict[str, float] = {}
    previous, running = None, None
    started = False
    for now, line in events:
        if BLANK.match(line):  # the loader puts one after each of its messages
            continue
        if started and previous is not None:
            took = now - previous
            if running is not None:
                seconds["initialisers (registration)"] += took
                by_object[running] = by_object.get(running, 0.0) + took
            elif inside:
                seconds["mapping and relocation"] += took
            else:
                seconds["Python modules"] += took
        previous, running = now, None
        if line.startswith(MARK):
            word = line[len(MARK) :]
            started = started or word == b"start"
            inside += {b"begin": 1, b"end": -1}.get(word, 0)
            if word == b"done":
                break
        elif inside:
            found = INITIALISER.search(line)
            running = found.group(1).decode("utf-8", "replace") if found else None
    slowest = max(by_object.items(), key=lambda item: item[1]) if by_object else ("", 0.0)
    return {"seconds": seconds, "objects": len(by_object), "slowest": slowest}
