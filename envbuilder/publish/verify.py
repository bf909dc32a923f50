"""Decide whether an image in a registry has a verdict that a deployment may rely on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import msgspec

from envbuilder.attest.envelope import Opener
from envbuilder.attest.requirements import EnvironmentRequirement, Refusal, Requirement, age_s, moment, rank
from envbuilder.attest.statements import Unread
from envbuilder.attest.trust_policy import (
    ELSEWHERE,
    AttachedStatement,
    ClassDecision,
    HostClass,
    decide,
    decide_by_class,
)
from envbuilder.errors import EnvbuilderError, InfrastructureError, Reason
from envbuilder.publish.attached_statements import read_statements
from envbuilder.publish.verification import Verification, demanded, with_next
from envbuilder.registry.client import Repository
from envbuilder.registry.deadline import within
from envbuilder.registry.errors import RegistryFailedError, RegistryRefusedError
from envbuilder.registry.manifests import Manifest, config_digest
from envbuilder.registry.reference import parse
from envbuilder.registry.referrers import listing, subject_of
from envbuilder.verdict import HostRef, KindStanding, Verdict

_OTHER_TAGS = 20
"""How many other tags are read to distinguish a moved tag from an image that was never published."""


@dataclass(frozen=True)
class VerifyQuestion:
    """The requirement, the number of keys that have to sign, and the host classes on each of which it holds."""

    requirement: Requirement
    threshold: int = 1
    on: tuple[HostClass, ...] = ()


def verify(
    repository: Repository, openers: tuple[Opener, ...], question: VerifyQuestion, now: datetime
) -> Verification:
    """Decide about the image of the repository's reference; without proof it is refused.

    A failing registry or a nonsensical answer is a reason to refuse, never an error: there is always an answer, soon
    after the deadline of the repository's transport.
    """
    bare = Verification(image=str(repository.reference), accepted=False, demanded=demanded(question.requirement))
    try:
        found = within(repository.transport.deadline, lambda: _verify(bare, repository, openers, question, now))
    except (RegistryFailedError, RegistryRefusedError) as error:
        refusal = Refusal(reason=error.fault, message=error.message, next=error.hint)
        found = _refused(bare, refusal, unanswered=isinstance(error, InfrastructureError))
    image = repository.reference.at(found.digest) if found.digest else repository.reference
    return msgspec.structs.replace(found, refusals=with_next(found.refusals, image, found.demanded))


def _refused(bare: Verification, *refusals: Refusal, **more: object) -> Verification:
    return msgspec.structs.replace(bare, refusals=refusals, **more)


def _verify(
    bare: Verification, repository: Repository, openers: tuple[Opener, ...], question: VerifyQuestion, now: datetime
) -> Verification:
    reference, wanted, threshold = repository.reference, question.requirement, question.threshold
    manifest = repository.manifest(reference.digest or reference.tag or "latest")
    if manifest is None:
        return _refused(bare, Refusal(reason=Reason.NO_IMAGE, message=f"the registry has no {reference}"))
    bare = msgspec.structs.replace(bare, digest=manifest.digest)
    found = read_statements(repository, manifest, openers)
    evidence = (*_other_image(manifest, wanted.environment), *found.documents)
    if question.on:
        decisions = decide_by_class(evidence, wanted, question.on, now, threshold=threshold)
        nothing = () if found.documents else (_nothing(repository, manifest, attached=False),)
        return _by_class(bare, decisions, nothing, now)
    decision = decide(evidence, wanted, now, threshold=threshold)
    if decision.verdict is not None:
        return _accepted(bare, (decision.verdict,), decision.signed_by, decision.notes, now)
    if decision.refusals:
        return _refused(bare, *decision.refusals, notes=decision.notes)
    nothing = (_nothing(repository, manifest, attached=bool(found.documents)),)
    return _refused(bare, *(decision.notes or nothing))


def _other_image(manifest: Manifest, wanted: EnvironmentRequirement | None) -> tuple[AttachedStatement, ...]:
    """Return why the image is not the required one; an engine's id of it is one of two digests."""
    ids = (manifest.digest, config_digest(manifest))
    if wanted is None or any(one.startswith(f"sha256:{wanted.image}") for one in ids):
        return ()
    text = f"this is the image {' or '.join(one[7:19] for one in ids if one)}; {wanted} is required"
    return (AttachedStatement("", (), Unread(Reason.OTHER_ENVIRONMENT, text)),)


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
        tags = repository.tags() or ()
        if any(subject_of(tag) not in ("", digest) for tag in tags):
            return True
        found = {item.digest for tag in tags[:_OTHER_TAGS] if (item := repository.manifest(tag)) is not None}
        return any(listing(repository, other).items for other in found - {digest})
    except EnvbuilderError:
        return False


def _accepted(
    bare: Verification,
    verdicts: tuple[Verdict, ...],
    signers: tuple[str, ...],
    notes: tuple[Refusal, ...],
    now: datetime,
    kinds: tuple[KindStanding, ...] = (),
) -> Verification:
    """Return the lowest level and the oldest time of the verdicts, and the host if there is only one."""
    lowest = min(verdicts, key=lambda one: rank(one.level))
    oldest = min(verdicts, key=lambda one: moment(one.finished))
    host = HostRef() if kinds else lowest.host
    environment = lowest.environment
    return msgspec.structs.replace(
        bare,
        accepted=True,
        verdict=lowest.verdict,
        level=lowest.level,
        environment=environment.id if environment else "",
        tensorflow=environment.tensorflow if environment else "",
        driver=host.driver,
        gpus=tuple(gpu.name for gpu in host.gpus),
        cpu=host.cpu_model,
        kernel=host.kernel,
        finished=oldest.finished,
        age_s=age_s(oldest, now),
        signed_by=signers[0],
        signers=signers,
        notes=notes,
        kinds=kinds,
    )


def _by_class(
    bare: Verification, decisions: tuple[ClassDecision, ...], nothing: tuple[Refusal, ...], now: datetime
) -> Verification:
    """Accept an image if every host class does."""
    kinds = tuple(one.standing for one in decisions)
    image = parse(bare.image).at(bare.digest)
    advised = (with_next(one.refusals, image, bare.demanded, str(one.kind)) for one in decisions)
    refusals = (*nothing, *(refusal for some in advised for refusal in some))
    notes = tuple(dict.fromkeys(note for one in decisions for note in _notes(one)))
    if refusals:
        return _refused(bare, *refusals, kinds=kinds, notes=notes)
    verdicts = tuple(one.decision.verdict for one in decisions if one.decision.verdict is not None)
    signers = tuple(dict.fromkeys(name for kind in kinds for name in kind.signers))
    return _accepted(bare, verdicts, signers, notes, now, kinds)


def _notes(one: ClassDecision) -> tuple[Refusal, ...]:
    """Return the ignored refusals of a host class, without those that only say that a verdict is of another class."""
    counted = {refusal.statement for refusal in one.refusals}
    ignored = (*one.decision.notes, *one.decision.refusals)
    return tuple(one for one in ignored if one.reason not in ELSEWHERE and one.statement not in counted)
