"""Decide whether the statements found for a digest satisfy a demand. Denies by default; every refusal says why."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from envbuilder.attest.predicates import VerdictPredicate
from envbuilder.attest.statement import VERDICT, Statement, digest_hex
from envbuilder.verdict import TIERS, Level, Verdict
from envbuilder.versions import DOTTED, is_prefix

CLOCK_SKEW = timedelta(minutes=5)
"""How far a verdict's end may lie in the future before it is disbelieved: two hosts' clocks differ by that much."""


class Refused(StrEnum):
    """Why a statement was not accepted; stable names for scripts."""

    NO_IMAGE = "NO_IMAGE"
    NO_STATEMENT = "NO_STATEMENT"
    TAG_MOVED = "TAG_MOVED"
    UNREADABLE = "UNREADABLE"
    UNTRUSTED_KEY = "UNTRUSTED_KEY"
    BAD_SIGNATURE = "BAD_SIGNATURE"
    WRONG_SUBJECT = "WRONG_SUBJECT"
    SIMULATED = "SIMULATED"
    FAILED = "FAILED"
    INCONCLUSIVE = "INCONCLUSIVE"
    EXPIRED = "EXPIRED"
    LEVEL_TOO_LOW = "LEVEL_TOO_LOW"
    OTHER_DRIVER = "OTHER_DRIVER"
    OTHER_GPU = "OTHER_GPU"


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """One reason against one statement (``statement`` is the digest it is stored under; '' where there is none)."""

    reason: Refused
    message: str
    statement: str = ""


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What a deployment needs: a level, a driver (``535`` stands for the branch), a GPU, an age in seconds."""

    level: Level = "cpu"
    driver: str | None = None
    gpu: str | None = None
    max_age_s: float = 90 * 86_400.0


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """A statement whose signature by a trusted key holds; ``stored`` is its digest in the registry."""

    stored: str
    signed_by: str
    statement: Statement


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The answer: the verdict that satisfies the demand, or every reason why none does."""

    accepted: bool
    verdict: Verdict | None = None
    signed_by: str = ""
    refusals: tuple[Refusal, ...] = ()


def decide(digest: str, evidence: tuple[Evidence, ...], demand: Demand, now: datetime) -> Decision:
    """Accept a digest where one verdict meets every demand and no later trusted verdict says FAILED.

    A FAILED from a driver or GPU other than the one demanded does not count against it.
    """
    refusals: list[Refusal] = []
    accepted: list[tuple[Evidence, Verdict]] = []
    failed: list[tuple[Evidence, Verdict]] = []
    for item in evidence:
        verdict, refusal = _read(digest, item)
        if verdict is None:
            refusals.extend([refusal] if refusal else [])
            continue
        found = _shortcomings(item.stored, verdict, demand, now)
        if verdict.verdict == "FAILED" and not verdict.simulated and not _elsewhere(found):
            failed.append((item, verdict))
        if found:
            refusals.extend(found)
        else:
            accepted.append((item, verdict))
    if not accepted:
        return Decision(accepted=False, refusals=tuple(refusals))
    best, verdict = max(accepted, key=lambda pair: _time(pair[1].finished))
    later = [item for item, other in failed if _time(other.finished) >= _time(verdict.finished)]
    if later:
        return Decision(accepted=False, refusals=tuple(r for r in refusals if r.reason is Refused.FAILED))
    return Decision(accepted=True, verdict=verdict, signed_by=best.signed_by)


def _read(digest: str, item: Evidence) -> tuple[Verdict | None, Refusal | None]:
    """Return the verdict that a statement holds about this digest; neither where it is of another type."""
    if item.statement.predicate_type != VERDICT:
        return None, None
    if all(subject.digest.get("sha256") != digest_hex(digest) for subject in item.statement.subject):
        about = ", ".join(f"sha256:{subject.digest.get('sha256', '?')}" for subject in item.statement.subject)
        return None, _refusal(Refused.WRONG_SUBJECT, item.stored, f"the statement is about {about}")
    try:
        verdict = msgspec.json.decode(item.statement.predicate, type=VerdictPredicate).verdict
        _time(verdict.finished)
    except (msgspec.MsgspecError, ValueError) as error:
        return None, _refusal(Refused.UNREADABLE, item.stored, f"the predicate is no verdict: {error}")
    if verdict.image.digest != digest:
        return None, _refusal(Refused.WRONG_SUBJECT, item.stored, f"the verdict is about {verdict.image.digest}")
    return verdict, None


def _shortcomings(stored: str, verdict: Verdict, demand: Demand, now: datetime) -> list[Refusal]:
    age = now - _time(verdict.finished)
    allowed = timedelta(seconds=demand.max_age_s)
    checks = (
        (Refused.SIMULATED, verdict.simulated, "the verdict was simulated: its driver or GPU was not real"),
        (Refused.FAILED, verdict.verdict == "FAILED", _because("the verdict is FAILED", verdict)),
        (Refused.INCONCLUSIVE, verdict.verdict == "INCONCLUSIVE", _because("the verdict is INCONCLUSIVE", verdict)),
        (Refused.EXPIRED, age > allowed, f"validated {_days(age)} ago; at most {_days(allowed)} is accepted"),
        (Refused.EXPIRED, age < -CLOCK_SKEW, f"validated {_days(-age)} in the future: a clock is wrong"),
        (
            Refused.LEVEL_TOO_LOW,
            _rank(verdict.level) < _rank(demand.level),
            f"validated up to {verdict.level}; {demand.level} is demanded",
        ),
        (
            Refused.OTHER_DRIVER,
            demand.driver is not None and not _driver_matches(demand.driver, verdict.host.driver),
            f"validated on driver {verdict.host.driver or 'none'}; {demand.driver} is demanded",
        ),
        (
            Refused.OTHER_GPU,
            demand.gpu is not None and not any(_gpu_matches(demand.gpu, gpu.name) for gpu in verdict.host.gpus),
            f"validated on {', '.join(gpu.name for gpu in verdict.host.gpus) or 'no GPU'}; {demand.gpu} is demanded",
        ),
    )
    return [_refusal(reason, stored, message) for reason, holds, message in checks if holds]


def _elsewhere(found: list[Refusal]) -> bool:
    return any(refusal.reason in (Refused.OTHER_DRIVER, Refused.OTHER_GPU) for refusal in found)


def _refusal(reason: Refused, stored: str, message: str) -> Refusal:
    return Refusal(reason=reason, statement=stored, message=message)


def _because(text: str, verdict: Verdict) -> str:
    return f"{text}: {'; '.join(verdict.reasons)}" if verdict.reasons else text


def _rank(level: Level) -> int:
    return 0 if level == "none" else 1 + TIERS.index(level)


def _driver_matches(wanted: str, ran: str | None) -> bool:
    return ran is not None and is_prefix(wanted, ran)


def _gpu_matches(wanted: str, name: str) -> bool:
    """Tell whether the words of a demand stand in a GPU's name in order: ``H100`` is in ``NVIDIA H100 80GB HBM3``."""
    words, parts = wanted.casefold().split(), name.casefold().replace("-", " ").split()
    wanted_words = [piece for word in words for piece in word.replace("-", " ").split()]
    return bool(wanted_words) and any(
        parts[start : start + len(wanted_words)] == wanted_words for start in range(len(parts))
    )


def _time(text: str) -> datetime:
    """Read an ISO 8601 time. Raises ValueError where it names no zone, since it could then not be compared."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"{text!r} names no time zone")
    return time


def _days(age: timedelta) -> str:
    return f"{age.total_seconds() / 86_400:.1f} days"


DRIVER_PATTERN = rf"^{DOTTED}\Z"
"""What a demanded driver looks like: a branch (``535``) or a release (``535.104.05``)."""
