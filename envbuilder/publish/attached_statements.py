"""Read the statements that are attached to images of a repository, and sort out whose can be believed."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import product

from envbuilder.attest.envelope import BUNDLES, STATEMENTS, Opened, Opener, Openers, pae, readings
from envbuilder.attest.requirements import Refusal, Refusals, Requirement
from envbuilder.attest.statements import Meaning, Unread, VerdictPredicate, understood
from envbuilder.attest.trust_policy import AttachedStatement, Decision, Evidence, decide
from envbuilder.errors import PublishError, Reason
from envbuilder.registry.client import Repository
from envbuilder.registry.errors import MalformedError, RegistryRefusedError
from envbuilder.registry.manifests import MAX_DOCUMENT, Manifest, ambiguity, config_digest, digest_of, only_image
from envbuilder.registry.referrers import contents, listing, subject_of
from envbuilder.support.terminal_text import line, without_logins
from envbuilder.support.threads import WORKERS, in_parallel
from envbuilder.verdict import Verdict

ANSWER_S = 25.0  # in which `verify` answers, even if the registry does not
_UNFIT = (Reason.WITHDRAWN, Reason.INCONSISTENT, Reason.SIMULATED, Reason.EXPIRED)


def of_any_host(evidence: Evidence) -> Decision:
    return decide(evidence, Requirement(level="static", max_age_s=math.inf), datetime.now(UTC))


@dataclass
class PublishedVerdicts:
    """The documents attached to images of a repository that have a trusted statement, by the image's digest.

    ``verdicts`` are those that `verify` may accept for some host, or that are FAILED or INCONCLUSIVE; ``answered`` each
    FAILED of them that counts for no host.
    """

    evidence: dict[str, Evidence] = field(default_factory=dict)
    verdicts: list[Verdict] = field(default_factory=list)
    answered: list[Verdict] = field(default_factory=list)

    def add(self, digest: str, evidence: Evidence) -> Refusals:
        """Return why `verify` refuses the image, or never accepts one of its verdicts, whatever is required."""
        if any(one.signed_by for one in evidence):
            self.evidence[digest] = evidence
        found, stated = of_any_host(evidence), {one.stored: one.verdict for one in evidence if one.verdict is not None}
        unread = {one.stored for one in evidence if isinstance(one.meaning, Unread)}
        refused = [one for one in found.refusals if one.statement in unread]
        refused += [one for one in (*found.refusals, *found.notes) if one.reason in _UNFIT]
        out, in_force = {one.statement for one in refused}, {one.statement for one in found.failures}
        left = [(stored, one) for stored, one in stated.items() if stored not in out and out <= stated.keys()]
        self.verdicts += [one for _, one in left]
        self.answered += [one for stored, one in left if one.verdict == "FAILED" and stored not in in_force]
        return tuple(refused)


def published(
    repository: Repository, openers: Openers, say: Callable[[str], None], update: Callable[..., None]
) -> PublishedVerdicts:
    """Collect the trusted verdicts of a repository for a report; warn about withdrawn and unreadable images.

    ``update`` gets a step, and how much of it is done.
    Raises RegistryRefusedError if there is no such repository, RegistryFailedError if a part takes over ANSWER_S.
    """
    try:
        names = tuple({subject_of(tag) or tag: None for tag in repository.within(ANSWER_S, repository.tags)})
    except RegistryRefusedError as error:
        if error.fault is Reason.NOT_THERE:
            error.hint = f"is there a repository {repository.reference.name}? `publish --to` makes it"
        raise
    if not names:
        raise RegistryRefusedError(Reason.NOT_THERE, f"{repository.reference.name} has no tag; is it its name?")

    def manifest_at(name: str) -> Manifest | None:
        try:
            return repository.manifest(name)
        except RegistryRefusedError as error:
            leave_out(name, error)
            return None

    def leave_out(name: str, why: RegistryRefusedError | Refusal) -> None:
        say(line(f"warning: the report leaves {repository.reference.at(name)} or a verdict on it out: {why.message}"))

    found, done = PublishedVerdicts(), set[str]()
    for start in range(0, len(names), WORKERS):
        update("reading statements", start, len(names))
        group = repository.within(ANSWER_S, partial(in_parallel, manifest_at, names[start : start + WORKERS]))
        for manifest in group:
            if manifest is not None and manifest.digest not in done:
                done.add(manifest.digest)
                try:
                    evidence = repository.within(ANSWER_S, partial(read_statements, repository, manifest, openers))
                    for refusal in found.add(manifest.digest, evidence):
                        leave_out(manifest.digest, refusal)
                except RegistryRefusedError as error:
                    leave_out(manifest.digest, error)
    return found


def read_statements(repository: Repository, manifest: Manifest, openers: Openers) -> Evidence:
    """Open every attached document, of whatever type, and each one that a trusted statement names.

    One of another type than statements have counts only if a trusted key signed it. Of an index of one image, those
    of that image are read too.
    """
    unclear = ambiguity(manifest)
    problems: Evidence = (_unread("", unclear[0], f"{manifest.digest}: {unclear[1]}", blocks=True),) if unclear else ()
    try:
        listed = listing(repository, manifest.digest)
    except RegistryRefusedError:
        if problems:  # as for a login page instead of an image
            return problems
        raise
    items = sorted(listed.items.items(), key=lambda one: (one[1].startswith(BUNDLES), one[0]))
    if strange := listed.strange:  # anybody can list one: it refuses nothing
        text = f"{len(strange)} of the listed documents cannot be read: {min(strange)[:100]!r} is not a sha256 digest"
        problems += (_unread("", Reason.UNREADABLE, text),)
    waiting = [stored for stored, _ in items]
    others = {stored for stored, kind in items if kind and not kind.startswith(STATEMENTS)}
    opened: dict[str, dict[str, AttachedStatement]] = {}
    named: dict[str, None] = {}
    while waiting:
        work = partial(_open, repository, manifest, openers, listed.claimed)
        opened |= dict(zip(waiting, in_parallel(work, waiting), strict=True))
        links = [one.links for found in opened.values() for one in found.values()]
        named = dict.fromkeys(name for one in links for name in (*one.answers, *one.previous))
        waiting = [name for name in named if name not in opened]
    seen = {name for found in opened.values() for one in found.values() for name in one.links.previous}
    for name in named:
        is_read = any(one.signed_by and getattr(one.meaning, "blocks", True) for one in opened[name].values())
        for unread in [one.meaning for one in opened[name].values() if isinstance(one.meaning, Unread)]:
            missing = unread.reason is Reason.NOT_THERE
            if missing or (name in seen and not is_read and unread.reason in (Reason.UNREADABLE, Reason.WRONG_SUBJECT)):
                text = f"a trusted statement names {name}, where nothing about this image can be read: {unread.message}"
                reason = Reason.STATEMENT_MISSING if missing else Reason.UNREADABLE
                opened[name] = {name: _unread(name, reason, text, blocks=True)}
    each: dict[str, AttachedStatement] = {}
    for stored, found in opened.items():
        for content, one in found.items():
            if stored in others.difference(named) and not one.signed_by:
                continue
            first = each.get(content, one)
            signers = tuple(dict.fromkeys((*first.signed_by, *one.signed_by)))
            each[content] = replace(first, signed_by=signers, copies=first.copies | {stored})
    if listed.unlisted is not None:
        text = f"not all tags were read, where a statement may be that the list lacks: {listed.unlisted.message}"
        problems += (_unread("", listed.unlisted.fault, text),)
    return (*problems, *_below(repository, manifest, openers), *each.values())


def _below(repository: Repository, manifest: Manifest, openers: Openers) -> Evidence:
    if not (name := only_image(manifest)):
        return ()
    if image := repository.manifest(name):
        return tuple(replace(one, below=True) for one in read_statements(repository, image, openers))
    return (_unread("", Reason.NO_IMAGE, f"the registry has no {name}, the image of this index", blocks=True),)


def _open(
    repository: Repository, manifest: Manifest, openers: Openers, claimed: frozenset[str], stored: str
) -> dict[str, AttachedStatement]:
    """Open the documents of an artifact, by the digest of their content. Anybody can attach one that proves nothing."""

    def unread(error: PublishError, size: object = 0) -> Unread:  # envbuilder publishes nothing malformed or too large
        fault = error.fault if isinstance(error, RegistryRefusedError) else Reason.UNREADABLE
        is_said = isinstance(size, int) and size <= MAX_DOCUMENT  # then more bytes come than the manifest says
        if isinstance(error, MalformedError) or (fault is Reason.TOO_LARGE and not is_said):
            fault = Reason.UNREADABLE
        blocks = fault is not Reason.UNREADABLE and not (fault is Reason.NOT_THERE and stored in claimed)
        return Unread(fault, error.message, blocks, error.hint)

    def opened(reading: bytes, opener: Opener) -> Opened | Unread:
        try:
            return opener.open(reading)
        except PublishError as error:
            return unread(error)

    try:
        names = contents(repository, stored)
    except RegistryRefusedError as error:
        return {stored: AttachedStatement(stored, (), unread(error))}
    found: dict[str, AttachedStatement] = {}
    for name, size in names.items():
        try:
            every = [opened(*each) for each in product(readings(repository.blob(name)), openers)]
        except RegistryRefusedError as error:
            every = [unread(error, size)]
        signed = [one for one in every if isinstance(one, Opened)]
        for one in signed:
            key = digest_of(pae(one.payload_type, one.payload))
            found[key] = AttachedStatement(stored, one.signed_by, _meaning(manifest, one))
        if not signed and isinstance(why := next(iter(every), None), Unread):
            found[f"{stored} {name}"] = AttachedStatement(stored, (), why)
    return found


def _meaning(manifest: Manifest, opened: Opened) -> Meaning:
    meaning = understood(manifest.digest, opened.payload_type, opened.payload)
    passed = meaning.verdict if isinstance(meaning, VerdictPredicate) else None
    config = config_digest(manifest)  # not known of an index; an engine's id of an image is one of two digests
    if passed and passed.verdict == "PASSED" and config and passed.image.id not in (manifest.digest, config):
        text = f"the verdict contradicts itself: its image has the id {passed.image.id[:80]!r}"
        return Unread(Reason.INCONSISTENT, text, blocks=False)
    return meaning


def _unread(stored: str, reason: Reason, message: str, *, blocks: bool = False) -> AttachedStatement:
    return AttachedStatement(stored, (), Unread(reason, without_logins(message, 1), blocks))
