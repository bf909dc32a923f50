"""How a decision is shown: the row at the top, the grounds of a REJECT first and whole, then what would decide it."""

import re
from typing import Any

from factories import upgrade
from msgspec.structs import replace
from upgrades import CALM, side, timed

from envbuilder.upgrade.document import Clause, OutcomeChange, UpgradeDocument
from envbuilder.upgrade.statistics import Interval
from envbuilder.upgrade.text import as_markdown, as_text, sections

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
