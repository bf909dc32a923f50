"""Host classes of a deployment (GPU model and driver), and the decision about a digest on each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from envbuilder.attest.requirements import (
    GpuRequirement,
    ModelOf,
    Refusal,
    Requirement,
    age_s,
    read_driver,
    read_gpu,
)
from envbuilder.attest.trust_policy import ELSEWHERE, Decision, TrustedStatement, decide
from envbuilder.errors import Reason, UsageError
from envbuilder.verdict import KindStanding


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
    evidence: tuple[TrustedStatement, ...],
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
        level=verdict and verdict.level,
        ran_on=verdict and verdict.host.driver,
        finished=verdict.finished if verdict else "",
        age_s=age_s(verdict, now) if verdict else None,
        signers=decision.signed_by,
    )
    named = tuple(msgspec.structs.replace(one, message=f"{kind}: {one.message}") for one in found)
    return ClassDecision(kind, standing, decision, named)
