# ruff: noqa: INP001, T201 - benchmarks are programs, not a package, and print what they measured
"""Measure what the upgrade's statistics claim under this machine's own noise, in fresh processes of one image.

    python benchmarks/noise.py [COMPARISONS]

Each comparison has three sides, which take turns: the image, the same image, and the image with 30 % more work. The
second must never be called slower or faster; in the third each workload must be called slower in all comparisons but
one. A comparison takes two to three minutes.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from envbuilder.catalog.store import load
from envbuilder.choice import choose
from envbuilder.engine.docker import connect
from envbuilder.image.build import ensure
from envbuilder.upgrade.document import TimingSample
from envbuilder.upgrade.observe import ProbeTarget, ask, samples
from envbuilder.upgrade.statistics import Settings, compare
from envbuilder.workspace import Workspace

ROUNDS = 12
"""Fewer than an upgrade's own 15, and enough for one process of a comparison to be disturbed all the time."""

ROOT = Path(__file__).resolve().parents[1]
SLOWED: Mapping[str, object] = {"matmul": {"calls": 13}, "convolution": {"calls": 13}, "step": {"calls": 26}}
"""30 % more work in each workload of the upgrade's own probe."""

ORDER: tuple[tuple[int, Mapping[str, object]], ...] = ((0, {}), (1, {}), (2, SLOWED))


def target() -> ProbeTarget:
    engine, workspace = connect(), Workspace(ROOT)
    choice = choose("quickstart", (), workspace, load())
    (environment,) = choice.environments
    built = ensure(environment, choice.catalog, workspace, engine, lambda _: None)
    return ProbeTarget(engine, built.record.image)


def main(comparisons: str = "5") -> int:
    """Compare and print each answer; 1 if a change was claimed that is none, or a slow-down was missed twice."""
    image, claims, found = target(), list[str](), Counter[str]()
    for number in range(1, int(comparisons) + 1):
        sides: tuple[list[TimingSample], list[TimingSample], list[TimingSample]] = ([], [], [])
        for round_ in range(ROUNDS):
            for side, work in ORDER if round_ % 2 == 0 else reversed(ORDER):
                sides[side].append(ask(image, "timing", TimingSample, work))
        pairs = [list(zip(sides[0], other, strict=True)) for other in sides[1:]]
        same, slowed = (compare(tuple(samples(each)), Settings()) for each in pairs)
        claims += [f"{number}: {one.name} {one.change}" for one in same if one.change in {"slower", "faster"}]
        found.update(one.name for one in slowed if one.name.startswith("work.") and one.change == "slower")
        print(f"{number}: claimed without a change: {claims or 'nothing'}; found of 30 %: {dict(found)}", flush=True)
    held = not claims and len(found) == len(SLOWED) and min(found.values()) >= int(comparisons) - 1
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
