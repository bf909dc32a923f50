"""Decide whether statements about a digest meet a requirement, on each of several host classes; deny by default."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from envbuilder import versions
from envbuilder.attest.envelope import SignedBy
from envbuilder.attest.requirements import (
    CLOCK_SKEW,
    DRIVER,
    HostClass,
    Refusal,
    Refusals,
    Requirement,
    age_s,
    comparisons,
    inconsistent,
    moment,
    rank,
)
from envbuilder.attest.statements import FailedResult, Linked, Meaning, Notice, Unread, VerdictPredicate
from envbuilder.errors import Reason
from envbuilder.verdict import CheckResult, HostClassState, StateName, Verdict, is_passed


@dataclass(frozen=True)
class AttachedStatement:
    """A document that is attached to an image (``stored`` is its digest), and its trusted signers.

    ``meaning`` is None for a trusted statement of another kind than verdicts. ``copies`` are the digests of documents
    with the same content, since anybody can attach one again. One about the image ``below`` accepts nothing.
    """

    stored: str
    signed_by: tuple[SignedBy, ...]
    meaning: Meaning
    copies: frozenset[str] = frozenset()
    below: bool = False

    def trusted_at(self, time: datetime) -> tuple[str, ...]:
        return tuple(one.name for one in self.signed_by if one.expires is None or time <= one.expires)

    def expired(self, what: str = "") -> Refusal:
        text = f"{what}signed by {self.signers}, which was trusted until {self.signed_by[0].expires}"
        return Refusal(reason=Reason.EXPIRED_KEY, statement=self.stored, message=text)

    @property
    def verdict(self) -> Verdict | None:
        return self.meaning.verdict if isinstance(self.meaning, VerdictPredicate) else None

    @property
    def refuses(self) -> bool:
        """Return True if it refuses the image, for some hosts at least, until it is answered."""
        if isinstance(said := self.meaning, Unread):
            return said.blocks
        is_notice = isinstance(said, Notice) and not said.answers
        return self.verdict.verdict == "FAILED" if self.verdict else is_notice or isinstance(said, FailedResult)

    @property
    def signers(self) -> str:
        return ", ".join(one.name[:16] for one in self.signed_by)

    @property
    def claim(self) -> tuple[object, ...]:
        """The words of a notice and its signers; any other statement is a claim of its own."""
        said = self.meaning
        return (said.reason, said.answers, self.signed_by) if isinstance(said, Notice) else (self.stored,)

    @property
    def links(self) -> Linked:
        return self.meaning if isinstance(self.meaning, Linked) else Linked()


Evidence = tuple[AttachedStatement, ...]


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict that meets the requirement, or every reason why none does.

    ``notes`` are refusals that changed nothing. ``state`` is the answer in a word for the required host class,
    ``failures`` each valid FAILED of it, ``suites`` the suites of every real verdict of it. ``standing`` says that
    of one class of several.
    """

    state: StateName
    verdict: Verdict | None = None
    signed_by: tuple[str, ...] = ()
    refusals: Refusals = ()
    notes: Refusals = ()
    failures: Refusals = ()
    suites: tuple[str, ...] = ()
    standing: HostClassState | None = None


def decide(evidence: Evidence, wanted: Requirement, now: datetime) -> Decision:
    """Accept a digest if a verdict meets every requirement and no trusted statement forbids it.

    A statement that is not understood forbids, and so does a FAILED or a withdrawal that nothing answers.
    """
    judged = [(item, one, tuple(_unmet(item, one, wanted, now))) for item in evidence if (one := item.verdict)]
    blocking: list[Refusal] = []
    passed_over: list[Refusal] = []
    for item in evidence:
        if isinstance(unread := item.meaning, Unread):
            blocks = unread.blocks and len(_answered_by(item, evidence, now)) < wanted.threshold
            refusal = Refusal(reason=unread.reason, statement=item.stored, message=unread.message, next=unread.next)
            (blocking if blocks else passed_over).append(refusal)
        if isinstance(said := item.meaning, Notice):
            time, what = (now, "answer") if said.answers else (min(moment(said.time), now), "withdrawal")
            if not item.trusted_at(time):
                passed_over.append(item.expired(f"this {what} ({said.reason}) does not count: "))
    found = tuple(refusal for *_, unmet in judged for refusal in unmet)
    failures = tuple(_in_force(evidence, found, wanted, now))
    meeting = ((item, one) for item, one, unmet in judged if not unmet and not item.below)
    accepted = sorted(meeting, key=lambda each: moment(each[1].finished), reverse=True)
    # The signers of the newest verdict come first: it is shown, and the answer names its first signer.
    signers = tuple(dict.fromkeys(name for item, _ in accepted for name in item.trusted_at(now)))
    refusals = (*blocking, *failures)
    if not accepted:
        refusals = tuple(dict.fromkeys((*refusals, *found)))
    elif len(signers) < wanted.threshold:
        text = f"{len(signers)} of the {wanted.threshold} required keys signed a verdict that meets the requirement"
        refusals = (*refusals, Refusal(reason=Reason.TOO_FEW_KEYS, message=text))
    passed = bool(accepted) and not refusals
    real = [(item.stored, one.suite, {no.reason for no in unmet}) for item, one, unmet in judged if not one.unreal]
    failed = {refusal.statement for refusal in failures}  # those of every host count too
    suites = dict.fromkeys(suite for stored, suite, why in real if stored in failed or not why & ELSEWHERE)
    here = [why for *_, why in real if not why & ELSEWHERE]
    without: StateName = "refused" if accepted or blocking else _state_without(here)
    return Decision(
        state="passed" if passed else "failed" if failures else without,
        verdict=accepted[0][1] if passed else None,
        signed_by=signers if passed else (),
        refusals=refusals,
        notes=(*passed_over, *(found if accepted else ())),
        failures=failures,
        suites=tuple(suites),
    )


ELSEWHERE = frozenset((Reason.OTHER_DRIVER, Reason.OTHER_GPU))  # of a verdict that was reached on another host class


def _state_without(here: list[set[Reason]]) -> StateName:
    if {Reason.EXPIRED} in here:
        return "stale"
    if any(Reason.INCONCLUSIVE in found for found in here):
        return "inconclusive"
    return "refused" if here else "missing"


def _in_force(evidence: Evidence, found: Refusals, wanted: Requirement, now: datetime) -> Iterator[Refusal]:
    """Yield each FAILED and withdrawal that too few keys answer."""
    failed = {one.statement: one for one in found if one.reason is Reason.FAILED}
    for item in evidence:
        one, refusal, then = item.meaning, failed.get(item.stored), now
        if isinstance(one, VerdictPredicate):
            then = moment(one.verdict.finished)
            if one.verdict.unreal or not concerns(one.verdict, wanted):
                continue
        elif isinstance(one, Notice) and not one.answers:
            text, then = f"withdrawn: {one.reason}; said by {item.signers} on {one.time}", moment(one.time)
            refusal = Refusal(reason=Reason.WITHDRAWN, statement=item.stored, message=text)
        elif isinstance(one, FailedResult) and not any(map(one.is_of, _real(evidence))):
            names = ", ".join(sorted(one.checks)[:5])
            text = f"a test result by {item.signers} is FAILED ({names}), and its verdict is not there"
            refusal = Refusal(reason=Reason.FAILED, statement=item.stored, message=text)
        # A signer may write a time in the future.
        trusted = refusal is not None and item.trusted_at(min(then, now))
        if refusal and trusted and len(_answered_by(item, evidence, now)) < wanted.threshold:
            yield refusal


def _answered_by(item: AttachedStatement, evidence: Evidence, now: datetime) -> frozenset[str]:
    """Return the trusted keys with a statement that answers another: a person's notice, or a verdict that may.

    A verdict's suite must not be older. A suite is older than another if it ran earlier for the first time. An answer
    to one notice answers the same notice, of a repeated command, if each signer of an answer to one saw the other.
    """
    ran = sorted(((moment(one.finished), one.suite) for one in _real(evidence)), reverse=True)
    first, revoking = {suite: time for time, suite in ran}, item.verdict
    same, signers = {item.stored, *item.copies}, set[str]()
    before = {name for one in evidence if same.isdisjoint(one.links.previous) for name in one.links.answers}
    equal = {one.stored for one in evidence if one.claim == item.claim and one.stored not in before}
    for other in evidence:
        saw = not same.isdisjoint(other.links.previous)
        if not (same | equal if saw else same).isdisjoint(other.links.answers):
            passed = other.verdict
            newer = passed and revoking and supersedes(passed, revoking, now)
            if passed is None or (newer and revoking and first[passed.suite] >= first[revoking.suite]):
                signers.update(other.trusted_at(now))
    return frozenset(signers)


def _real(evidence: Evidence) -> tuple[Verdict, ...]:
    return tuple(one for item in evidence if (one := item.verdict) is not None and not one.unreal)


def _unmet(item: AttachedStatement, verdict: Verdict, wanted: Requirement, now: datetime) -> Iterator[Refusal]:
    """Yield why a verdict does not meet the requirement. An expired key accepts nothing; its earlier FAILED count."""
    for _, reason, text in comparisons(verdict, wanted, now):
        said = f"; said by {item.signers} on {verdict.finished}" if reason is Reason.FAILED else ""
        yield Refusal(reason=reason, statement=item.stored, message=text + said)
    if not item.trusted_at(now):
        yield item.expired()


_ON_GPU, _NAME = ("gpu", "multi-gpu"), re.compile(r"(?=[ -~]*+\Z).*[0-9]")  # the name of a GPU, as drivers write it


def _failed(verdict: Verdict) -> tuple[CheckResult, ...]:
    """Return the checks that failed, crashed, ran out of time, or passed with an error."""
    return tuple(check for check in verdict.checks if check.outcome != "skipped" and not is_passed(check))


def concerns(verdict: Verdict, wanted: Requirement) -> bool:
    """Return True if a FAILED is about the requirement.

    A failure below the gpu level applies to every host, and so does a check that passed with an error: it contradicts
    itself. A failure on a GPU applies to that host class: its GPU model and its driver's branch; to every host if one
    is unclear (old drivers say ``NVIDIA Graphics Device``). A requirement without a host class means all of them.
    """
    failed, host, gpu = _failed(verdict), verdict.host, wanted.gpu
    everywhere = [check for check in failed if check.level not in _ON_GPU or check.outcome == "passed"]
    nameless = [one for one in host.gpus if not _NAME.match(one.name) and not (gpu and gpu.names_of(one.name))]
    if not failed or everywhere or nameless or not host.gpus or not DRIVER.fullmatch(host.driver or ""):
        return True
    other_gpu = gpu is not None and not any(map(gpu.may_be, host.gpus))
    other_driver = wanted.driver is not None and not versions.same_major(wanted.driver, host.driver)
    return not (other_gpu or other_driver)


def supersedes(passed: Verdict, failed: Verdict, now: datetime) -> bool:
    """Return True for a newer, real PASSED in which every failed check of a FAILED passed, on the same host class.

    Both have to name the same environment. Only a person answers a FAILED without a failed check.
    """
    names = {one.environment.id if one.environment else "" for one in (passed, failed)}
    if len(names) > 1 or passed.verdict != "PASSED" or passed.unreal or inconsistent(passed):
        return False
    if not moment(failed.finished) < moment(passed.finished) <= now + CLOCK_SKEW:
        return False
    lost, not_passed = _failed(failed), {check.name for check in passed.checks if not is_passed(check)}
    made = {(check.name, check.level) for check in passed.checks if check.name not in not_passed}
    are_made = {(check.name, check.level) for check in lost} <= made
    if not lost or not are_made or rank(passed.level) < max(rank(check.level) for check in lost):
        return False
    models = [{gpu.name.casefold() for gpu in one.host.gpus} for one in (passed, failed)]
    branches = [(one.host.driver or "").partition(".")[0] for one in (passed, failed)]
    return (models[0], branches[0]) == (models[1], branches[1]) or not any(check.level in _ON_GPU for check in lost)


def decide_by_class(evidence: Evidence, wanted: Requirement, now: datetime) -> tuple[Decision, ...]:
    """Decide for each required host class. A FAILED in the gpu levels counts for its own class, others for each."""
    return tuple(_of_class(evidence, wanted, kind, now) for kind in wanted.on)


def _of_class(evidence: Evidence, wanted: Requirement, kind: HostClass, now: datetime) -> Decision:
    """Decide for one class, without the refusals of verdicts that are of another."""
    found = decide(evidence, replace(wanted, gpu=kind.gpu, driver=kind.driver or None), now)
    elsewhere = {refusal.statement for refusal in found.refusals if refusal.reason in ELSEWHERE} - {""}
    here = tuple(one for one in found.refusals if one.statement not in elsewhere)
    missing = Refusal(reason=Reason.KIND_MISSING, message="no real verdict is from this host class")
    refusals = {"passed": (), "failed": found.failures, "missing": (missing,)}.get(found.state, here)
    counted, others = {refusal.statement for refusal in refusals}, (*found.notes, *found.refusals)
    standing = HostClassState(
        kind=str(kind),
        gpu=str(kind.gpu or ""),
        driver=kind.driver,
        state=found.state,
        suites=found.suites,
        why="; ".join(dict.fromkeys(refusal.message for refusal in refusals)),
        signers=found.signed_by,
    )
    if verdict := found.verdict:
        made = {"level": verdict.level, "ran_on": verdict.host.driver, "finished": verdict.finished}
        standing = msgspec.structs.replace(standing, **made, age_s=age_s(verdict, now))
    return msgspec.structs.replace(
        found,
        refusals=tuple(msgspec.structs.replace(one, message=f"{kind}: {one.message}") for one in refusals),
        notes=tuple(one for one in others if one.reason not in ELSEWHERE and one.statement not in counted),
        standing=standing,
    )
