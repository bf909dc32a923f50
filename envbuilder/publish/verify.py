"""Answer whether an image in a registry has a verdict that a deployment may rely on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from envbuilder.attest import statement
from envbuilder.attest.demand import Demand, Refusal, Refused, SameGpu, age_s, gpu_matches
from envbuilder.attest.envelope import Opener, Rejected, UnknownFormError
from envbuilder.attest.kinds import Kind, add_up
from envbuilder.attest.predicates import VerdictPredicate
from envbuilder.attest.trust import Decision, Evidence, decide
from envbuilder.errors import EnvbuilderError, InfrastructureError, PublishError
from envbuilder.publish.verification import Verification
from envbuilder.publish.verify_kinds import answer
from envbuilder.registry.bounded_json import MalformedError, parsed
from envbuilder.registry.client import Repository
from envbuilder.registry.deadline import in_parallel, within
from envbuilder.registry.errors import Fault, RegistryFailedError, RegistryRefusedError
from envbuilder.registry.manifests import Manifest, ambiguity, platforms
from envbuilder.registry.referrers import Listing, NotADocumentError, document, listing, subject_of
from envbuilder.verdict import Verdict

_LOOKED_AT = 20
"""How many other tags are asked about, to tell a tag that was moved from an image that was never published."""


@dataclass(frozen=True)
class Published:
    """The trusted verdicts of a repository, and how many documents each trusted signer signed there.

    ``evidence`` is everything that they signed, by the image's digest.
    """

    verdicts: tuple[Verdict, ...]
    evidence: dict[str, tuple[Evidence, ...]] = field(default_factory=dict)
    signed: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class _Found:
    """What became of one attached document. ``unknown``: nobody knows what it says, so that it forbids a yes."""

    evidence: Evidence | None = None
    refusal: Refusal | None = None
    unknown: bool = False


@dataclass(frozen=True)
class Question:
    """What is demanded of an image, and by how many keys.

    ``on`` are the kinds of host on each of which it is demanded; ``same_gpu`` says which GPU a demand means.
    """

    demand: Demand
    threshold: int = 1
    on: tuple[Kind, ...] = ()
    same_gpu: SameGpu = gpu_matches


def verify(repository: Repository, openers: tuple[Opener, ...], question: Question, now: datetime) -> Verification:
    """Decide about the image that the repository's reference names; whatever cannot be shown is refused.

    A registry that fails or answers nonsense is a reason of its own, never an error: there is always an answer, and not
    long after the deadline of the repository's transport.
    """
    try:
        return within(repository.transport.deadline, lambda: _verify(repository, openers, question, now))
    except (RegistryFailedError, RegistryRefusedError) as error:
        text = f"{error.message} (next: {error.hint})" if error.hint else error.message
        refusal = Refusal(reason=Refused(error.fault.value), message=text)
        failed = isinstance(error, InfrastructureError)
        return _refused(repository, question, (refusal,), unanswered=failed)


def _refused(
    repository: Repository, question: Question, refusals: tuple[Refusal, ...], *, unanswered: bool = False
) -> Verification:
    image = str(repository.reference)
    return Verification(image=image, accepted=False, demanded=question.demand, refusals=refusals, unanswered=unanswered)


def _verify(repository: Repository, openers: tuple[Opener, ...], question: Question, now: datetime) -> Verification:
    reference = repository.reference
    manifest = repository.manifest(reference.digest or reference.tag or "latest")
    if manifest is None:
        refusal = Refusal(reason=Refused.NO_IMAGE, message=f"the registry has no {reference}")
        return _refused(repository, question, (refusal,))
    found = _collect(repository, manifest, openers)
    evidence, demand, threshold = tuple(_evidence(found)), question.demand, question.threshold
    unknown = tuple(one.refusal for one in found if one.refusal and one.unknown)
    passed_over = tuple(one.refusal for one in found if one.refusal and not one.unknown)
    if question.on:
        added = add_up(
            manifest.digest, evidence, demand, question.on, now, threshold=threshold, same_gpu=question.same_gpu
        )
        nothing = () if found else (_nothing(repository, manifest, attached=False),)
        bare = msgspec.structs.replace(_refused(repository, question, nothing), digest=manifest.digest)
        return answer(bare, added, unknown, passed_over)
    decision = decide(manifest.digest, evidence, demand, now, threshold=threshold, same_gpu=question.same_gpu)
    if decision.accepted and not unknown:
        return _accepted(str(reference), manifest.digest, demand, decision, passed_over, now)
    refusals = (*unknown, *decision.refusals, *(() if unknown or decision.accepted else passed_over))
    if not refusals:
        refusals = (_nothing(repository, manifest, attached=bool(found)),)
    return msgspec.structs.replace(_refused(repository, question, refusals), digest=manifest.digest)


@dataclass(frozen=True)
class Said:
    """What trusted keys said of one image; ``unknown`` is what nobody knows the meaning of: it forbids a yes."""

    digest: str
    evidence: tuple[Evidence, ...]
    unknown: tuple[Refusal, ...]


def said_of(repository: Repository, openers: tuple[Opener, ...], target: str) -> Said | None:
    """Read everything that is attached to what a tag or digest names; None where the repository has no such image."""
    manifest = repository.manifest(target)
    if manifest is None:
        return None
    found = _collect(repository, manifest, openers)
    unknown = tuple(one.refusal for one in found if one.refusal and one.unknown)
    return Said(manifest.digest, tuple(_evidence(found)), unknown)


def published(repository: Repository, openers: tuple[Opener, ...]) -> Published:
    """Collect the trusted verdicts of a repository. Raises PublishError where there is no such repository.

    What is not trusted or cannot be read is left out: this is for reports, not for decisions.
    """
    tags = repository.tags_if_there()
    if tags is None:
        raise PublishError(f"there is no repository {repository.reference.name}", hint="is its name right?")
    verdicts: dict[str, Verdict] = {}
    signed: Counter[str] = Counter()
    evidence: dict[str, tuple[Evidence, ...]] = {}
    for digest in _digests(repository, tags):
        manifest = repository.manifest(digest)
        said = tuple(_evidence(_collect(repository, manifest, openers))) if manifest else ()
        evidence |= {digest: said} if said else {}
        for item in said:
            signed.update(one.name for one in item.signed_by)
        verdicts |= dict(_verdicts_of(said))
    return Published(tuple(verdicts.values()), evidence, signed)


def _verdicts_of(evidence: Iterable[Evidence]) -> Iterator[tuple[str, Verdict]]:
    """Yield every verdict that this version can read, with the digest that it is stored under."""
    for item in evidence:
        if item.statement.predicate_type == statement.VERDICT:
            with suppress(MalformedError):
                yield item.stored, parsed(item.statement.predicate, VerdictPredicate, "a verdict").verdict


def _digests(repository: Repository, tags: Iterable[str]) -> tuple[str, ...]:
    """List the digests that tags lead to, and those that have a list of statements."""
    digests: dict[str, None] = {}
    for tag in tags:
        if subject := subject_of(tag):
            digests[subject] = None
        elif (manifest := repository.manifest(tag)) is not None:
            digests[manifest.digest] = None
    return tuple(digests)


def _evidence(found: Iterable[_Found]) -> Iterable[Evidence]:
    return (one.evidence for one in found if one.evidence is not None)


def _collect(repository: Repository, manifest: Manifest, openers: tuple[Opener, ...]) -> tuple[_Found, ...]:
    """Open every attached document that could be a statement; before them, what makes the image itself unclear."""
    listed = listing(repository, manifest.digest, frozenset(opener.media_type for opener in openers))
    work = [
        (opener, item.digest)
        for opener in openers
        for item in listed.items
        if item.artifact_type in ("", opener.media_type)
    ]
    deadline = repository.transport.deadline
    opened = in_parallel(lambda one: _open(repository, manifest, listed, *one), work, deadline)
    return (*_unclear(manifest), *opened)


def _unclear(manifest: Manifest) -> Iterable[_Found]:
    """Say why it is not certain which image a verdict about this digest would speak of."""
    if why := ambiguity(manifest):
        yield _Found(refusal=Refusal(reason=Refused.AMBIGUOUS, message=f"{manifest.digest}: {why}"), unknown=True)
    named = platforms(manifest)
    if len(named) > 1:
        text = f"{manifest.digest} is {len(named)} images ({', '.join(named[:5])}), and a verdict is about one: verify "
        text += "the one that is deployed, by its own digest"
        yield _Found(refusal=Refusal(reason=Refused.MANY_PLATFORMS, message=text), unknown=True)


def _open(repository: Repository, manifest: Manifest, listed: Listing, opener: Opener, stored: str) -> _Found:
    """Open one document. What can be fetched and is nothing of ours is passed over, since anybody can attach that."""
    try:
        opened = opener.open(document(repository, stored, manifest.digest, opener.media_type))
    except RegistryRefusedError as error:
        return _unfetched(error, stored, claimed=stored in listed.claimed)
    except UnknownFormError as error:
        return _Found(
            refusal=Refusal(reason=Refused.NEWER_SCHEMA, statement=stored, message=error.message), unknown=True
        )
    except PublishError as error:
        return _passed_over(Refused.UNREADABLE, stored, error.message)
    if isinstance(opened, Rejected):
        reason = Refused.UNTRUSTED_KEY if opened.unknown_signer else Refused.BAD_SIGNATURE
        return _passed_over(reason, stored, opened.message)
    try:
        said = statement.parse(opened.payload)
    except PublishError as error:
        text = f"a trusted key signed what is no statement: {error.message}"
        return _Found(refusal=Refusal(reason=Refused.UNREADABLE, statement=stored, message=text), unknown=True)
    return _Found(evidence=Evidence(stored=stored, signed_by=opened.signed_by, statement=said))


def _unfetched(error: RegistryRefusedError, stored: str, *, claimed: bool) -> _Found:
    """Say what it means that a listed document cannot be had."""
    if isinstance(error, NotADocumentError) or error.fault is Fault.TOO_LARGE:
        return _passed_over(Refused.UNREADABLE, stored, error.message)  # no publisher of ours writes such a thing
    if claimed and error.fault is Fault.NOT_THERE:
        return _passed_over(Refused.NOT_THERE, stored, error.message)
    refusal = Refusal(reason=Refused(error.fault.value), statement=stored, message=error.message)
    return _Found(refusal=refusal, unknown=True)


def _passed_over(reason: Refused, stored: str, message: str) -> _Found:
    return _Found(refusal=Refusal(reason=reason, statement=stored, message=message))


def _nothing(repository: Repository, manifest: Manifest, *, attached: bool) -> Refusal:
    """Say that there is no verdict, and whether that looks like a tag that was moved after publishing."""
    if attached:
        return Refusal(reason=Refused.NO_STATEMENT, message="what is attached holds no verdict")
    if repository.reference.digest or not _others_are_stated(repository, manifest.digest):
        return Refusal(reason=Refused.NO_STATEMENT, message=f"nothing is attached to {manifest.digest}")
    return Refusal(
        reason=Refused.TAG_MOVED,
        message=f"{repository.reference} points at {manifest.digest}, to which nothing is attached, while other images "
        f"of this repository have statements: the tag was moved to an image that was never validated",
    )


def _others_are_stated(repository: Repository, digest: str) -> bool:
    """Tell whether another image of the repository has statements. The answer is no already: errors change nothing."""
    try:
        tags = repository.tags()
        if any(subject_of(tag) not in ("", digest) for tag in tags):
            return True
        found = {item.digest for tag in tags[:_LOOKED_AT] if (item := repository.manifest(tag)) is not None}
        return any(listing(repository, other).items for other in found - {digest})
    except EnvbuilderError:
        return False


def _accepted(
    image: str, digest: str, demand: Demand, decision: Decision, passed_over: tuple[Refusal, ...], now: datetime
) -> Verification:
    verdict = decision.verdict
    assert verdict is not None, "a yes rests on a verdict"  # noqa: S101 - for the type checker
    environment = verdict.environment
    return Verification(
        image=image,
        digest=digest,
        accepted=True,
        demanded=demand,
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
        notes=(*decision.notes, *passed_over),
    )
