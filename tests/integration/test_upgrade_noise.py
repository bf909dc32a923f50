"""The upgrade's statistics against this machine's own noise: fresh processes, both images in turn."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from envbuilder.catalog.store import load
from envbuilder.choice import choose
from envbuilder.engine.docker import connect
from envbuilder.image.build import ensure
from envbuilder.upgrade.measure import PROBE, Arguments, samples
from envbuilder.upgrade.observe import Gap, ProbeTarget, ask
from envbuilder.upgrade.observed import TimingSample
from envbuilder.upgrade.statistics import Change, Samples, Settings, compare
from envbuilder.workspace import Workspace

COMPARISONS = 20
ROUNDS = 8
PROBE_ROUNDS = 12
"""Fewer than an upgrade's own 15, and enough for one process of a comparison to be disturbed all the time."""

ROOT = Path(__file__).parents[2]
SLOWED: Arguments = {"matmul": {"calls": 13}, "convolution": {"calls": 13}, "step": {"calls": 26}}
"""30 % more work in each workload of the upgrade's own probe."""

PROCESS = """
import hashlib, json, sys, time
data, best = b"x" * 200_000, {}
began = time.perf_counter()
while time.perf_counter() - began < 0.15:
    for name, calls in (("steady", 10), ("planted", int(sys.argv[1]))):
        start = time.perf_counter()
        for _ in range(calls):
            hashlib.sha256(data).digest()
        took = time.perf_counter() - start
        best[name] = min(took, best.get(name, took))
print(json.dumps({"seconds": best}))
"""
"""A workload measured as the upgrade's probe measures: the fastest of repetitions taken in turn."""


def process(calls: int) -> TimingSample:
    """Measure in a fresh process; ``calls`` of 13 is a slow-down of 30 %."""
    done = subprocess.run([sys.executable, "-c", PROCESS, str(calls)], capture_output=True, check=True)
    return TimingSample(**json.loads(done.stdout))


def comparison() -> tuple[tuple[Samples, ...], tuple[Samples, ...]]:
    """Measure A, A again and a slowed A in turn; return A against A, and A against the slowed one."""
    sides: tuple[list[TimingSample], list[TimingSample], list[TimingSample]] = ([], [], [])
    for round_ in range(ROUNDS):
        order = (0, 1, 2) if round_ % 2 == 0 else (2, 1, 0)
        for side in order:
            sides[side].append(process(13 if side == 2 else 10))
    return samples(sides[0], sides[1]), samples(sides[0], sides[2])


@pytest.mark.full
def test_no_claim_about_the_same_and_a_planted_slow_down_is_found() -> None:
    claims: list[str] = []
    found = 0
    for _ in range(COMPARISONS):
        same, slowed = comparison()
        claims += [one.name for one in compare(same, Settings()) if one.change in ("slower", "faster")]
        answers: dict[str, Change] = {one.name: one.change for one in compare(slowed, Settings())}
        found += answers["planted"] == "slower"
        claims += ["steady"] if answers["steady"] in ("slower", "faster") else []
    assert not claims
    assert found >= COMPARISONS - 1


@pytest.fixture
def place() -> ProbeTarget:
    engine = connect()
    workspace = Workspace(ROOT)
    choice = choose("quickstart", (), workspace, load())
    (environment,) = choice.environments
    built = ensure(environment, choice.catalog, workspace, engine, lambda _: None)
    return ProbeTarget(engine, built.record.image)


def timed(place: ProbeTarget, arguments: Arguments) -> TimingSample:
    found = ask(place, PROBE, TimingSample, arguments)
    assert not isinstance(found, Gap), found.why
    return found


@pytest.mark.full
@pytest.mark.engine
@pytest.mark.network
@pytest.mark.timeout(7200)
def test_tensorflow_itself_measured_against_itself(place: ProbeTarget) -> None:
    claims: list[str] = []
    found: Counter[str] = Counter()
    for number in range(1, COMPARISONS + 1):
        sides: tuple[list[TimingSample], list[TimingSample], list[TimingSample]] = ([], [], [])
        for round_ in range(PROBE_ROUNDS):
            for side in (0, 1, 2) if round_ % 2 == 0 else (2, 1, 0):
                sides[side].append(timed(place, SLOWED if side == 2 else {}))
        same, slowed = (compare(samples(sides[0], other), Settings()) for other in sides[1:])
        claims += [f"{number}: {one.name} {one.change}" for one in same if one.change in {"slower", "faster"}]
        found.update(one.name for one in slowed if one.name.startswith("work.") and one.change == "slower")
        sys.stdout.write(f"{number}: changed {claims}, found {dict(found)}\n")
    assert not claims
    assert len(found) == len(SLOWED)
    assert min(found.values()) >= COMPARISONS - 1
