"""Find why a training-like loop stalls, from a recording of its steps. Pure: no clock, no framework.

A step is a dict: seconds of its parts (``data``, ``step``, ``sync``, ``other``), counters at its end (``traces``,
``nodes`` of the default graph, ``sessions`` made, ``copied`` bytes to the host, page ``faults``, ``rss`` bytes,
``transient`` bytes that were only used within the step, ``cpu`` seconds used, ``waited`` seconds in the run queues of
all threads), and ``shape``, the input's shape. Each cause needs a counter or a comparison, never only a long step: a
busy host has those in every loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Dict, NamedTuple, TypeVar

Step = Dict[str, Any]
_Item = TypeVar("_Item")

WARM_UP = 20
PARTS = ("data", "step", "sync", "other")


class Cause(NamedTuple):
    """Why a loop stalls."""

    name: str
    evidence: str
    fix: str


def following(values: Sequence[_Item]) -> Iterable[tuple[_Item, _Item]]:
    return zip(values[:-1], values[1:])  # noqa: RUF007 - pairwise() is newer than 3.9


def totals(steps: Iterable[Step]) -> list[float]:
    return [sum(step[part] for part in PARTS) for step in steps]


def quantile(values: Iterable[float], share: float) -> float:
    """Return the value below which this share of the values is (nearest rank)."""
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def distribution(steps: Sequence[Step]) -> dict[str, float]:
    """Describe the step times after warm-up: p50, p95, p99, max, in seconds."""
    seconds = totals(steps[WARM_UP:])
    return dict({f"p{share}": quantile(seconds, share / 100) for share in (50, 95, 99)}, max=max(seconds))


def causes(steps: Sequence[Step], constant: Sequence[float] = ()) -> list[Cause]:
    """Return every cause that the recording proves.

    ``constant`` are the seconds of steps of the same loop on one constant batch; empty if there is no such recording.
    """
    rest = steps[WARM_UP:]
    if len(rest) < 2:
        return []
    found = [rule(rest, constant) for rule in RULES]
    return [cause for cause in found if cause is not None]


def _grew(rest: Sequence[Step], counter: str) -> int:
    return int(rest[-1][counter] - rest[0][counter])


def _sessions(rest: Sequence[Step], constant: Sequence[float]) -> Cause | None:
    made = _grew(rest, "sessions")
    if made < max(2, len(rest) // 20):
        return None
    text = f"{made} sessions were made in {len(rest)} steps"
    return Cause("session re-creation", text, "make one session (or load the model once) and keep it")


def _graph(rest: Sequence[Step], constant: Sequence[float]) -> Cause | None:
    added = _grew(rest, "nodes")
    if added < len(rest) // 2:
        return None
    text = f"the graph grew by {added} nodes in {len(rest)} steps"
    return Cause("growing graph", text, "build operations once, before the loop; tf.Graph.finalize() finds the rest")


def _tracing(rest: Sequence[Step], constant: Sequence[float]) -> Cause | None:
    """Distinguish retracing from shape churn: the latter traces exactly for new shapes."""
    if _grew(rest, "traces") < 2:
        return None
    seen = {rest[0]["shape"]}
    traced = with_new_shape = 0
    for before, step in following(rest):
        is_new = step["shape"] not in seen
        seen.add(step["shape"])
        if step["traces"] > before["traces"]:
            traced += 1
            with_new_shape += is_new
    text = "{0} traces after warm-up in {1} steps".format(_grew(rest, "traces"), len(rest))
    if with_new_shape >= 0.8 * traced:
        fix = "pad or bucket inputs, or give the function an input_signature with None for what varies"
        return Cause("shape churn", text + f", each with a shape that is new; {len(seen)} shapes", fix)
    fix = "give Python values as tensors, and make functions outside of the loop"
    return Cause("retracing", text + ", with shapes that were seen before", fix)


def _input(rest: Sequence[Step], constant: Sequence[float]) -> Cause | None:
    """Find a loop that waits for its input most of the time, and does not with a constant batch."""
    waiting, everything = sum(step["data"] for step in rest), sum(totals(rest))
    if waiting < 0.5 * everything:
        return None
    with_data = quantile(totals(rest), 0.5)
    without = quantile(constant, 0.5)
    if constant and with_data < 2 * without:
        return None
    text = f"{waiting / everything:.0%} of the time the loop waits for its next batch"
    if constant:
        text += f"; a step takes {1e3 * with_data:.1f} ms, with a constant batch {1e3 * without:.1f} ms"
    return Cause("input pipeline", text, "map and decode in parallel, cache, and end the pipeline with prefetch")


def _hook(rest: Sequence[Step], constant: Sequence[float]) -> Cause | None:
    usual = quantile(totals(rest), 0.5)
    for seconds in ([step["other"] for step in rest], totals(rest)):
        long = [index for index, value in enumerate(seconds) if value > max(5 * usual, 0.005)]
        period = _period(long, len(rest))
        if period:
            median = quantile([seconds[index] for index in long], 0.5)
            text = f"every {period} steps one takes {1e3 * median:.0f} ms instead of {1e3 * usual:.1f} ms"
            fix = "write summaries and checkpoints more seldom, or on another thread"
            return Cause("periodic hook", text, fix)
    return None


def _period(places: Sequence[int], length: int) -> int:
    """Return the period of long steps, 0 if they have none.

    Nine in ten of the steps of one phase have to be long, five at least, and half of all long steps have to be among
    them: a busy host adds long steps anywhere and removes none.
    """
    long = set(places)
    best = (0, 0)
    for period in range(3, length // 5 + 1):
        for start in range(period):
            phase = range(start, length, period)
            hits = sum(index in long for index in phase)
            if hits >= 5 and hits >= 0.9 * len(phase) and 2 * hits >= len(long):
                best = max(best, (hits, period))
    return best[1]


FRESH_PER_STEP = 8 * 1024 * 1024
"""Bytes of fresh memory in most steps: a loop that reuses its buffers asks for none after warm-up."""


def _allocator(rest: Sequence[Step], constant: Sequence[float]) -> Cause | None:
    fresh = [
        max(after["transient"], after["rss"] - before["rss"], 4096 * (after["faults"] - before["faults"]))
        for before, after in following(rest)
    ]
    per_step = quantile(fresh, 0.5)
    if per_step < FRESH_PER_STEP:
        return None
    text = f"{per_step / 1e6:.0f} MB of fresh memory in most steps"
    return Cause("allocator churn", text, "keep shapes and buffers the same from step to step; do not hold results")


COPIED_PER_STEP = 1024 * 1024


def _copies(rest: Sequence[Step], constant: Sequence[float]) -> Cause | None:
    per_step = quantile([after["copied"] - before["copied"] for before, after in following(rest)], 0.5)
    if per_step < COPIED_PER_STEP:
        return None
    text = f"{per_step / 1e6:.1f} MB are copied to the host in every step"
    return Cause("host-device copies", text, "compute on the device and fetch a scalar, or fetch every hundredth step")


def _growth(rest: Sequence[Step], constant: Sequence[float]) -> Cause | None:
    """Find a step that becomes slower while the process grows."""
    seconds = [after["cpu"] - before["cpu"] for before, after in following(rest)]
    third = len(seconds) // 3
    early, late = quantile(seconds[:third], 0.5), quantile(seconds[-third:], 0.5)
    grew = rest[-1]["rss"] - rest[0]["rss"]
    if late < 1.5 * early or late - early < 0.002 or grew < 32 * 1024 * 1024 or _grew(rest, "nodes") >= len(rest) // 2:
        return None
    rising = sum(a < b for a, b in zip(_blocks(seconds), _blocks(seconds)[1:]))
    if rising < 0.8 * (len(_blocks(seconds)) - 1):
        return None
    text = f"a step takes {1e3 * early:.1f} ms of processor at first and {1e3 * late:.1f} ms at the end"
    text += f"; memory grew by {grew / 1e6:.0f} MB"
    return Cause("slow growth", text, "find what is kept from step to step: lists of tensors, metrics never reset")


def _blocks(seconds: Sequence[float]) -> list[float]:
    size = max(1, len(seconds) // 6)
    return [quantile(seconds[start : start + size], 0.5) for start in range(0, size * 6, size)]


def _unexplained(rest: Sequence[Step], constant: Sequence[float]) -> Cause | None:
    """Find long pauses in which no thread waited for a processor; other pauses come from a busy host."""
    seconds = totals(rest)
    usual = quantile(seconds, 0.5)
    pauses = []
    for index in range(1, len(rest)):
        waited = rest[index]["waited"] - rest[index - 1]["waited"]
        if seconds[index] > max(50 * usual, 0.5) and waited < 0.1 * seconds[index]:
            pauses.append(index)
    explained = any(rule(rest, constant) for rule in RULES if rule is not _unexplained)
    if len(pauses) < 3 or explained:
        return None
    text = f"{len(pauses)} pauses of up to {max(seconds):.1f} s with the processors free"
    return Cause("unexplained", text, "profile around a pause: tf.profiler.experimental.start")


RULES = (_sessions, _graph, _tracing, _input, _hook, _allocator, _copies, _growth, _unexplained)
