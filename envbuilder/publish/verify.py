"""Answer whether an image in a registry has a verdict that a deployment may rely on."""

from __future__ import annotations

import re
from datetime import datetime

import msgspec

from envbuilder.attest import statement
from envbuilder.attest.envelope import Opener, Rejected
from envbuilder.attest.predicates import VerdictPredicate
from envbuilder.attest.trust import Decision, Demand, Evidence, Refusal, Refused, decide
from envbuilder.errors import PublishError, UsageError
from envbuilder.registry.client import Manifest, Repository
from envbuilder.registry.referrers import attached, document, fallback_tag
from envbuilder.verdict import Level, Verdict, Word

_DURATION = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([smhdw])\Z")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_LISTED = re.compile(r"sha256-[0-9a-f]{64}\Z")


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `verify`: accepted, with the verdict that it rests on, or every reason why not."""

    schema: str = "envbuilder/verify/v1"
    image: str
    digest: str = ""
    accepted: bool
    demanded: Demand
    verdict: Word | None = None
    level: Level | None = None
    environment: str = ""
    driver: str | None = None
    gpus: tuple[str, ...] = ()
    finished: str = ""
    signed_by: str = ""
    refusals: tuple[Refusal, ...] = ()


def duration(text: str) -> float:
    """Read ``90d``, ``12h``, ``30m``, ``45s`` or ``2w`` as seconds. Raises UsageError for anything else."""
    found = _DURATION.match(text)
    if found is None:
        raise UsageError(f"{text!r} is not a duration", hint="a number and one of s, m, h, d, w: 90d")
    return float(found[1]) * _SECONDS[found[2]]


def verify(repository: Repository, openers: tuple[Opener, ...], demand: Demand, now: datetime) -> Verification:
    """Decide about the image that the repository's reference names; whatever cannot be shown is refused."""
    reference = repository.reference
    manifest = repository.manifest(reference.digest or reference.tag or "latest")
    if manifest is None:
        refusal = Refusal(reason=Refused.NO_IMAGE, message=f"the registry has no {reference}")
        return Verification(image=str(reference), accepted=False, demanded=demand, refusals=(refusal,))
    evidence, refusals = _collect(repository, manifest, openers)
    if not evidence and not refusals:
        refusals = (_nothing(repository, manifest),)
    decision = decide(manifest.digest, evidence, demand, now)
    if not decision.accepted and not decision.refusals and not refusals:
        refusals = (Refusal(reason=Refused.NO_STATEMENT, message="what is attached holds no verdict"),)
    return _answer(str(reference), manifest.digest, demand, decision, refusals)


def published_verdicts(repository: Repository, openers: tuple[Opener, ...]) -> tuple[Verdict, ...]:
    """Return every trusted verdict in a repository, about whatever its tags and its lists of statements lead to.

    What is not trusted or cannot be read is left out: this is for reports, not for decisions.
    """
    found: dict[str, Verdict] = {}
    for digest in _digests(repository):
        manifest = repository.manifest(digest)
        for item in _collect(repository, manifest, openers)[0] if manifest else ():
            if item.statement.predicate_type == statement.VERDICT:
                try:
                    found[item.stored] = msgspec.json.decode(item.statement.predicate, type=VerdictPredicate).verdict
                except msgspec.MsgspecError:
                    continue  # of another version
    return tuple(found.values())


def _digests(repository: Repository) -> tuple[str, ...]:
    """List the digests that the repository's tags lead to, and those that have a list of statements."""
    digests: dict[str, None] = {}
    for tag in repository.tags():
        if _LISTED.match(tag):
            digests[tag.replace("-", ":", 1)] = None
        elif (manifest := repository.manifest(tag)) is not None:
            digests[manifest.digest] = None
    return tuple(digests)


def _collect(
    repository: Repository, manifest: Manifest, openers: tuple[Opener, ...]
) -> tuple[tuple[Evidence, ...], tuple[Refusal, ...]]:
    """Open every attached document: those that are trusted, and why the others are not."""
    evidence: list[Evidence] = []
    refusals: list[Refusal] = []
    for opener in openers:
        for item in attached(repository, manifest.digest, opener.media_type):
            found = _open(repository, manifest, opener, item.digest)
            if isinstance(found, Refusal):
                refusals.append(found)
            else:
                evidence.append(found)
    return tuple(evidence), tuple(refusals)


def _open(repository: Repository, manifest: Manifest, opener: Opener, stored: str) -> Evidence | Refusal:
    try:
        opened = opener.open(document(repository, stored, manifest.digest, opener.media_type))
        if isinstance(opened, Rejected):
            reason = Refused.UNTRUSTED_KEY if opened.unknown_signer else Refused.BAD_SIGNATURE
            return Refusal(reason=reason, statement=stored, message=opened.message)
        return Evidence(stored=stored, signed_by=opened.signed_by, statement=statement.decode(opened.payload))
    except PublishError as error:
        return Refusal(reason=Refused.UNREADABLE, statement=stored, message=error.message)


def _nothing(repository: Repository, manifest: Manifest) -> Refusal:
    """Say that nothing is attached, and whether that looks like a tag that was moved after publishing."""
    own = fallback_tag(manifest.digest)
    others = [tag for tag in repository.tags() if _LISTED.match(tag) and tag != own]
    if repository.reference.digest or not others:
        return Refusal(reason=Refused.NO_STATEMENT, message=f"nothing is attached to {manifest.digest}")
    return Refusal(
        reason=Refused.TAG_MOVED,
        message=f"{repository.reference} points at {manifest.digest}, to which nothing is attached, while other images "
        f"of this repository have statements: the tag was moved to an image that was never validated",
    )


def _answer(image: str, digest: str, demand: Demand, decision: Decision, refusals: tuple[Refusal, ...]) -> Verification:
    verdict = decision.verdict
    if verdict is None:
        every = (*decision.refusals, *refusals)
        return Verification(image=image, digest=digest, accepted=False, demanded=demand, refusals=every)
    return Verification(
        image=image,
        digest=digest,
        accepted=True,
        demanded=demand,
        verdict=verdict.verdict,
        level=verdict.level,
        environment=verdict.environment.id if verdict.environment else "",
        driver=verdict.host.driver,
        gpus=tuple(gpu.name for gpu in verdict.host.gpus),
        finished=verdict.finished,
        signed_by=decision.signed_by,
    )
