"""The kinds of host that a deployment runs on, and how a digest stands on each: one decision a kind, added up."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import assert_never

import msgspec

from envbuilder.attest.demand import DRIVER_PATTERN, Demand, Refusal, Refused, SameGpu, age_s, gpu_matches
from envbuilder.attest.predicates import VerdictPredicate
from envbuilder.attest.statement import REHEARSAL
from envbuilder.attest.trust import ELSEWHERE, Decision, Evidence, decide
from envbuilder.errors import UsageError
from envbuilder.registry.bounded_json import MalformedError, parsed
from envbuilder.verdict import KindStanding, Verdict
from envbuilder.versions import is_prefix


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of host: a GPU model by the catalogue's name, and a driver, of which ``535`` stands for the branch.

    Without either it is any host, which is what an image needs that uses no GPU.
    """

    gpu: str = ""
    driver: str = ""

    def __str__(self) -> str:
        return f"{self.gpu}/{self.driver}" if self.gpu else "any host"


def parse_kinds(text: str, model_of: Callable[[str], str | None]) -> tuple[Kind, ...]:
    """Read ``H100/535, A100/550``; each kind once. ``model_of`` gives the catalogue's name of a GPU.

    Raises UsageError for another form, and for a GPU that has no such name: two spellings must not be two kinds.
    """
    return tuple(dict.fromkeys(_kind(part.strip(), model_of) for part in text.split(",")))


def _kind(text: str, model_of: Callable[[str], str | None]) -> Kind:
    gpu, slash, driver = (part.strip() for part in text.rpartition("/"))
    if not slash or not gpu or not re.match(DRIVER_PATTERN, driver):
        raise UsageError(f"{text!r} is not a kind of host", hint="a GPU and a driver's branch or release: H100/535")
    model = model_of(gpu)
    if model is None:
        raise UsageError(f"the catalogue has no one GPU called {gpu!r}", hint="envbuilder catalog list gpus")
    return Kind(gpu=model, driver=driver)


class Added(msgspec.Struct, frozen=True, kw_only=True):
    """How a digest stands on one kind, and the decision that says so."""

    kind: Kind
    standing: KindStanding
    decision: Decision


def add_up(
    digest: str,
    evidence: tuple[Evidence, ...],
    demand: Demand,
    kinds: tuple[Kind, ...],
    now: datetime,
    *,
    threshold: int = 1,
    same_gpu: SameGpu = gpu_matches,
) -> tuple[Added, ...]:
    """Decide about a digest for each kind of host: by the rule for one, so that no sum says more than its parts.

    A FAILED in the gpu levels counts for its own kind, one below them for all of them.
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
            _rehearsed(digest, evidence, kind, demand, same_gpu),
        )
        for kind in kinds
    )


def _rehearsed(
    digest: str, evidence: tuple[Evidence, ...], kind: Kind, demand: Demand, same_gpu: SameGpu
) -> tuple[str, ...]:
    """Name the suites that were run against this kind's driver, simulated. What cannot be read is as nothing."""
    found = []
    for one in evidence:
        if one.statement.predicate_type == REHEARSAL and kind.gpu:
            with suppress(MalformedError):
                verdict: Verdict = parsed(one.statement.predicate, VerdictPredicate, "a rehearsal").verdict
                if verdict.image.digest == digest and _is_of(verdict, kind, demand, same_gpu):
                    found.append(verdict.suite)
    return tuple(dict.fromkeys(found))


def _is_of(verdict: Verdict, kind: Kind, demand: Demand, same_gpu: SameGpu) -> bool:
    named = verdict.environment.id if verdict.environment is not None else None
    return (
        verdict.host.driver is not None
        and is_prefix(kind.driver, verdict.host.driver)
        and any(same_gpu(kind.gpu, gpu.name) for gpu in verdict.host.gpus)
        and demand.environment in (None, named)
    )


def reasons(added: Added) -> tuple[Refusal, ...]:
    """Return what stands in the way on a kind, each under the kind's name."""
    found = _reasons(added.decision, added.standing.rehearsed)
    return tuple(msgspec.structs.replace(refusal, message=f"{added.kind}: {refusal.message}") for refusal in found)


_NOTHING_REAL = "no real verdict is from this kind of host"
_REHEARSED = ": it was rehearsed with a simulated driver, which proves nothing; run it where this GPU and driver are"


def _reasons(decision: Decision, rehearsed: tuple[str, ...]) -> tuple[Refusal, ...]:
    """Return what stands in the way; that another kind's verdict is another kind's is no reason."""
    match decision.state:
        case "passed":
            return ()
        case "failed":
            return decision.failures
        case "missing":
            return (Refusal(reason=Refused.KIND_MISSING, message=_NOTHING_REAL + (_REHEARSED if rehearsed else "")),)
        case "stale" | "inconclusive" | "refused":
            elsewhere = {refusal.statement for refusal in decision.refusals if refusal.reason in ELSEWHERE}
            return tuple(one for one in decision.refusals if not one.statement or one.statement not in elsewhere)
        case _ as never:
            assert_never(never)


def _added(kind: Kind, decision: Decision, now: datetime, rehearsed: tuple[str, ...]) -> Added:
    verdict = decision.verdict
    standing = KindStanding(
        kind=str(kind),
        gpu=kind.gpu,
        driver=kind.driver,
        state=decision.state,
        suites=decision.suites,
        rehearsed=rehearsed,
    )
    if verdict is None:
        why = "; ".join(dict.fromkeys(refusal.message for refusal in _reasons(decision, rehearsed)))
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
    return Added(kind=kind, standing=standing, decision=decision)
