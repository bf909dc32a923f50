"""Read the statements that are attached to images of a repository, and sort out whose can be believed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from envbuilder.attest.envelope import Opener, Rejected
from envbuilder.attest.statements import Unread, understood
from envbuilder.attest.trust_policy import AttachedStatement
from envbuilder.errors import PublishError, Reason
from envbuilder.registry.client import Repository
from envbuilder.registry.deadline import in_parallel
from envbuilder.registry.errors import RegistryRefusedError
from envbuilder.registry.manifests import Manifest, ambiguity
from envbuilder.registry.referrers import Listing, document, listing, subject_of
from envbuilder.verdict import Verdict


@dataclass(frozen=True)
class ImageStatements:
    """The documents that are attached to an image."""

    digest: str
    documents: tuple[AttachedStatement, ...]


@dataclass(frozen=True)
class PublishedVerdicts:
    """The trusted verdicts of a repository, the attached documents by image digest, and how many each signer has."""

    verdicts: tuple[Verdict, ...]
    evidence: dict[str, tuple[AttachedStatement, ...]] = field(default_factory=dict)
    signed: Counter[str] = field(default_factory=Counter)


def published(repository: Repository, openers: tuple[Opener, ...]) -> PublishedVerdicts:
    """Collect the trusted verdicts of a repository for a report. Raises PublishError if it does not exist."""
    tags = repository.tags_if_there()
    if tags is None:
        raise PublishError(f"there is no repository {repository.reference.name}", hint="is its name right?")
    verdicts: dict[str, Verdict] = {}
    signed: Counter[str] = Counter()
    evidence: dict[str, tuple[AttachedStatement, ...]] = {}
    for digest in _digests(repository, tags):
        found = statements_of(repository, openers, digest)
        if found is None or not any(item.signed_by for item in found.documents):
            continue
        evidence[digest] = found.documents
        for item in found.documents:
            signed.update(one.name for one in item.signed_by)
            if isinstance(item.meaning, Verdict):
                verdicts[item.stored] = item.meaning
    return PublishedVerdicts(tuple(verdicts.values()), evidence, signed)


def _digests(repository: Repository, tags: Iterable[str]) -> tuple[str, ...]:
    """List the digests of tags, and those that have a list of statements."""
    digests: dict[str, None] = {}
    for tag in tags:
        if subject := subject_of(tag):
            digests[subject] = None
        elif (manifest := repository.manifest(tag)) is not None:
            digests[manifest.digest] = None
    return tuple(digests)


def statements_of(repository: Repository, openers: tuple[Opener, ...], target: str) -> ImageStatements | None:
    """Read every statement attached to the image of a tag or digest; None if the repository has no such image."""
    manifest = repository.manifest(target)
    return read_statements(repository, manifest, openers) if manifest is not None else None


def read_statements(repository: Repository, manifest: Manifest, openers: tuple[Opener, ...]) -> ImageStatements:
    """Open every attached document that could be a statement."""
    listed = listing(repository, manifest.digest, frozenset(opener.media_type for opener in openers))
    work = [
        (opener, item.digest)
        for opener in openers
        for item in listed.items
        if item.artifact_type in ("", opener.media_type)
    ]
    deadline = repository.transport.deadline
    opened = in_parallel(lambda one: _open(repository, manifest, listed, *one), work, deadline)
    found = ambiguity(manifest)
    unclear = (_unread("", found[0], f"{manifest.digest}: {found[1]}", blocks=True),) if found else ()
    each: dict[object, AttachedStatement] = {}
    for one in opened:  # a bundle repeats its envelope
        key: object = (
            msgspec.json.encode(one.meaning) if isinstance(one.meaning, Verdict) else (one.stored, one.meaning)
        )
        each.setdefault((one.signed_by, key), one)
    return ImageStatements(manifest.digest, (*unclear, *each.values()))


def _open(
    repository: Repository, manifest: Manifest, listed: Listing, opener: Opener, stored: str
) -> AttachedStatement:
    """Open one document. One that is not a statement of a trusted key is ignored, since anybody can attach it."""
    try:
        opened = opener.open(document(repository, stored, opener.media_type))
    except RegistryRefusedError as error:
        foreign = error.fault in (Reason.UNREADABLE, Reason.TOO_LARGE)  # envbuilder publishes no such document
        claimed = error.fault is Reason.NOT_THERE and stored in listed.claimed
        reason = Reason.UNREADABLE if foreign else error.fault
        return _unread(stored, reason, error.message, blocks=not (foreign or claimed))
    except PublishError as error:
        return _unread(stored, Reason.UNREADABLE, error.message)
    if isinstance(opened, Rejected):
        reason = Reason.UNTRUSTED_KEY if opened.unknown_signer else Reason.BAD_SIGNATURE
        return _unread(stored, reason, opened.message)
    meaning = understood(manifest.digest, opened.payload_type, opened.payload)
    return AttachedStatement(stored, opened.signed_by, meaning)


def _unread(stored: str, reason: Reason, message: str, *, blocks: bool = False) -> AttachedStatement:
    return AttachedStatement(stored, (), Unread(reason, message, blocks=blocks))
