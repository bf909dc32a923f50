"""Run a training-like loop in this environment and say whether, and why, it stalls."""

from __future__ import annotations

import os

from . import loops, stalls
from .answer import Answer, Facts, Finding, failed, finding, judged, measure, passed
from .stalls import Cause


def check(facts: Facts) -> Answer:
    """Train a small model for some steps; a healthy environment runs it without a stall."""
    if facts.get("simulated"):
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # nothing can be trained on a simulated GPU
    import tensorflow as tf

    throttled = _throttled()
    recorded, constant = loops.healthy(tf)
    findings = [_named(cause) for cause in stalls.causes(recorded, constant)]
    times = stalls.distribution(recorded)
    observed = ", ".join("{0} {1:.2f} ms".format(name, 1e3 * seconds) for name, seconds in times.items())
    observed += "; " + "; ".join(one["message"] for one in findings) if findings else ""
    measurements = {"step_" + name: measure(seconds, "s") for name, seconds in times.items()}
    measurements["retraces"] = measure(recorded[-1]["traces"] - recorded[stalls.WARM_UP]["traces"], "1")
    measurements["throttled"] = measure(_throttled() - throttled, "1")
    return judged(findings, "no stall in {0} steps".format(len(recorded)), observed, measurements=measurements)


def _named(cause: Cause) -> Finding:
    text = "{0}: {1}".format(cause.name, cause.evidence)
    return finding("STALLS", cause.name, text, fix=cause.fix, severity="warning")


def _throttled() -> int:
    """Count how often this container's processor quota has stopped it; 0 where there is none."""
    for path in ("/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/cpu/cpu.stat"):
        try:
            with open(path, encoding="ascii") as stream:
                rows = dict(line.split() for line in stream)
            return int(rows.get("nr_throttled", 0))
        except (OSError, ValueError):
            continue
    return 0


def controls(facts: Facts, healthy_runs: int = 20, only: str = "") -> Answer:
    """Run every loop that is written to stall, and the healthy one several times: the detector's own test."""
    import tensorflow as tf

    wrong, lines = [], []
    for loop, cause in loops.CONTROLS:
        if only and only != loop.__name__:
            continue
        names = [found.name for found in stalls.causes(*loop(tf))]
        lines.append("{0}: {1}".format(loop.__name__, names))
        if names != [cause]:
            wrong.append("{0} must be {1} and is {2}".format(loop.__name__, cause, names or "nothing"))
    for index in range(int(healthy_runs)):
        found = stalls.causes(*loops.healthy(tf))
        if found:
            wrong.append("healthy run {0}: {1}: {2}".format(index, found[0].name, found[0].evidence))
    answer = failed if wrong else passed
    return answer("each cause by name, a healthy loop nothing", "; ".join(wrong or lines))
