"""Decide whether the statements found for a digest satisfy a demand. Denies by default; every refusal says why."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import msgspec

from envbuilder.attest.demand import Demand, Refusal, Refused, SameGpu, gpu_matches, moment, shortcomings
from envbuilder.attest.envelope import SignedBy
from envbuilder.attest.predicates import VerdictPredicate
from envbuilder.attest.revocation import concerns, supersedes
from envbuilder.attest.statement import OURS, VERDICT, Statement, digest_hex
from envbuilder.registry.bounded_json import MalformedError, parsed
from envbuilder.verdict import SCHEMA, KindState, Verdict


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """A statement whose signature by a trusted key holds; ``stored`` is its digest in the registry."""

    stored: str
    signed_by: tuple[SignedBy, ...]
    statement: Statement


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The answer: the verdict that satisfies the demand, or every reason why none does.

    ``notes`` is what was passed over on the way to a yes. ``state`` is the answer in a word, for the kind of host that
    the demand names; ``failures`` is each FAILED that counts against it and stands; ``suites`` are those
    whose real verdicts speak of that kind, whatever they say.
    """

    accepted: bool
    state: KindState
    verdict: Verdict | None = None
    signed_by: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[Refusal, ...] = ()
    failures: tuple[Refusal, ...] = ()
    suites: tuple[str, ...] = ()


class _Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict that could be read, who stands for it today, and what is wrong with it for this demand."""

    verdict: Verdict
    stored: str
    signers: tuple[str, ...]
    revokes: bool
    found: tuple[Refusal, ...]


@dataclass(frozen=True)
class _Unread:
    """Why a trusted statement gives no verdict, and whether that forbids the image."""

    reason: Refused
    message: str
    blocks: bool = True


class _Header(msgspec.Struct, frozen=True):
    """What is read of a verdict before anything else: its schema, and its word whatever it may be."""

    schema: str = ""
    verdict: str = ""


class _Headed(msgspec.Struct, frozen=True):
    verdict: _Header


def decide(
    digest: str,
    evidence: tuple[Evidence, ...],
    demand: Demand,
    now: datetime,
    *,
    threshold: int = 1,
    same_gpu: SameGpu = gpu_matches,
) -> Decision:
    """Accept a digest where one verdict meets every demand, and nothing that trusted keys said speaks against it.

    Against it speak: what they said about this digest and cannot be read, and a FAILED that concerns the demand and
    that no newer PASSED of its kind supersedes. ``threshold`` is how many keys have to stand for a yes.
    """
    judged, blocking, passed_over = _sorted(digest, evidence, demand, now, same_gpu)
    accepted = [one for one in judged if not one.found]
    against = [one for one in judged if concerns(one.verdict, demand, same_gpu)]
    failures = tuple(refusal for one in against for refusal in _standing_failure(one, judged, now))
    suites = _suites(judged, failures)
    if not accepted:
        state: KindState = "failed" if failures else "refused" if blocking else _state_without(judged)
        return Decision(
            accepted=False, state=state, refusals=(*blocking, *passed_over), failures=failures, suites=suites
        )
    best = max(accepted, key=lambda one: moment(one.verdict.finished))
    # The signers of the verdict that is shown come first: they are named as those who signed it.
    signers = tuple(dict.fromkeys(name for one in (best, *accepted) for name in one.signers))
    blocking = (*blocking, *failures, *_too_few(signers, threshold))
    if blocking:
        state = "failed" if failures else "refused"
        return Decision(
            accepted=False, state=state, refusals=blocking, notes=passed_over, failures=failures, suites=suites
        )
    return Decision(
        accepted=True, state="passed", verdict=best.verdict, signed_by=signers, notes=passed_over, suites=suites
    )


def _sorted(
    digest: str, evidence: tuple[Evidence, ...], demand: Demand, now: datetime, same_gpu: SameGpu
) -> tuple[list[_Judged], tuple[Refusal, ...], tuple[Refusal, ...]]:
    """Part what was found into verdicts, refusals that forbid the image, and refusals that are passed over."""
    judged: list[_Judged] = []
    unread: list[tuple[bool, Refusal]] = []
    for item in evidence:
        read = _read(digest, item)
        if isinstance(read, Verdict):
            judged.append(_judge(item, read, shortcomings(item.stored, read, demand, now, same_gpu), now))
        elif read is not None:
            unread.append((read.blocks, Refusal(reason=read.reason, statement=item.stored, message=read.message)))
    blocking = tuple(refusal for blocks, refusal in unread if blocks)
    passed_over = tuple(refusal for blocks, refusal in unread if not blocks)
    return judged, blocking, (*passed_over, *(refusal for one in judged for refusal in one.found))


def _too_few(signers: tuple[str, ...], threshold: int) -> tuple[Refusal, ...]:
    if len(signers) >= threshold:
        return ()
    text = f"{len(signers)} of the {threshold} keys that are demanded stand for this image"
    return (Refusal(reason=Refused.TOO_FEW_KEYS, message=text),)


ELSEWHERE = frozenset((Refused.OTHER_DRIVER, Refused.OTHER_GPU))
"""The reasons of a verdict that was reached on another kind of host than is demanded."""


def _suites(judged: list[_Judged], failures: tuple[Refusal, ...]) -> tuple[str, ...]:
    """Name the suites with which the demanded kind of host was judged, or that found what is wrong on all of them."""
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
    """Say in a word why no verdict is accepted. What was simulated is as nothing."""
    reasons = [{refusal.reason for refusal in one.found} for one in judged if not one.verdict.unreal]
    here = [found for found in reasons if not found & ELSEWHERE]
    if any(found == {Refused.EXPIRED} for found in here):
        return "stale"
    if any(Refused.INCONCLUSIVE in found for found in here):
        return "inconclusive"
    return "refused" if here else "missing"


def _standing_failure(one: _Judged, all_of_them: list[_Judged], now: datetime) -> tuple[Refusal, ...]:
    """Return why a verdict forbids the image, whatever others say; empty where it does not."""
    if not one.revokes:
        return ()
    if any(other.signers and supersedes(other.verdict, one.verdict, now) for other in all_of_them):
        return ()
    return tuple(refusal for refusal in one.found if refusal.reason is Refused.FAILED)


def _judge(item: Evidence, verdict: Verdict, found: tuple[Refusal, ...], now: datetime) -> _Judged:
    """Measure a verdict. A key that has expired says yes no more; what it failed before that day stays failed."""
    signers = tuple(one.name for one in item.signed_by if not one.expires or now <= moment(one.expires))
    then = moment(verdict.finished)
    in_time = any(not one.expires or then <= moment(one.expires) for one in item.signed_by)
    if not signers:
        text = f"signed by {item.signed_by[0].name[:16]}, which was trusted until {item.signed_by[0].expires}"
        found = (*found, Refusal(reason=Refused.EXPIRED_KEY, statement=item.stored, message=text))
    return _Judged(
        verdict=verdict,
        stored=item.stored,
        signers=signers,
        revokes=verdict.verdict == "FAILED" and not verdict.unreal and in_time,
        found=found,
    )


def _read(digest: str, item: Evidence) -> Verdict | _Unread | None:
    """Return the verdict that a statement holds about this digest; None for a statement that is no verdict of ours.

    A statement about another digest proves nothing here and forbids nothing: anybody may have copied it to this place.
    """
    if not item.statement.predicate_type.strip().casefold().startswith(OURS):  # a URN's scheme and name have no case
        return None
    if all(subject.digest.get("sha256", "").lower() != digest_hex(digest) for subject in item.statement.subject):
        about = ", ".join(f"sha256:{subject.digest.get('sha256', '?')}" for subject in item.statement.subject)
        return _Unread(Refused.WRONG_SUBJECT, f"the statement is about {about or 'nothing'}", blocks=False)
    try:
        return _verdict(digest, item.statement)
    except (MalformedError, ValueError, OverflowError) as error:
        return _Unread(Refused.UNREADABLE, f"a trusted statement cannot be read: {error}")


def _verdict(digest: str, statement: Statement) -> Verdict | _Unread:
    """Read a trusted statement about this digest. What it says is not known where it cannot be read: that forbids."""
    kind = statement.predicate_type
    if kind != VERDICT:
        return _Unread(Refused.NEWER_SCHEMA, f"a trusted statement of type {kind}, which this version cannot read")
    header: _Header = parsed(statement.predicate, _Headed, "a verdict").verdict
    if header.schema != SCHEMA:
        text = f"a trusted verdict of schema {header.schema!r}, which this version cannot read"
        return _Unread(Refused.NEWER_SCHEMA, text)
    if header.verdict not in _WORDS:
        return _Unread(Refused.UNKNOWN_WORD, f"a trusted verdict says {header.verdict!r}, which is no known word")
    verdict: Verdict = parsed(statement.predicate, VerdictPredicate, "a verdict").verdict
    moment(verdict.finished)
    if verdict.image.digest != digest:
        return _Unread(Refused.WRONG_SUBJECT, f"the verdict is about {verdict.image.digest}")
    return verdict


_WORDS = ("PASSED", "FAILED", "INCONCLUSIVE")
