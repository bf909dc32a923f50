"""An undecided upgrade says what would decide it, and figures that cannot be misread."""

from __future__ import annotations

import random

import pytest
from factories import failed_verdict
from msgspec.structs import replace
from upgrades import CALM, judged, side, suite

from envbuilder.upgrade import statistics
from envbuilder.upgrade.build import reasons
from envbuilder.upgrade.document import Differences
from envbuilder.upgrade.policy import MOST, ComparedImages, needed, would_decide
from envbuilder.upgrade.statistics import Interval, Samples, Settings
from envbuilder.upgrade.text import SPEED_CHANGED, speed_changed
from envbuilder.verdict import CheckResult, Verdict


def said(differences_: Differences, rounds: int = 15, **new: object) -> tuple[str, ...]:
    _, clauses = judged(differences_, **new)
    return would_decide(
        tuple(clauses.values()), ComparedImages(side("2.15.1"), side("2.16.2", **new), differences_), rounds
    )


def noisy(ratio: float, noise: float, rounds: int = 15) -> tuple[statistics.RatioResult, ...]:
    source = random.Random(7)  # noqa: S311 - figures for a test
    old, new = (tuple(scale * source.lognormvariate(0, noise) for _ in range(rounds)) for scale in (1.0, ratio))
    same = Samples(name="work.x", old=(1.0,) * rounds, new=(1.0,) * rounds)
    return statistics.compare([Samples(name="start.total", old=old, new=new), same], Settings())


def test_interval_across_the_limit_suggests_rounds() -> None:
    (line,) = said(replace(CALM, timings=noisy(1.0, 0.25)))
    assert line.startswith("start-up-ratio: start.total is ")
    assert "the limit 1.25" in line
    assert "(--rounds " in line
    assert int(line.partition("(--rounds ")[2].partition(";")[0]) > 15


def test_too_few_rounds_suggest_the_minimum() -> None:
    lines = said(replace(CALM, timings=noisy(1.0, 0.01, rounds=3)), rounds=3)
    assert [line.partition(":")[0] for line in lines] == ["start-up-ratio", "work-ratio"]
    assert all("--rounds 15" in line for line in lines)


@pytest.mark.parametrize(
    ("ratio", "rounds"),
    [(Interval(1.0, 0.8, 1.3), 25), (Interval(1.24, 1.0, 1.5), MOST + 1), (Interval(1.25, 1.0, 1.5), MOST + 1)],
)
def test_too_many_rounds_are_not_suggested(ratio: Interval, rounds: int) -> None:
    assert needed(ratio, 1.25, 15) == rounds


def test_open_clause_has_a_suggestion() -> None:
    assert said(CALM) == ()
    assert said(CALM, verdict="INCONCLUSIVE", reasons=("load was not run",))[0].startswith(
        "verdict: a complete validation"
    )
    gpu = replace(side("2.16.2").environment, flavor="gpu", minimum_driver="525.60.13")
    assert said(CALM, verdict="INCONCLUSIVE", environment=gpu)[0] == (
        "verdict: the same command on a host with a GPU and driver 525.60.13 or newer"
    )
    expected = "tests-newly-failed: a suite that passes on 2.15.1: none of 3 passed on the old image"
    assert said(suite(0, 3))[0] == expected
    assert "numerics-outside: an answer of both images" in said(replace(CALM, numerics=None))[0]


def test_medians_that_disagree_with_the_ratio_are_not_shown() -> None:
    assert speed_changed(Interval(2.23, 2, 3), Interval(3.42, 3, 4), Interval(1.03, 0.91, 1.39))
    assert not speed_changed(Interval(2.0, 1, 3), Interval(2.1, 1, 3), Interval(1.03, 0.91, 1.39))
    fast, slow = (1.0,) * 8 + (3.0,) * 7, (1.0,) * 7 + (3.0,) * 8
    drifting = statistics.compare([Samples(name="start.total", old=fast, new=slow)], Settings())
    (row,) = drifting
    (line,) = judged(replace(CALM, timings=drifting))[1]["start-up-ratio"].details
    assert (SPEED_CHANGED in line) is speed_changed(row.old_s, row.new_s, row.ratio)
    assert speed_changed(row.old_s, row.new_s, row.ratio)


def test_skipped_checks_are_one_reason() -> None:
    names = [f"c{number}" for number in range(9)]
    checks = (
        *(CheckResult(name=name, level="cpu", outcome="skipped", observed="needs matmul") for name in names),
        CheckResult(name="matmul", level="cpu", outcome="failed", observed="wrong"),
    )
    told = (*(f"cpu: {name} was not run: needs matmul" for name in names), "cpu: matmul failed: wrong")
    verdict: Verdict = replace(failed_verdict(), checks=checks, requires=("static", "load", "cpu"), reasons=told)
    assert reasons(verdict) == (
        "cpu: matmul failed: wrong",
        "not run because of these: c0, c1, c2, c3, c4, c5 and 3 more",
    )
