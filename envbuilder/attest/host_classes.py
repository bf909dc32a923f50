"""Host classes of a deployment (GPU model and driver), and the decision about a digest on each."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import assert_never

import msgspec

from envbuilder.attest.requirements import (
    DRIVER_PATTERN,
    Refusal,
    Requirement,
    SameGpu,
    age_s,
    gpu_matches,
)
from envbuilder.attest.trust_policy import ELSEWHERE, Decision, TrustedStatement, decide
from envbuilder.errors import Reason, UsageError
from envbuilder.verdict import KindStanding


class HostClass(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU model by the catalogue's name and a driver, of which ``535`` is a branch; any host without both."""

    gpu: str = ""
    driver: str = ""

    def __str__(self) -> str:
        return f"{self.gpu}/{self.driver}" if self.gpu else "any host"


def parse_host_classes(text: str, model_of: Callable[[str], str | None]) -> tuple[HostClass, ...]:
    """Read ``H100/535, A100/550``, each class once. ``model_of`` gives the catalogue's name of a GPU.

    Raises UsageError for another form and for an unknown GPU: two spellings must not be two classes.
    """
    return tuple(dict.fromkeys(_kind(part.strip(), model_of) for part in text.split(",")))


def _kind(text: str, model_of: Callable[[str], str | None]) -> HostClass:
    gpu, slash, driver = (part.strip() for part in text.rpartition("/"))
    if not slash or not gpu or not re.match(DRIVER_PATTERN, driver):
        raise UsageError(f"{text!r} is not a host class", hint="a GPU and a driver's branch or release: H100/535")
    model = model_of(gpu)
    if model is None:
        raise UsageError(f"the catalogue has no one GPU called {gpu!r}", hint="envbuilder catalog list gpus")
    return HostClass(gpu=model, driver=driver)


class ClassDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a digest on one host class, and the decision behind it."""

    kind: HostClass
    standing: KindStanding
    decision: Decision


def decide_by_class(
    digest: str,
    evidence: tuple[TrustedStatement, ...],
    demand: Requirement,
    kinds: tuple[HostClass, ...],
    now: datetime,
    *,
    threshold: int = 1,
    same_gpu: SameGpu = gpu_matches,
) -> tuple[ClassDecision, ...]:
    """Decide about a digest for each host class.

    A FAILED in the gpu levels counts for its own class, one below them for every class.
    """
    return tuple(
        _added(
            kind,
            decide(
                digest,
                evidence,
                msgspec.structs.replace(demand, gpu=kind.gpu or None, driver=kind.driver or None),
                now,
                threshold=threshold,
                same_gpu=same_gpu,
            ),
            now,
        )
        for kind in kinds
    )


def reasons(added: ClassDecision) -> tuple[Refusal, ...]:
    found = _reasons(added.decision)
    return tuple(msgspec.structs.replace(refusal, message=f"{added.kind}: {refusal.message}") for refusal in found)


_NOTHING_REAL = "no real verdict is from this host class"


def _reasons(decision: Decision) -> tuple[Refusal, ...]:
    """Return the refusals of a class, without those of verdicts of other classes."""
    match decision.state:
        case "passed":
            return ()
        case "failed":
            return decision.failures
        case "missing":
            return (Refusal(reason=Reason.KIND_MISSING, message=_NOTHING_REAL),)
        case "stale" | "inconclusive" | "refused":
            elsewhere = {refusal.statement for refusal in decision.refusals if refusal.reason in ELSEWHERE}
            return tuple(one for one in decision.refusals if not one.statement or one.statement not in elsewhere)
        case _ as never:
            assert_never(never)


def _added(kind: HostClass, decision: Decision, now: datetime) -> ClassDecision:
    verdict = decision.verdict
    standing = KindStanding(
        kind=str(kind),
        gpu=kind.gpu,
        driver=kind.driver,
        state=decision.state,
        suites=decision.suites,
    )
    if verdict is None:
        why = "; ".join(dict.fromkeys(refusal.message for refusal in _reasons(decision)))
        standing = msgspec.structs.replace(standing, why=why)
    else:
        standing = msgspec.structs.replace(
            standing,
            level=verdict.level,
            ran_on=verdict.host.driver,
            finished=verdict.finished,
            age_s=age_s(verdict, now),
            signers=decision.signed_by,
        )
    return ClassDecision(kind=kind, standing=standing, decision=decision)
