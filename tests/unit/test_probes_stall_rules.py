"""Causes of stalls, from recorded steps only; each has its own evidence."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from envbuilder.probes.suite import stall_rules

STEPS = 160


def recorded(**changes: Any) -> list[dict[str, Any]]:
    """Record a healthy loop of 2 ms steps; ``changes`` are functions of the step's index, by key."""
    steps = []
    for index in range(STEPS):
        step: dict[str, Any] = {
            "data": 0.0003,
            "step": 0.001,
            "sync": 0.0005,
            "other": 0.0002,
            "traces": 1,
            "nodes": 9,
            "sessions": 1,
        }
        step |= {"copied": 128 * index, "faults": 5 * index, "rss": 10**9, "transient": 0, "cpu": 0.002 * index}
        step |= {"waited": 0.001 * index, "shape": "(32, 64)"}
        steps.append(step | {key: change(index) for key, change in changes.items()})
    return steps


def names(steps: list[dict[str, Any]], constant: tuple[float, ...] = ()) -> list[str]:
    return [cause.name for cause in stall_rules.causes(steps, constant)]


def test_each_stall_has_its_own_evidence() -> None:
    assert names(recorded()) == []
    assert names(recorded(sessions=lambda index: index)) == ["session re-creation"]
    assert names(recorded(nodes=lambda index: 7 * index)) == ["growing graph"]
    assert names(recorded(traces=lambda index: index)) == ["retracing"]
    assert names(recorded(traces=lambda index: index, shape=lambda index: f"({index},)")) == ["shape churn"]
    assert names(recorded(data=lambda _: 0.03), (0.002,) * 30) == ["input pipeline"]
    assert names(recorded(other=lambda index: 0.2 if index % 25 == 7 else 0.0)) == ["periodic hook"]
    assert names(recorded(step=lambda index: 0.2 if index % 25 == 7 else 0.001)) == ["periodic hook"]
    assert names(recorded(faults=lambda index: 3000 * index)) == ["allocator churn"]
    assert names(recorded(transient=lambda _: 40 << 20)) == ["allocator churn"]
    assert names(recorded(copied=lambda index: index << 22)) == ["host-device copies"]
    growing = recorded(cpu=lambda index: 0.002 * index + 0.0001 * index**2, rss=lambda index: 10**9 + index * 2**20)
    assert names(growing) == ["slow growth"]


def test_retracing_of_known_shapes_is_not_shape_churn() -> None:
    assert names(recorded(traces=lambda index: index, shape=lambda index: f"({index % 3},)")) == ["retracing"]


def test_warm_up_does_not_count() -> None:
    early = recorded(
        traces=lambda index: min(index, stall_rules.WARM_UP),
        sessions=lambda index: min(index, stall_rules.WARM_UP),
        step=lambda index: 3.0 if index < stall_rules.WARM_UP else 0.001,
    )
    assert names(early) == []


def test_slow_input_needs_a_faster_constant_batch() -> None:
    assert names(recorded(data=lambda _: 0.03), (0.025,) * 30) == []


def test_pauses_with_free_processors_are_reported() -> None:
    pauses = {40, 71, 133}
    assert names(recorded(step=lambda index: 2.0 if index in pauses else 0.001)) == ["unexplained"]


def test_pauses_on_a_busy_host_are_not() -> None:
    pauses = {40, 71, 133}
    waited = [sum(2.0 for pause in pauses if pause <= index) for index in range(STEPS)]
    busy = recorded(step=lambda index: 2.0 if index in pauses else 0.001, waited=lambda index: waited[index])
    assert names(busy) == []


@given(st.lists(st.tuples(st.integers(0, STEPS - 1), st.floats(0.0001, 0.4)), max_size=12))
def test_random_noise_has_no_cause(noise: list[tuple[int, float]]) -> None:
    extra = dict(noise)
    steps = recorded(step=lambda index: 0.001 + extra.get(index, 0.0), waited=lambda index: 10.0 * index)
    gaps = {later - earlier for earlier, later in zip(sorted(extra), sorted(extra)[1:], strict=False)}
    assert names(steps) == [] or len(gaps) <= 4


def test_distribution() -> None:
    told = stall_rules.distribution(recorded(step=lambda index: 1.0 if index == STEPS - 1 else 0.001))
    assert 0.0019 < told["p50"] < 0.0021
    assert told["p95"] == told["p50"]
    assert told["max"] > 1
