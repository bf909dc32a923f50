"""Read the statements that are attached to images of a repository, and sort out whose can be believed."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from envbuilder.attest.envelope import BUNDLES, STATEMENTS, Opened, Openers, pae
from envbuilder.attest.requirements import Refusal, Requirement
from envbuilder.attest.statements import Unread, VerdictPredicate, understood
from envbuilder.attest.trust_policy import AttachedStatement, Evidence, decide
from envbuilder.errors import PublishError, Reason
from envbuilder.registry.client import Repository
from envbuilder.registry.errors import MalformedError, RegistryRefusedError
from envbuilder.registry.manifests import Manifest, ambiguity, config_digest, digest_of
from envbuilder.registry.referrers import document, listing, subject_of
from envbuilder.support.threads import in_parallel
from envbuilder.verdict import Verdict


@dataclass(frozen=True)
class PublishedVerdicts:
    """The documents attached to images of a repository that have a trusted statement, by the image's digest."""

    evidence: dict[str, Evidence]

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Every verdict on an image that nobody withdrew."""
        each = {one.stored: one.verdict for found in self.evidence.values() if not withdrawal(found) for one in found}
        return tuple(verdict for verdict in each.values() if verdict is not None)


def withdrawal(evidence: Evidence) -> Refusal | None:
    refusals = decide(evidence, Requirement(), datetime.now(UTC)).refusals
    return next((one for one in refusals if one.reason is Reason.WITHDRAWN), None)


def published(repository: Repository, openers: Openers) -> PublishedVerdicts:
    """Collect the trusted verdicts of a repository for a report. Raises PublishError if it does not exist."""
    tags = repository.tags()
    if tags is None:
        hint = f"is its name right? to publish there: envbuilder publish --to {repository.reference.name} --key KEY"
        raise PublishError(f"there is no repository {repository.reference.name}", hint=hint)
    evidence: dict[str, Evidence] = {}
    for digest in _digests(repository, tags):
        manifest = repository.manifest(digest)
        found = read_statements(repository, manifest, openers) if manifest is not None else ()
        if any(item.signed_by for item in found):
            evidence[digest] = found
    return PublishedVerdicts(evidence)


def _digests(repository: Repository, tags: Iterable[str]) -> tuple[str, ...]:
    digests: dict[str, None] = {}
    for tag in tags:
        if subject := subject_of(tag):
            digests[subject] = None
        elif (manifest := repository.manifest(tag)) is not None:
            digests[manifest.digest] = None
    return tuple(digests)


def read_statements(repository: Repository, manifest: Manifest, openers: Openers) -> Evidence:
    """Open every attached document, of whatever type, and each one that a trusted statement names.

    One of another type than statements have counts only if a trusted key signed it.
    """
    unclear = ambiguity(manifest)
    problems = (_unread("", unclear[0], f"{manifest.digest}: {unclear[1]}", blocks=True),) if unclear else ()
    try:
        listed = listing(repository, manifest.digest)
    except RegistryRefusedError:
        if problems:  # as for a login page instead of an image
            return problems
        raise
    items = sorted(listed.items.items(), key=lambda one: (one[1].startswith(BUNDLES), one[0]))
    waiting = [stored for stored, _ in items]
    others = {stored for stored, kind in items if kind and not kind.startswith(STATEMENTS)}
    opened: dict[str, tuple[str, AttachedStatement]] = {}
    named: dict[str, None] = {}
    while waiting:
        work = partial(_open, repository, manifest, openers, listed.claimed)
        opened |= {one.stored: (content, one) for content, one in in_parallel(work, waiting)}
        links = [one.links for _, one in opened.values()]
        named = dict.fromkeys(name for one in links for name in (*one.answers, *one.previous))
        waiting = [name for name in named if name not in opened]
    lost = {Reason.NOT_THERE: Reason.STATEMENT_MISSING, Reason.UNREADABLE: Reason.UNREADABLE}
    seen = {name for _, one in opened.values() for name in one.links.previous}
    for name in named:
        unread = opened[name][1].meaning
        if isinstance(unread, Unread) and unread.reason in lost and (name in seen or unread.reason is Reason.NOT_THERE):
            text = f"a trusted statement names {name}, which is unreadable, deleted or hidden: {unread.message}"
            opened[name] = name, _unread(name, lost[unread.reason], text, blocks=True)
    each: dict[str, AttachedStatement] = {}
    for content, one in opened.values():
        if one.stored in others.difference(named) and not one.signed_by:
            continue
        first = each.get(content, one)
        signers = tuple(dict.fromkeys((*first.signed_by, *one.signed_by)))
        each[content] = replace(first, signed_by=signers, copies=first.copies | {one.stored})
    return (*problems, *each.values())


def _open(
    repository: Repository, manifest: Manifest, openers: Openers, claimed: frozenset[str], stored: str
) -> tuple[str, AttachedStatement]:
    """Open one document; return the digest of its content too. Anybody can attach one, so that it may prove nothing."""
    try:
        content = document(repository, stored).removeprefix(BOM_UTF8)
        opened = [opener.open(content) for opener in openers]
    except RegistryRefusedError as error:  # envbuilder publishes no document that is malformed or too large
        is_foreign = isinstance(error, MalformedError) or error.fault in (Reason.UNREADABLE, Reason.TOO_LARGE)
        reason = Reason.UNREADABLE if is_foreign else error.fault
        blocks = not (is_foreign or (error.fault is Reason.NOT_THERE and stored in claimed))
        return stored, _unread(stored, reason, error.message, blocks=blocks, step=error.hint)
    except PublishError as error:
        return stored, _unread(stored, Reason.UNREADABLE, error.message, step=error.hint)
    for one in opened:
        if isinstance(one, Opened):
            meaning = understood(manifest.digest, one.payload_type, one.payload)
            passed = meaning.verdict if isinstance(meaning, VerdictPredicate) else None
            config = config_digest(manifest)  # not known of an index; an engine's id of an image is one of two digests
            if passed and passed.verdict == "PASSED" and config and passed.image.id not in (manifest.digest, config):
                text = f"the verdict contradicts itself: its image has the id {passed.image.id[:80]!r}"
                meaning = Unread(Reason.INCONSISTENT, text, blocks=False)
            return digest_of(pae(one.payload_type, one.payload)), AttachedStatement(stored, one.signed_by, meaning)
    return stored, AttachedStatement(stored, (), next(one for one in opened if isinstance(one, Unread)))


def _unread(stored: str, reason: Reason, message: str, *, blocks: bool = False, step: str = "") -> AttachedStatement:
    return AttachedStatement(stored, (), Unread(reason, message, blocks, step))
