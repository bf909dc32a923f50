"""Read the statements that are attached to images of a repository, and sort out whose can be believed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from envbuilder.attest.envelope import BUNDLE, Opened, Opener, Rejected, pae
from envbuilder.attest.statements import Unread, understood
from envbuilder.attest.trust_policy import AttachedStatement
from envbuilder.errors import PublishError, Reason
from envbuilder.registry.client import Repository
from envbuilder.registry.deadline import in_parallel
from envbuilder.registry.errors import RegistryRefusedError
from envbuilder.registry.manifests import Manifest, ambiguity, digest_of
from envbuilder.registry.referrers import Listing, document, listing, subject_of
from envbuilder.verdict import Verdict


@dataclass(frozen=True)
class ImageStatements:
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
    tags = repository.tags()
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
            if item.verdict is not None:
                verdicts[item.stored] = item.verdict
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
    """Open every attached document that could be a statement, and each one that a trusted statement names."""
    kinds = frozenset(opener.media_type for opener in openers)
    listed = listing(repository, manifest.digest, kinds)
    items = sorted(listed.items.items(), key=lambda one: (one[1] == BUNDLE, one[0]))
    waiting = {stored: False for stored, kind in items if kind in ("", *kinds)}
    opened: dict[str, tuple[str, AttachedStatement]] = {}
    while waiting:
        work = [(stored, waiting[stored]) for stored in waiting]
        found = in_parallel(
            lambda one: _open(repository, manifest, openers, listed, *one), work, repository.transport.deadline
        )
        opened |= {one.stored: (content, one) for content, one in found}
        waiting = {name: True for _, one in opened.values() for name in one.names if name not in opened}
    unclear = ambiguity(manifest)
    problems = (_unread("", unclear[0], f"{manifest.digest}: {unclear[1]}", blocks=True),) if unclear else ()
    each: dict[str, AttachedStatement] = {}
    for content, one in opened.values():
        first = each.get(content, one)
        signers = tuple(dict.fromkeys((*first.signed_by, *one.signed_by)))
        each[content] = replace(first, signed_by=signers, copies=first.copies | {one.stored})
    return ImageStatements(manifest.digest, (*problems, *each.values()))


def _open(
    repository: Repository,
    manifest: Manifest,
    openers: tuple[Opener, ...],
    listed: Listing,
    stored: str,
    named: bool,  # noqa: FBT001 - one of a row's values
) -> tuple[str, AttachedStatement]:
    """Open one document; return the digest of its content too. Anybody can attach one, so that it may prove nothing.

    One that a trusted statement names refuses the image if it is gone.
    """
    kinds = frozenset(opener.media_type for opener in openers)
    try:
        kind, content = document(repository, stored, kinds)
        opened = [opener.open(content) for opener in openers if opener.media_type == kind]
    except RegistryRefusedError as error:
        gone = error.fault is Reason.NOT_THERE
        if gone and named:
            text = f"a trusted statement names {stored}, which the registry does not have: it was deleted or is hidden"
            return stored, _unread(stored, Reason.STATEMENT_MISSING, text, blocks=True)
        foreign = error.fault in (Reason.UNREADABLE, Reason.TOO_LARGE)  # envbuilder publishes no such document
        reason = Reason.UNREADABLE if foreign else error.fault
        blocks = not (foreign or (gone and stored in listed.claimed))
        return stored, _unread(stored, reason, error.message, blocks=blocks)
    except PublishError as error:
        return stored, _unread(stored, Reason.UNREADABLE, error.message)
    for one in opened:
        if isinstance(one, Opened):
            meaning = understood(manifest.digest, one.payload_type, one.payload)
            return digest_of(pae(one.payload_type, one.payload)), AttachedStatement(stored, one.signed_by, meaning)
    rejected = next(one for one in opened if isinstance(one, Rejected))
    reason = Reason.UNTRUSTED_KEY if rejected.unknown_signer else Reason.BAD_SIGNATURE
    return stored, _unread(stored, reason, rejected.message)


def _unread(stored: str, reason: Reason, message: str, *, blocks: bool = False) -> AttachedStatement:
    return AttachedStatement(stored, (), Unread(reason, message, blocks=blocks))
