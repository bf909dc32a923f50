"""The upgrade's statistics against this machine's own noise: fresh processes, both sides in turn."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from envbuilder.comparing.observed import Timed
from envbuilder.comparing.statistics import Change, Samples, Settings, compare
from envbuilder.upgrading.measuring import samples

pytestmark = pytest.mark.slow

COMPARISONS = 20
ROUNDS = 8

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


def process(calls: int) -> Timed:
    """Measure in a fresh process; ``calls`` of 13 is a slow-down of 30 %."""
    done = subprocess.run([sys.executable, "-c", PROCESS, str(calls)], capture_output=True, check=True)
    return Timed(**json.loads(done.stdout))


def comparison() -> tuple[tuple[Samples, ...], tuple[Samples, ...]]:
    """Measure A, A again and a slowed A in turn; return A against A, and A against the slowed one."""
    sides: tuple[list[Timed], list[Timed], list[Timed]] = ([], [], [])
    for round_ in range(ROUNDS):
        order = (0, 1, 2) if round_ % 2 == 0 else (2, 1, 0)
        for side in order:
            sides[side].append(process(13 if side == 2 else 10))
    return samples(sides[0], sides[1]), samples(sides[0], sides[2])


def test_no_claim_about_the_same_and_a_planted_slow_down_is_found() -> None:
    """In 20 comparisons the same is never called changed, and 30 % more work is called slower in at least 19."""
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
