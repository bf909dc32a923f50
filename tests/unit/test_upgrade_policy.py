"""The policy: how figures become clauses, clauses a decision, what would decide an undecided one; and its text."""

import itertools
import random
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from factories import upgrade
from msgspec import structs
from msgspec.structs import replace
from table_rows import beside, rows
from upgrades import CALM, POLICY, compared, judged, occupied, side, suite, timed

from envbuilder.catalog import store
from envbuilder.errors import InputError
from envbuilder.upgrade import statistics
from envbuilder.upgrade.compare import CollectedEvidence, ImageEvidence, differences, sets
from envbuilder.upgrade.document import (
    Clause,
    Differences,
    Inventory,
    Numerics,
    Observations,
    OutcomeChange,
    Surface,
    UpgradeDocument,
    WarningLines,
)
from envbuilder.upgrade.policy import COMPUTED, MOST, ClauseRule, decide, judge, needed
from envbuilder.upgrade.statistics import Interval, Samples, Settings
from envbuilder.upgrade.text import SPEED_CHANGED, as_markdown, as_text, sections, speed, wording
from envbuilder.upgrade.upgrade import read_policy


def test_shipped_policy_names_every_quantity_once() -> None:
    clauses = wording().clauses
    assert sorted(rule.clause for rule in POLICY.clauses) == sorted(clauses)
    assert {name for name, text in clauses.items() if not text.rows} == set(COMPUTED)


def test_equal_images_are_adopted() -> None:
    assert judged(CALM)[0] == "ADOPT"


FAILED = OutcomeChange(name="t", old="passed", new="failed", message="no")


def differing(changed: dict[str, Any]) -> Differences:
    """Return `CALM` with other fields; measurements are a ratio and the number of rounds."""
    made: dict[str, Any] = {"timings": timed, "memory": occupied}
    measured = {name: make(*changed[name]) for name, make in made.items() if changed.get(name)}
    return msgspec.convert(msgspec.to_builtins({**structs.asdict(CALM), **changed, **measured}), Differences)


@rows
def test_violated_clause_gives_its_decision(changed: dict[str, Any], clause: str, decision: str) -> None:
    answer, clauses = judged(differing(changed))
    assert answer == decision
    assert clauses[clause].state == "violated"


@rows
def test_unknown_quantity_of_a_rejecting_clause_is_undecided(changed: dict[str, Any], clause: str) -> None:
    answer, clauses = judged(differing(changed))
    assert answer == "UNDECIDED"
    assert clauses[clause].state == "unknown"


def test_gpu_upgrade_without_a_gpu_is_undecided_or_rejected() -> None:
    assert judged(CALM, verdict="INCONCLUSIVE", level="load")[0] == "UNDECIDED"
    assert judged(replace(CALM, size_ratio=2.0), verdict="INCONCLUSIVE")[0] == "REJECT"


def test_clauses_without_request_decide_nothing() -> None:
    _, clauses = judged(CALM)
    without = {name for name, one in clauses.items() if one.state == "not asked"}
    assert without == set(beside(__file__)["without request"].split())


def test_slow_down_within_the_limit_is_ok_and_across_it_unknown() -> None:
    straddling = Samples(name="start.total", old=(1.0,) * 15, new=(1.0, 1.5, 1.24, 1.26, 1.3) * 3)
    timings = statistics.compare([straddling, Samples(name="work.x", old=(1.0,) * 15, new=(1.0,) * 15)], Settings())
    assert judged(replace(CALM, timings=timed(1.2)))[1]["start-up-ratio"].state == "ok"
    assert judged(replace(CALM, timings=timings))[1]["start-up-ratio"].state == "unknown"


STATES = ("ok", "not asked", "unknown", "violated")
RANK = ("ADOPT", "ADOPT_WITH_NOTES", "UNDECIDED", "REJECT")


def test_worse_clause_never_improves_the_decision() -> None:
    def clauses(first: str, second: str) -> tuple[Clause, Clause]:
        made = Clause(clause="a", says="", otherwise="reject", state="ok", limit=0, found="")
        return replace(made, state=first), replace(made, otherwise="note", state=second)

    for first, second in itertools.product(range(4), repeat=2):
        here = RANK.index(decide(clauses(STATES[first], STATES[second])))
        for worse in range(first, 4):
            assert RANK.index(decide(clauses(STATES[worse], STATES[second]))) >= here
        for worse in range(second, 4):
            assert RANK.index(decide(clauses(STATES[first], STATES[worse]))) >= here


def test_policy_with_one_clause_decides_by_it_and_by_the_verdict(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("name: sizes\nclauses:\n  - {clause: size-ratio, at_most: 1.5, otherwise: reject}\n")
    policy = read_policy(str(path), Path())
    assert policy.clauses[1:] == (ClauseRule(clause="size-ratio", at_most=1.5, otherwise="reject"),)
    misspelt = path.with_name("misspelt.yaml")
    misspelt.write_text(path.read_text().replace("size-ratio", "size-rato"))
    with pytest.raises(InputError, match=r"misspelt.yaml:3: clauses\[0\]: 'size-rato' .*size-ratio\?"):
        read_policy(str(misspelt), Path())
    found = compared(replace(CALM, size_ratio=1.4, checks=None))
    assert judge(found, policy).decision == "ADOPT"
    assert judge(replace(found, new=replace(found.new, verdict="FAILED")), policy).decision == "REJECT"


def test_differences_without_evidence_of_both_images_are_none() -> None:
    full = Observations(inventory=Inventory(), surface=Surface(), numerics=Numerics(), printed=WarningLines(), tests=())
    old, new = ImageEvidence(side("2.15.1"), full, ()), ImageEvidence(side("2.16.2"), Observations())
    found = differences(CollectedEvidence(old, new), (), store.load(), Settings())
    assert (found.packages, found.surface, found.numerics, found.warnings_new, found.checks, found.tests) == (None,) * 6
    assert found.timings is None


def test_pythons_of_a_local_wheel_are_not_compared() -> None:
    unknown = sets(side("2.15.1"), side("2.16.2", pythons=()))
    assert judged(replace(CALM, sets=unknown))[1]["pythons-lost"].state == "not asked"
    assert judged(CALM)[1]["pythons-lost"].state == "ok"


def test_clause_counts_tests_and_names_the_failing_ones() -> None:
    decision, clauses = judged(suite(37, 38))
    assert (decision, clauses["tests-newly-failed"].found) == ("ADOPT", "none of 38, 37 of 38 pass on both")
    decision, clauses = judged(replace(suite(37, 38), tests=(FAILED,)))
    assert (decision, clauses["tests-newly-failed"].found) == ("REJECT", "1 of 38 tests, 37 of 38 pass on both")
    assert clauses["tests-newly-failed"].details == ("t: passed → failed: no",)


def test_suite_that_fails_on_both_images_is_unknown() -> None:
    before = ("test_x.py: error on the old image: No module named 'x'",)
    decision, clauses = judged(suite(0, 1, failed_before=before))
    assert (decision, clauses["tests-newly-failed"].state) == ("UNDECIDED", "unknown")
    assert clauses["tests-failed-before"].details == before
    assert clauses["tests-failed-before"].state == "violated"
    assert judged(suite(3, 4, ended=False))[1]["tests-newly-failed"].state == "unknown"


def test_flaky_test_is_a_note() -> None:
    flaky = replace(FAILED, flaky=True, again="failed 2 of 6 runs on the new image")
    decision, clauses = judged(replace(suite(9, 10), tests=(flaky,)))
    assert (decision, clauses["tests-newly-failed"].state) == ("ADOPT_WITH_NOTES", "ok")
    assert "failed 2 of 6 runs on the new image" in clauses["tests-flaky"].details[0]


def said(differences_: Differences, rounds: int = 15, **new: Any) -> tuple[str, ...]:
    return judge(compared(differences_, rounds, **new), POLICY).would_decide


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
    expected = "tests-newly-failed: a suite of which some tests pass on both images: none of 3 pass on both"
    assert said(suite(0, 3))[0] == expected
    assert "numerics-outside: an answer of both images" in said(replace(CALM, numerics=None))[0]


def test_medians_that_disagree_with_the_ratio_are_not_shown() -> None:
    fast, slow = (1.0,) * 8 + (3.0,) * 7, (1.0,) * 7 + (3.0,) * 8
    drifting = statistics.compare([Samples(name="start.total", old=fast, new=slow)], Settings())
    (row,) = drifting
    (line,) = judged(replace(CALM, timings=drifting))[1]["start-up-ratio"].details
    assert speed(row) == SPEED_CHANGED
    assert SPEED_CHANGED in line
    steady = replace(row, old_s=Interval(2.0, 1, 3), new_s=Interval(2.1, 1, 3), ratio=Interval(1.03, 0.91, 1.39))
    assert speed(steady) == ""


LONG = [f"operation-{number}: {'x' * 150}" for number in range(40)]


def clause(name: str, otherwise: str, state: str, *details: str) -> Clause:
    return Clause(
        clause=name,
        says=f"says {name}",
        otherwise=otherwise,  # type: ignore[arg-type]
        state=state,  # type: ignore[arg-type]
        limit=0,
        found=str(len(details)),
        details=details,
    )


def document(decision: str, *clauses: Clause, **more: Any) -> UpgradeDocument:
    return UpgradeDocument(
        old=replace(side("2.19.1"), lock_is="committed"),
        new=replace(side("2.20.0"), lock_is="proposed"),
        flavor="cpu",
        decision=decision,  # type: ignore[arg-type]
        policy="default",
        clauses=clauses,
        differences=CALM,
        rounds=15,
        matrix="tensorflow",
        row="Python 3.11 on debian-bookworm",
        not_judged=("tf2.20.0-py39-cpu-bullseye",),
        **more,
    )


REJECTED = document(
    "REJECT",
    clause("names-removed", "note", "violated", "tf.estimator"),
    clause("start-up-ratio", "reject", "unknown", "start.total: 1.2 x"),
    clause("outputs-outside", "reject", "violated", *LONG),
)


def test_text_begins_with_row_and_images() -> None:
    first, title, on, others, *_ = as_text(REJECTED).splitlines()
    assert first == "REJECT: both are the same image; says outputs-outside: 40."
    assert title == "TensorFlow 2.19.1 → 2.20.0 (cpu): REJECT"
    assert on.startswith("on Python 3.11 on debian-bookworm, matrix tensorflow: ")
    assert f"{REJECTED.old.environment.id} (committed lock)" in on
    assert f"{REJECTED.new.environment.id} (proposed, close to the old lock)" in on
    assert others == "also in the matrix, not compared here (--select): tf2.20.0-py39-cpu-bullseye"


def test_text_names_a_version_outside_the_matrix() -> None:
    assert "in no matrix: " in as_text(replace(REJECTED, matrix="")).splitlines()[2]


def test_reasons_of_a_rejection_come_first_and_complete() -> None:
    (title, _, rows), (following, *_), *_ = sections(REJECTED)
    assert (title, following) == ("Why it is rejected", "What is open")
    assert rows == [("outputs-outside", line) for line in LONG]
    for text in (as_text(REJECTED), as_markdown(REJECTED)):
        assert all(line in text for line in LONG)
        assert text.index(LONG[-1]) < text.index("start.total: 1.2 x") < text.index("says names-removed")


def test_first_sentence_names_the_user_s_tests_and_longer_durations() -> None:
    failed = OutcomeChange(name="t.py::test_x", old="passed", new="failed", message="<A at 0x7f00aa00> /a/b/c/d.py")
    (timing, _) = timed(4.0)
    found = document("REJECT", clause("tests-newly-failed", "reject", "violated", "x"))
    slow = replace(timing, old_s=Interval(0.07, None, None), new_s=Interval(0.28, None, None))
    found = replace(found, differences=replace(CALM, tests=(failed,), tests_run=16, timings=(slow,)))
    found = replace(found, old=replace(found.old, image=None))
    text = as_text(found)
    expected = "REJECT: 1 of your 16 tests fail only on 2.20.0 (test_x); start-up 70 ms → 0.28 s."
    assert text.splitlines()[0] == expected
    assert expected.partition(" (")[0] in as_markdown(found).splitlines()[2]
    assert "<A at 0x…> …/d.py" in text
    reason = "load: import failed: cannot import x (/opt/venv/lib/python3.11/site-packages/y/__init__.py)"
    refused = document("REJECT", clause("verdict", "reject", "violated", reason))
    assert "cannot import x (…/__init__.py)" in as_text(refused)


def test_undecided_answer_begins_with_open_clauses_and_advice() -> None:
    found = document(
        "UNDECIDED",
        clause("start-up-ratio", "reject", "unknown", "start.total: 1.2 x"),
        would_decide=("start-up-ratio: about 45 rounds",),
    )
    assert [title for title, *_ in sections(found)][:3] == ["What is open", "What would decide it", "Images"]
    assert "about 45 rounds" in as_text(found)


def test_markdown_escapes_bars_and_tags() -> None:
    text = as_markdown(upgrade("no | estimator <b>"))
    assert "no \\| estimator &lt;b&gt;" in text
    bars = re.compile(r"(?<!\\)\|")
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(bars.findall(line)) for line in block.splitlines()}) == 1
