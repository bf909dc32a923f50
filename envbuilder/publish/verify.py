"""Decide whether an image in a registry has a verdict that a deployment may rely on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import msgspec

from envbuilder.attest.envelope import Opener
from envbuilder.attest.host_classes import ClassDecision, HostClass, decide_by_class, reasons
from envbuilder.attest.requirements import (
    Refusal,
    Requirement,
    SameGpu,
    age_s,
    gpu_matches,
    rank,
)
from envbuilder.attest.trust_policy import ELSEWHERE, Decision, decide
from envbuilder.errors import EnvbuilderError, InfrastructureError, Reason
from envbuilder.publish.attached_statements import read_statements
from envbuilder.publish.verification import Verification
from envbuilder.registry.client import Repository
from envbuilder.registry.deadline import within
from envbuilder.registry.errors import RegistryFailedError, RegistryRefusedError
from envbuilder.registry.manifests import Manifest
from envbuilder.registry.referrers import listing, subject_of
from envbuilder.verdict import KindStanding, Verdict

_OTHER_TAGS = 20
"""How many other tags are read to distinguish a moved tag from an image that was never published."""


@dataclass(frozen=True)
class VerifyQuestion:
    """The requirement, the number of keys that have to sign, and the host classes on each of which it holds.

    ``same_gpu`` compares a required GPU with a GPU's name.
    """

    requirement: Requirement
    threshold: int = 1
    on: tuple[HostClass, ...] = ()
    same_gpu: SameGpu = gpu_matches


def verify(
    repository: Repository, openers: tuple[Opener, ...], question: VerifyQuestion, now: datetime
) -> Verification:
    """Decide about the image of the repository's reference; without proof it is refused.

    A failing registry or a nonsensical answer is a reason to refuse, never an error: there is always an answer, soon
    after the deadline of the repository's transport.
    """
    try:
        return within(repository.transport.deadline, lambda: _verify(repository, openers, question, now))
    except (RegistryFailedError, RegistryRefusedError) as error:
        text = f"{error.message} (next: {error.hint})" if error.hint else error.message
        refusal = Refusal(reason=error.fault, message=text)
        failed = isinstance(error, InfrastructureError)
        return _refused(repository, question, (refusal,), unanswered=failed)


def _refused(
    repository: Repository,
    question: VerifyQuestion,
    refusals: tuple[Refusal, ...],
    *,
    digest: str = "",
    unanswered: bool = False,
) -> Verification:
    return Verification(
        image=str(repository.reference),
        digest=digest,
        accepted=False,
        demanded=question.requirement,
        refusals=refusals,
        unanswered=unanswered,
    )


def _verify(
    repository: Repository, openers: tuple[Opener, ...], question: VerifyQuestion, now: datetime
) -> Verification:
    reference = repository.reference
    manifest = repository.manifest(reference.digest or reference.tag or "latest")
    if manifest is None:
        refusal = Refusal(reason=Reason.NO_IMAGE, message=f"the registry has no {reference}")
        return _refused(repository, question, (refusal,))
    found = read_statements(repository, manifest, openers)
    requirement, threshold, same_gpu = question.requirement, question.threshold, question.same_gpu
    if question.on:
        decisions = decide_by_class(
            manifest.digest, found.trusted, requirement, question.on, now, threshold=threshold, same_gpu=same_gpu
        )
        nothing = () if found.documents else (_nothing(repository, manifest, attached=False),)
        bare = _refused(repository, question, nothing, digest=manifest.digest)
        return _by_class(bare, decisions, found.unknown, found.ignored)
    decision = decide(manifest.digest, found.trusted, requirement, now, threshold=threshold, same_gpu=same_gpu)
    if decision.accepted and not found.unknown:
        return _accepted(_refused(repository, question, (), digest=manifest.digest), decision, found.ignored, now)
    ignored = () if found.unknown or decision.accepted else found.ignored
    refusals = (*found.unknown, *decision.refusals, *ignored)
    if not refusals:
        refusals = (_nothing(repository, manifest, attached=bool(found.documents)),)
    return _refused(repository, question, refusals, digest=manifest.digest)


def _nothing(repository: Repository, manifest: Manifest, *, attached: bool) -> Refusal:
    """Return the refusal of an image without a verdict; it says if the tag was probably moved after publishing."""
    if attached:
        return Refusal(reason=Reason.NO_STATEMENT, message="no attached document holds a verdict")
    if repository.reference.digest or not _others_have_statements(repository, manifest.digest):
        return Refusal(reason=Reason.NO_STATEMENT, message=f"nothing is attached to {manifest.digest}")
    return Refusal(
        reason=Reason.TAG_MOVED,
        message=f"{repository.reference} points at {manifest.digest}, to which nothing is attached, while other images "
        f"of this repository have statements: the tag was moved to an image that was never validated",
    )


def _others_have_statements(repository: Repository, digest: str) -> bool:
    """Return True if another image of the repository has statements. Errors do not matter: the image is refused."""
    try:
        tags = repository.tags()
        if any(subject_of(tag) not in ("", digest) for tag in tags):
            return True
        found = {item.digest for tag in tags[:_OTHER_TAGS] if (item := repository.manifest(tag)) is not None}
        return any(listing(repository, other).items for other in found - {digest})
    except EnvbuilderError:
        return False


def _accepted(bare: Verification, decision: Decision, ignored: tuple[Refusal, ...], now: datetime) -> Verification:
    verdict = decision.verdict
    assert verdict is not None, "an accepted image has a verdict"  # noqa: S101 - for the type checker
    environment = verdict.environment
    return msgspec.structs.replace(
        bare,
        accepted=True,
        verdict=verdict.verdict,
        level=verdict.level,
        environment=environment.id if environment else "",
        tensorflow=environment.tensorflow if environment else "",
        driver=verdict.host.driver,
        gpus=tuple(gpu.name for gpu in verdict.host.gpus),
        cpu=verdict.host.cpu_model,
        kernel=verdict.host.kernel,
        finished=verdict.finished,
        age_s=age_s(verdict, now),
        signed_by=decision.signed_by[0],
        signers=decision.signed_by,
        notes=(*decision.notes, *ignored),
    )


def _by_class(
    bare: Verification,
    decisions: tuple[ClassDecision, ...],
    unknown: tuple[Refusal, ...],
    ignored: tuple[Refusal, ...],
) -> Verification:
    """Accept an image if every host class does. The answer has the lowest level and the oldest verdict's time."""
    kinds = tuple(unless_unknown(one.standing, unknown) for one in decisions)
    refusals = (*bare.refusals, *unknown, *(refusal for one in decisions for refusal in reasons(one)))
    notes = tuple(dict.fromkeys((*(note for one in decisions for note in _notes(one)), *ignored)))
    answer = msgspec.structs.replace(bare, accepted=not refusals, kinds=kinds, refusals=refusals, notes=notes)
    if refusals:
        return answer
    verdicts = [one.decision.verdict for one in decisions if one.decision.verdict is not None]
    lowest: Verdict = min(verdicts, key=lambda one: rank(one.level))
    oldest = max(kinds, key=lambda kind: kind.age_s or 0.0)
    environment = lowest.environment
    signers = tuple(dict.fromkeys(name for kind in kinds for name in kind.signers))
    return msgspec.structs.replace(
        answer,
        verdict=lowest.verdict,
        level=lowest.level,
        environment=environment.id if environment else "",
        tensorflow=environment.tensorflow if environment else "",
        finished=oldest.finished,
        age_s=oldest.age_s,
        signed_by=signers[0],
        signers=signers,
    )


def unless_unknown(standing: KindStanding, unknown: tuple[Refusal, ...]) -> KindStanding:
    """Refuse an accepted host class if a document of unknown meaning is attached."""
    if not unknown or standing.state != "passed":
        return standing
    return msgspec.structs.replace(standing, state="refused", why=unknown[0].message)


def _notes(one: ClassDecision) -> tuple[Refusal, ...]:
    """Return the ignored refusals of a host class, without those that only say that a verdict is of another class."""
    decision = one.decision
    counted = {refusal.statement for refusal in reasons(one)}
    ignored = decision.notes if decision.accepted else decision.refusals
    return tuple(one for one in ignored if one.reason not in ELSEWHERE and one.statement not in counted)
