"""The decision of `verify`, as a pure function: what satisfies a demand, and every reason against it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from factories import H100, check, digest, failed_verdict, gpu_verdict, inconclusive_verdict, verdict
from hypothesis import given
from hypothesis import strategies as st

from envbuilder.attest.envelope import SignedBy
from envbuilder.attest.requirements import RefusalReason, Requirement
from envbuilder.attest.statements import VERDICT, VerdictPredicate, about
from envbuilder.attest.trust_policy import TrustedStatement, decide
from envbuilder.verdict import GpuSeen, HostRef, ImageRef, Verdict

NOW = datetime(2026, 11, 21, tzinfo=UTC)
SUBJECT = digest("manifest")


def evidence(value: Verdict, subject: str = SUBJECT) -> TrustedStatement:
    statement = about("image", subject, VERDICT, VerdictPredicate(verdict=value))
    return TrustedStatement(stored=digest(repr(value)), signed_by=(SignedBy(name="key"),), statement=statement)


def reasons(value: Verdict, demand: Requirement | None = None) -> list[RefusalReason]:
    decision = decide(SUBJECT, (evidence(value),), demand or Requirement(), NOW)
    assert decision.accepted == (not decision.refusals)
    return [refusal.reason for refusal in decision.refusals]


@pytest.mark.parametrize(
    ("value", "demand", "expected"),
    [
        (verdict(), Requirement(level="cpu"), []),
        (verdict(), Requirement(level="load"), []),
        (verdict(), Requirement(level="gpu"), [RefusalReason.LEVEL_TOO_LOW]),
        (gpu_verdict(), Requirement(level="gpu", driver="535", gpu="H100"), []),
        (gpu_verdict(), Requirement(level="gpu", driver="535.104.05", gpu="nvidia h100"), []),
        (gpu_verdict(), Requirement(level="gpu", driver="550"), [RefusalReason.OTHER_DRIVER]),
        (gpu_verdict(), Requirement(level="gpu", driver="53"), [RefusalReason.OTHER_DRIVER]),
        (gpu_verdict(), Requirement(level="gpu", gpu="A100"), [RefusalReason.OTHER_GPU]),
        (gpu_verdict(), Requirement(level="gpu", gpu="H10"), [RefusalReason.OTHER_GPU]),
        (verdict(), Requirement(driver="535", gpu="H100"), [RefusalReason.OTHER_DRIVER, RefusalReason.OTHER_GPU]),
        (failed_verdict(), Requirement(level="static"), [RefusalReason.FAILED]),
        (inconclusive_verdict(), Requirement(level="load"), [RefusalReason.INCONCLUSIVE]),
        (verdict(simulated=True), Requirement(), [RefusalReason.SIMULATED]),
        (verdict(finished="2026-06-01T00:00:00+00:00"), Requirement(), [RefusalReason.EXPIRED]),
        (verdict(finished="2026-12-01T00:00:00+00:00"), Requirement(), [RefusalReason.EXPIRED]),
        (verdict(finished="yesterday"), Requirement(), [RefusalReason.UNREADABLE]),
        (verdict(finished="2026-11-20T00:00:00"), Requirement(), [RefusalReason.UNREADABLE]),
        (verdict(image=ImageRef(id="x", digest=digest("other"))), Requirement(), [RefusalReason.WRONG_SUBJECT]),
    ],
)
def test_each_shortcoming_has_its_reason(value, demand, expected) -> None:
    assert reasons(value, demand) == expected


def test_nothing_is_accepted_without_evidence() -> None:
    assert not decide(SUBJECT, (), Requirement(), NOW).accepted


def test_a_statement_about_another_digest_is_refused() -> None:
    other = verdict(image=ImageRef(id="x", digest=digest("other")))
    decision = decide(SUBJECT, (evidence(other, digest("other")),), Requirement(), NOW)
    assert [refusal.reason for refusal in decision.refusals] == [RefusalReason.WRONG_SUBJECT]


def test_one_verdict_of_several_is_enough() -> None:
    later = inconclusive_verdict(finished="2026-11-20T20:00:00+00:00")
    decision = decide(SUBJECT, (evidence(gpu_verdict()), evidence(later)), Requirement(level="gpu"), NOW)
    assert decision.accepted
    assert decision.verdict == gpu_verdict()


def test_a_later_failure_revokes_an_earlier_pass() -> None:
    later = failed_verdict(finished="2026-11-20T20:00:00+00:00")
    earlier = failed_verdict(finished="2026-11-01T20:00:00+00:00")
    for items in ((verdict(), later), (later, verdict())):
        decision = decide(SUBJECT, tuple(map(evidence, items)), Requirement(), NOW)
        assert [refusal.reason for refusal in decision.refusals] == [RefusalReason.FAILED]
        assert not decision.accepted
    assert decide(SUBJECT, (evidence(earlier), evidence(verdict())), Requirement(), NOW).accepted


def test_a_failure_on_another_gpu_does_not_count() -> None:
    """What fails on a T4 may be deployed on an H100, where the H100 was asked for."""
    host = HostRef(driver="535.104.05", gpus=(GpuSeen(name="Tesla T4", compute_capability="7.5"),))
    on_gpu = (check("matmul", "failed", level="gpu"),)
    failed = failed_verdict(host=host, finished="2026-11-20T20:00:00+00:00", level="cpu", checks=on_gpu)
    both = (evidence(gpu_verdict()), evidence(failed))
    assert decide(SUBJECT, both, Requirement(level="gpu", gpu="H100"), NOW).accepted
    assert not decide(SUBJECT, both, Requirement(level="gpu"), NOW).accepted


TWO = HostRef(driver="535.104.05", gpus=(H100, H100))
HONEST = {
    "cpu": verdict(),
    "gpu": gpu_verdict(),
    "multi-gpu": gpu_verdict(
        level="multi-gpu", host=TWO, checks=(*gpu_verdict().checks, check("all-reduce", level="multi-gpu"))
    ),
}
LEVELS = ("none", "static", "load", "cpu", "gpu", "multi-gpu")


@given(
    st.tuples(st.sampled_from(sorted(HONEST)), st.sampled_from(LEVELS)),
    st.sampled_from(LEVELS),
    st.floats(min_value=0, max_value=200),
    st.sampled_from(["PASSED", "FAILED", "INCONCLUSIVE"]),
    st.booleans(),
)
def test_only_a_real_fresh_pass_at_the_level_is_accepted(levels, level, age_days, word, simulated) -> None:
    came_to, reached = levels
    finished = (NOW - timedelta(days=age_days)).isoformat()
    changed = {"verdict": word, "level": reached, "simulated": simulated, "finished": finished}
    value = msgspec.structs.replace(HONEST[came_to], **changed)
    decision = decide(SUBJECT, (evidence(value),), Requirement(level=level), NOW)
    sound = word == "PASSED" and not simulated and age_days <= 90 and reached == came_to
    sound = sound and LEVELS.index(reached) >= LEVELS.index(level)
    assert decision.accepted == sound
    assert bool(decision.refusals) != sound
