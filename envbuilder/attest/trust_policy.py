"""Decide whether the statements about a digest meet a requirement, and each of several host classes.

Denies by default; every refusal has a reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from envbuilder.attest.envelope import SignedBy
from envbuilder.attest.requirements import (
    CLOCK_SKEW,
    GpuRequirement,
    ModelOf,
    Refusal,
    Requirement,
    age_s,
    driver_branch,
    inconsistent,
    moment,
    rank,
    read_driver,
    read_gpu,
    shortcomings,
)
from envbuilder.attest.statements import FailedResult, Meaning, Notice, Unread, VerdictPredicate
from envbuilder.errors import Reason, UsageError
from envbuilder.verdict import LEVELS, CheckLevel, KindStanding, KindState, Verdict, is_passed


@dataclass(frozen=True)
class AttachedStatement:
    """A document that is attached to an image (``stored`` is its digest), and its trusted signers.

    ``meaning`` is None for a trusted statement of another kind than verdicts. ``copies`` are the digests of documents
    with the same content, since anybody can attach one again: as a bundle, or with fewer signatures.
    """

    stored: str
    signed_by: tuple[SignedBy, ...]
    meaning: Meaning
    copies: frozenset[str] = frozenset()

    def trusted_at(self, time: datetime) -> tuple[str, ...]:
        return tuple(one.name for one in self.signed_by if one.is_trusted_at(time))

    @property
    def verdict(self) -> Verdict | None:
        return self.meaning.verdict if isinstance(self.meaning, VerdictPredicate) else None

    @property
    def names(self) -> frozenset[str]:
        """The statements that a trusted statement says it saw."""
        if not self.signed_by or not isinstance(self.meaning, VerdictPredicate | Notice):
            return frozenset()
        return frozenset(self.meaning.answers + self.meaning.previous)


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict that meets the requirement, or every reason why none does.

    ``notes`` are refusals that changed nothing. ``state`` is the answer in a word for the required host class,
    ``failures`` each valid FAILED of it, ``suites`` the suites of every real verdict of it.
    """

    state: KindState
    verdict: Verdict | None = None
    signed_by: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[Refusal, ...] = ()
    failures: tuple[Refusal, ...] = ()
    suites: tuple[str, ...] = ()

    @property
    def accepted(self) -> bool:
        return self.state == "passed"


class _Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A readable verdict, its signers who are trusted today, and the reasons why it does not meet the requirement."""

    verdict: Verdict
    stored: str
    signers: tuple[str, ...]
    found: tuple[Refusal, ...]


def decide(
    evidence: tuple[AttachedStatement, ...], wanted: Requirement, now: datetime, *, threshold: int = 1
) -> Decision:
    """Accept a digest if a verdict meets every requirement and no trusted statement forbids it.

    A statement that is not understood forbids, and so does a FAILED or a withdrawal that nothing answers.
    ``threshold`` is the number of keys that have to sign, also an answer.
    """
    judged = [_judge(item, verdict, wanted, now) for item in evidence if (verdict := item.verdict) is not None]
    unread: dict[bool, list[Refusal]] = {True: [], False: []}
    for item in evidence:
        if isinstance(one := item.meaning, Unread):
            blocks = one.blocks and len(_answered_by(item, evidence, now)) < threshold
            unread[blocks].append(Refusal(reason=one.reason, statement=item.stored, message=one.message))
    blocking, passed_over = tuple(unread[True]), tuple(unread[False])
    found = tuple(refusal for one in judged for refusal in one.found)
    failures = tuple(_in_force(evidence, found, wanted, now, threshold))
    accepted = sorted((one for one in judged if not one.found), key=lambda one: moment(one.verdict.finished))[::-1]
    # The signers of the newest verdict come first: it is shown, and the answer names its first signer.
    signers = tuple(dict.fromkeys(name for one in accepted for name in one.signers))
    refusals = (*blocking, *failures)
    if not accepted:
        refusals = tuple(dict.fromkeys((*refusals, *found)))
    elif len(signers) < threshold:
        text = f"{len(signers)} of the {threshold} required keys signed a verdict that meets the requirement"
        refusals = (*refusals, Refusal(reason=Reason.TOO_FEW_KEYS, message=text))
    if accepted and not refusals:
        state: KindState = "passed"
    elif accepted or blocking or failures:
        state = "failed" if failures else "refused"
    else:
        state = _state_without(judged)
    return Decision(
        state=state,
        verdict=accepted[0].verdict if state == "passed" else None,
        signed_by=signers if state == "passed" else (),
        refusals=refusals,
        notes=(*passed_over, *found) if accepted else passed_over,
        failures=failures,
        suites=_suites(judged, failures),
    )


ELSEWHERE = frozenset((Reason.OTHER_DRIVER, Reason.OTHER_GPU))
"""The reasons of a verdict that was reached on another host class than the required one."""


def _suites(judged: list[_Judged], failures: tuple[Refusal, ...]) -> tuple[str, ...]:
    """Return the suites that ran on the required host class, or that found a failure of every host."""
    failed = {refusal.statement for refusal in failures}
    return tuple(
        dict.fromkeys(
            one.verdict.suite
            for one in judged
            if not one.verdict.unreal
            and (one.stored in failed or not {refusal.reason for refusal in one.found} & ELSEWHERE)
        )
    )


def _state_without(judged: list[_Judged]) -> KindState:
    """Return in a word why no verdict is accepted. Simulated verdicts do not count."""
    reasons = [{refusal.reason for refusal in one.found} for one in judged if not one.verdict.unreal]
    here = [found for found in reasons if not found & ELSEWHERE]
    if any(found == {Reason.EXPIRED} for found in here):
        return "stale"
    if any(Reason.INCONCLUSIVE in found for found in here):
        return "inconclusive"
    return "refused" if here else "missing"


def _in_force(
    evidence: tuple[AttachedStatement, ...],
    found: tuple[Refusal, ...],
    wanted: Requirement,
    now: datetime,
    threshold: int,
) -> Iterator[Refusal]:
    """Yield each FAILED and withdrawal that too few keys answer."""
    failed = {one.statement: one for one in found if one.reason is Reason.FAILED}
    stated = [_failures(one) for one in _real(evidence) if one.verdict == "FAILED"]
    for item in evidence:
        one, refusal, then = item.meaning, failed.get(item.stored), now
        if isinstance(one, VerdictPredicate):
            then = moment(one.verdict.finished)
            if one.verdict.unreal or not concerns(one.verdict, wanted):
                continue
        elif isinstance(one, Notice) and not one.answers:
            text, then = f"withdrawn: {one.reason}; said by {_signers(item)} on {one.time}", moment(one.time)
            refusal = Refusal(reason=Reason.WITHDRAWN, statement=item.stored, message=text)
        elif isinstance(one, FailedResult) and not any(one.checks <= checks for checks in stated):
            names = ", ".join(sorted(one.checks)[:5])
            text = f"a test result by {_signers(item)} is FAILED ({names}), and its verdict is not there"
            refusal = Refusal(reason=Reason.FAILED, statement=item.stored, message=text)
        if refusal is None or not item.trusted_at(min(then, now)):  # a signer may write a time in the future
            continue
        if len(_answered_by(item, evidence, now)) < threshold:
            yield refusal


def _answered_by(item: AttachedStatement, evidence: tuple[AttachedStatement, ...], now: datetime) -> frozenset[str]:
    """Return the trusted keys with a statement that answers another: a person's notice, or a verdict that may.

    A verdict's suite must not be older. A suite is older than another if it ran earlier for the first time.
    """
    first = {
        suite: time for time, suite in sorted(((moment(v.finished), v.suite) for v in _real(evidence)), reverse=True)
    }
    revoking = item.verdict
    signers: set[str] = set()
    for other in evidence:
        one = other.meaning
        if isinstance(one, VerdictPredicate | Notice) and not {item.stored, *item.copies}.isdisjoint(one.answers):
            passed = other.verdict
            newer = (
                passed
                and revoking
                and supersedes(passed, revoking, now)
                and first[passed.suite] >= first[revoking.suite]
            )
            if isinstance(one, Notice) or newer:
                signers.update(other.trusted_at(now))
    return frozenset(signers)


def _real(evidence: tuple[AttachedStatement, ...]) -> tuple[Verdict, ...]:
    return tuple(one for item in evidence if (one := item.verdict) is not None and not one.unreal)


def _judge(item: AttachedStatement, verdict: Verdict, wanted: Requirement, now: datetime) -> _Judged:
    """Assess a verdict. An expired key accepts nothing; its FAILED verdicts from before that day stay valid."""
    found = shortcomings(item.stored, verdict, wanted, now)
    said = f"; said by {_signers(item)} on {verdict.finished}"
    found = tuple(
        msgspec.structs.replace(one, message=one.message + said) if one.reason is Reason.FAILED else one
        for one in found
    )
    signers = item.trusted_at(now)
    if not signers:
        text = f"signed by {_signers(item)}, which was trusted until {item.signed_by[0].expires}"
        found = (*found, Refusal(reason=Reason.EXPIRED_KEY, statement=item.stored, message=text))
    return _Judged(verdict=verdict, stored=item.stored, signers=signers, found=found)


def _signers(item: AttachedStatement) -> str:
    return ", ".join(one.name[:16] for one in item.signed_by)


_ON_GPU = ("gpu", "multi-gpu")


def failed_levels(verdict: Verdict) -> tuple[CheckLevel, ...]:
    """Return the levels in which a verdict's checks failed, crashed or ran out of time, lowest first."""
    failed = {check.level for check in verdict.checks if check.outcome in ("failed", "error", "timeout")}
    return tuple(level for level in LEVELS if level in failed)


def concerns(verdict: Verdict, wanted: Requirement) -> bool:
    """Return True if a FAILED is about the requirement.

    A failure below the gpu level applies to every host. A failure on a GPU applies to that host class: its GPU model
    and its driver's branch. A requirement without a host class means all of them.
    """
    failed, host = failed_levels(verdict), verdict.host
    if not failed or any(level not in _ON_GPU for level in failed) or not host.gpus or host.driver is None:
        return True
    other_gpu = wanted.gpu is not None and not any(map(wanted.gpu.is_model_of, host.gpus))
    other_driver = wanted.driver is not None and driver_branch(wanted.driver) != driver_branch(host.driver)
    return not (other_gpu or other_driver)


def supersedes(passed: Verdict, failed: Verdict, now: datetime) -> bool:
    """Return True for a newer, real PASSED in which every failed check of a FAILED passed, on the same host class.

    A FAILED without a failed check needs a higher level.
    """
    if passed.verdict != "PASSED" or passed.unreal or inconsistent(passed):
        return False
    if not moment(failed.finished) < moment(passed.finished) <= now + CLOCK_SKEW:
        return False
    levels = failed_levels(failed)
    if not _failures(failed) <= {check.name for check in passed.checks if is_passed(check)}:
        return False
    as_far = rank(passed.level) >= rank(levels[-1]) if levels else rank(passed.level) > rank(failed.level)
    on_gpu = any(level in _ON_GPU for level in levels)
    return as_far and (not on_gpu or _kind(passed) == _kind(failed))


def _failures(verdict: Verdict) -> frozenset[str]:
    return frozenset(check.name for check in verdict.checks if check.outcome != "skipped" and not is_passed(check))


def _kind(verdict: Verdict) -> tuple[frozenset[str], str]:
    host = verdict.host
    return frozenset(gpu.name.casefold() for gpu in host.gpus), driver_branch(host.driver or "")


@dataclass(frozen=True)
class HostClass:
    """A GPU and a driver, of which ``535`` is a branch; any host without both."""

    gpu: GpuRequirement | None = None
    driver: str = ""

    def __str__(self) -> str:
        return f"{self.gpu}/{self.driver}" if self.gpu else "any host"


def parse_host_classes(text: str, model_of: ModelOf) -> tuple[HostClass, ...]:
    """Read ``H100/535, A100/550``, each class once. Raises UsageError for another form and for an unknown GPU."""
    return tuple(dict.fromkeys(_host_class(part.strip(), model_of) for part in text.split(",")))


def _host_class(text: str, model_of: ModelOf) -> HostClass:
    gpu, slash, driver = (part.strip() for part in text.rpartition("/"))
    if not slash:
        raise UsageError(f"{text!r} is not a host class", hint="a GPU and a driver's branch or release: H100/535")
    return HostClass(read_gpu(gpu, model_of), read_driver(driver))


@dataclass(frozen=True)
class ClassDecision:
    """The state of a digest on one host class, the decision behind it, and the refusals of this class."""

    kind: HostClass
    standing: KindStanding
    decision: Decision
    refusals: tuple[Refusal, ...]


def decide_by_class(
    evidence: tuple[AttachedStatement, ...],
    wanted: Requirement,
    kinds: tuple[HostClass, ...],
    now: datetime,
    *,
    threshold: int = 1,
) -> tuple[ClassDecision, ...]:
    """Decide for each host class.

    A FAILED in the gpu levels counts for its own class, one below them for every class.
    """
    found = []
    for kind in kinds:
        here = replace(wanted, gpu=kind.gpu, driver=kind.driver or None)
        found.append(_of_class(kind, decide(evidence, here, now, threshold=threshold), now))
    return tuple(found)


_MISSING = Refusal(reason=Reason.KIND_MISSING, message="no real verdict is from this host class")


def _refusals(decision: Decision) -> tuple[Refusal, ...]:
    """Return the refusals of a class, without those of verdicts of other classes."""
    elsewhere = {refusal.statement for refusal in decision.refusals if refusal.reason in ELSEWHERE} - {""}
    here = tuple(one for one in decision.refusals if one.statement not in elsewhere)
    return {"passed": (), "failed": decision.failures, "missing": (_MISSING,)}.get(decision.state, here)


def _of_class(kind: HostClass, decision: Decision, now: datetime) -> ClassDecision:
    found, verdict = _refusals(decision), decision.verdict
    standing = KindStanding(
        kind=str(kind),
        gpu=str(kind.gpu or ""),
        driver=kind.driver,
        state=decision.state,
        suites=decision.suites,
        why="; ".join(dict.fromkeys(refusal.message for refusal in found)),
        level=verdict.level if verdict else None,
        ran_on=verdict.host.driver if verdict else None,
        finished=verdict.finished if verdict else "",
        age_s=age_s(verdict, now) if verdict else None,
        signers=decision.signed_by,
    )
    named = tuple(msgspec.structs.replace(one, message=f"{kind}: {one.message}") for one in found)
    return ClassDecision(kind, standing, decision, named)
