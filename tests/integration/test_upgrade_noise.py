"""The upgrade's statistics against this machine's own noise: fresh processes, both images in turn."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from envbuilder.catalog.store import load
from envbuilder.choice import choose
from envbuilder.engine.docker import connect
from envbuilder.image.build import ensure
from envbuilder.upgrade.observe import ProbeTarget, ask, samples
from envbuilder.upgrade.observed import TimingSample
from envbuilder.upgrade.statistics import Settings, compare
from envbuilder.workspace import Workspace

COMPARISONS = 20
PROBE_ROUNDS = 12
"""Fewer than an upgrade's own 15, and enough for one process of a comparison to be disturbed all the time."""

ROOT = Path(__file__).parents[2]
SLOWED: Mapping[str, object] = {"matmul": {"calls": 13}, "convolution": {"calls": 13}, "step": {"calls": 26}}
"""30 % more work in each workload of the upgrade's own probe."""


@pytest.fixture
def place() -> ProbeTarget:
    engine = connect()
    workspace = Workspace(ROOT)
    choice = choose("quickstart", (), workspace, load())
    (environment,) = choice.environments
    built = ensure(environment, choice.catalog, workspace, engine, lambda _: None)
    return ProbeTarget(engine, built.record.image)


@pytest.mark.full
@pytest.mark.engine
@pytest.mark.network
@pytest.mark.timeout(7200)
def test_same_image_never_changes_and_planted_slow_down_of_30_percent_is_found(place: ProbeTarget) -> None:
    claims: list[str] = []
    found: Counter[str] = Counter()
    for number in range(1, COMPARISONS + 1):
        sides: tuple[list[TimingSample], list[TimingSample], list[TimingSample]] = ([], [], [])
        for round_ in range(PROBE_ROUNDS):
            for side in (0, 1, 2) if round_ % 2 == 0 else (2, 1, 0):
                sides[side].append(ask(place, "timing", TimingSample, SLOWED if side == 2 else {}))
        same, slowed = (compare(samples(sides[0], other), Settings()) for other in sides[1:])
        claims += [f"{number}: {one.name} {one.change}" for one in same if one.change in {"slower", "faster"}]
        found.update(one.name for one in slowed if one.name.startswith("work.") and one.change == "slower")
        sys.stdout.write(f"{number}: changed {claims}, found {dict(found)}\n")
    assert not claims
    assert len(found) == len(SLOWED)
    assert min(found.values()) >= COMPARISONS - 1
