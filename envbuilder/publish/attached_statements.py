"""Read the statements that are attached to images of a repository, and sort out whose can be believed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from envbuilder.attest.envelope import Opener, Rejected
from envbuilder.attest.requirements import Refusal
from envbuilder.attest.statements import understood
from envbuilder.attest.trust_policy import TrustedStatement
from envbuilder.errors import PublishError, Reason
from envbuilder.registry.client import Repository
from envbuilder.registry.deadline import in_parallel
from envbuilder.registry.errors import RegistryRefusedError
from envbuilder.registry.manifests import Manifest, ambiguity
from envbuilder.registry.referrers import Listing, NotADocumentError, document, listing, subject_of
from envbuilder.verdict import Verdict


@dataclass(frozen=True)
class AttachedDocument:
    """One attached document. ``unknown``: its meaning is not known, so the image cannot be accepted."""

    trusted: TrustedStatement | None = None
    refusal: Refusal | None = None
    unknown: bool = False


@dataclass(frozen=True)
class ImageStatements:
    """The documents of one image: trusted statements, and refusals of those of unknown meaning and of the others."""

    digest: str
    documents: tuple[AttachedDocument, ...]

    @property
    def trusted(self) -> tuple[TrustedStatement, ...]:
        """Statements with the signature of a trusted key."""
        return tuple(one.trusted for one in self.documents if one.trusted is not None)

    @property
    def unknown(self) -> tuple[Refusal, ...]:
        """Refusals of documents of unknown meaning, which forbid to accept the image."""
        return tuple(one.refusal for one in self.documents if one.refusal and one.unknown)

    @property
    def ignored(self) -> tuple[Refusal, ...]:
        """Refusals of documents that change nothing: anybody can attach them."""
        return tuple(one.refusal for one in self.documents if one.refusal and not one.unknown)


@dataclass(frozen=True)
class PublishedVerdicts:
    """The trusted verdicts of a repository, the trusted statements by image digest, and documents by signer."""

    verdicts: tuple[Verdict, ...]
    evidence: dict[str, tuple[TrustedStatement, ...]] = field(default_factory=dict)
    signed: Counter[str] = field(default_factory=Counter)


def published(repository: Repository, openers: tuple[Opener, ...]) -> PublishedVerdicts:
    """Collect the trusted verdicts of a repository for a report. Raises PublishError if it does not exist."""
    tags = repository.tags_if_there()
    if tags is None:
        raise PublishError(f"there is no repository {repository.reference.name}", hint="is its name right?")
    verdicts: dict[str, Verdict] = {}
    signed: Counter[str] = Counter()
    evidence: dict[str, tuple[TrustedStatement, ...]] = {}
    for digest in _digests(repository, tags):
        found = statements_of(repository, openers, digest)
        if found is None or not found.trusted:
            continue
        evidence[digest] = found.trusted
        for item in found.trusted:
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
    return ImageStatements(manifest.digest, (*_unclear(manifest), *opened))


def _unclear(manifest: Manifest) -> Iterator[AttachedDocument]:
    """Yield the reason why a verdict about this digest may be about several images."""
    if found := ambiguity(manifest):
        yield _unknown(found[0], "", f"{manifest.digest}: {found[1]}")


def _open(repository: Repository, manifest: Manifest, listed: Listing, opener: Opener, stored: str) -> AttachedDocument:
    """Open one document. One that is not a statement of a trusted key is ignored, since anybody can attach it."""
    try:
        opened = opener.open(document(repository, stored, opener.media_type))
    except RegistryRefusedError as error:
        return _not_fetched(error, stored, claimed=stored in listed.claimed)
    except PublishError as error:
        return _ignored(Reason.UNREADABLE, stored, error.message)
    if isinstance(opened, Rejected):
        reason = Reason.UNTRUSTED_KEY if opened.unknown_signer else Reason.BAD_SIGNATURE
        return _ignored(reason, stored, opened.message)
    meaning = understood(manifest.digest, opened.payload_type, opened.payload)
    return AttachedDocument(TrustedStatement(stored, opened.signed_by, meaning))


def _not_fetched(error: RegistryRefusedError, stored: str, *, claimed: bool) -> AttachedDocument:
    if isinstance(error, NotADocumentError) or error.fault is Reason.TOO_LARGE:
        return _ignored(Reason.UNREADABLE, stored, error.message)  # envbuilder publishes no such document
    if claimed and error.fault is Reason.NOT_THERE:
        return _ignored(Reason.NOT_THERE, stored, error.message)
    return _unknown(error.fault, stored, error.message)


def _unknown(reason: Reason, stored: str, message: str) -> AttachedDocument:
    return AttachedDocument(refusal=Refusal(reason=reason, statement=stored, message=message), unknown=True)


def _ignored(reason: Reason, stored: str, message: str) -> AttachedDocument:
    return AttachedDocument(refusal=Refusal(reason=reason, statement=stored, message=message))
