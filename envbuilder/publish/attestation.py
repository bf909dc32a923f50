"""Validate the image of a digest in a registry; sign the verdict, attach it and read it back."""

import fcntl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import msgspec

from envbuilder.attest.envelope import BUNDLE, ENVELOPE, Openers, Sealer, bundled
from envbuilder.attest.requirements import CLOCK_SKEW, moment
from envbuilder.attest.statements import (
    NOTICE,
    VERDICT,
    Allowance,
    Notice,
    Statement,
    Unread,
    VerdictPredicate,
    about,
    encode,
    result_statement,
    verdict_statement,
)
from envbuilder.attest.trust_policy import supersedes
from envbuilder.engine.port import Engine, Image
from envbuilder.errors import PublishError, Reason, UsageError
from envbuilder.publish.attached_statements import of_any_host, read_statements
from envbuilder.publish.results import Compression, PublishDocument, PublishRow
from envbuilder.publish.verification import advising
from envbuilder.publish.zstd_push import ZstdPusher
from envbuilder.registry.client import Repository
from envbuilder.registry.manifests import Descriptor, Manifest, ambiguity, only_image
from envbuilder.registry.reference import DIGEST, Reference, parse
from envbuilder.registry.referrers import attach, confirm
from envbuilder.support import decoding
from envbuilder.validation import suite_plan
from envbuilder.validation.validate import ValidationRequest
from envbuilder.validation.verdict_store import History
from envbuilder.verdict import HostRef, Verdict
from envbuilder.workspace import Workspace, content_key, read_document, remove, write_document, writing

REUSE_WITHIN = timedelta(hours=24)  # the greatest age of a verdict of an interrupted run that is used

PREDICATE_TYPE = "in-toto.io/predicate-type"
_CONTENT, _BUNDLED = "dev.sigstore.bundle.content", "dev.sigstore.bundle.predicateType"
"""Annotations: the type of a statement, for tools that list statements; and those of a bundle that cosign reads."""

Describe = Callable[[str, str, Image], tuple[Statement, ...]]  # packages and origin, by name, digest and content


@dataclass(frozen=True)
class ValidationTerms:
    """The conditions of a validation: the verdict of an interrupted run is used if its conditions are the same."""

    host: HostRef
    profile: str = "quick"
    gpus: str = "auto"
    budgets: msgspec.Struct | None = None

    @property
    def key(self) -> str:
        gpus = sorted(gpu.name for gpu in self.host.gpus)
        parts = (suite_plan.digest(), self.host.driver, gpus, self.profile, self.gpus, self.budgets)
        return content_key({"terms": msgspec.json.encode(parts)})


@dataclass(frozen=True)
class PublishSession:
    """The services of one command, its variables and its host; ``say`` may get the number of moved bytes too."""

    engine: Engine
    workspace: Workspace
    say: Callable[..., None]
    environment: Mapping[str, str]
    host: HostRef


@dataclass(frozen=True)
class PublishTools:
    """The services that publishing one image needs; ``zstd`` pushes instead of the engine if it is set.

    ``folder`` stores finished steps, so that the next run continues a killed one; ``terms`` are the conditions of a
    validation.
    """

    session: PublishSession
    repository: Repository
    sealer: Sealer
    validate: Callable[[Reference], Verdict]
    folder: Path
    terms: ValidationTerms
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    describe: Describe = lambda name, digest, image: ()  # noqa: ARG005 - the port's names
    zstd: ZstdPusher | None = None

    @property
    def compression(self) -> Compression:
        return "zstd" if self.zstd else "gzip"

    def verdict_file(self, digest: str) -> Path:
        """Return the file of a verdict that these conditions gave: it is written at once, and says that they did."""
        return self.folder / f"{digest[7:23]}-{self.terms.key[7:23]}.verdict.json"


@contextmanager
def exclusively(folder: Path) -> Iterator[None]:
    """Hold a folder's lock. Raises PublishError if another process publishes the same environment."""
    with writing(folder / ".lock"):
        file = (folder / ".lock").open("w")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            hint = f"run this command again when it has ended; `fuser -v {folder / '.lock'}` names its process"
            raise PublishError(f"another envbuilder command is using {folder}", hint=hint) from error
        yield


def validated(manifest: Manifest, tools: PublishTools, *, again: bool = False) -> Verdict:
    """Validate the image of a digest, unless an earlier run did so recently under the same conditions.

    ``again`` validates it in any case. Raises PublishError for a digest that may be several images: readers could run
    another one than the validated one.
    """
    if found := ambiguity(manifest):
        raise PublishError(f"{manifest.digest}: {found[1]}", hint="push one image, and name it by its digest")
    path = tools.verdict_file(manifest.digest)
    verdict = None if again else read_document(path, Verdict)
    if verdict is not None and _is_fresh(verdict, tools.now()):
        tools.session.say(f"already validated: {verdict.verdict}")
    else:
        reference = tools.repository.reference.at(manifest.digest)
        tools.session.say(f"validating {reference}")
        if tools.session.engine.image(str(reference)) is None:
            tools.session.engine.pull(str(reference))
        verdict = _on_slices(tools.validate(reference), tools.session.host)
        write_document(path, verdict)
    # After the file: a run that is killed in between is not repeated.
    History(tools.session.workspace.history).add((verdict,))
    if verdict.image.digest != manifest.digest:
        text = f"the verdict is about {verdict.image.digest}, not about {manifest.digest}"
        raise PublishError(text, hint="another image was pushed at the same time: run the command again")
    return verdict


def _is_fresh(verdict: Verdict, now: datetime) -> bool:
    """Return True for a recent verdict with a valid time that is not in the future: `verify` refuses others."""
    with suppress(decoding.DamagedError):
        return -CLOCK_SKEW < now - moment(verdict.finished) < REUSE_WITHIN
    return False


def attach_all(
    manifest: Manifest,
    verdict: Verdict,
    tools: PublishTools,
    allowed: tuple[Allowance, ...] = (),
    further: tuple[Statement, ...] = (),
) -> tuple[str, ...]:
    """Sign and attach every statement, read back that all are listed, and return their digests.

    The verdict answers each FAILED that its signer trusts and whose checks passed in it. Raises PublishError for a
    simulated verdict, before anything is signed.
    """
    name = tools.repository.reference.name
    result = result_statement(name, verdict, allowed=allowed)
    answers, previous = links(tools.repository, tools.sealer.openers, manifest, verdict, tools.now())
    main = verdict_statement(name, verdict, allowed=allowed, answers=answers, previous=previous)
    attached: list[Descriptor] = []
    for each in (main, *((result,) if result else ()), *further):
        tools.session.say(f"attaching {each.predicate_type}")
        attached += attach_signed(tools.repository, tools.sealer, manifest, each)
    confirm(tools.repository, manifest.digest, tuple(attached))
    return tuple(one.digest for one in attached)


def check_not_withdrawn(manifest: Manifest, tools: PublishTools) -> None:
    """Raise PublishError for an image that a person withdrew, of whom the signer knows."""
    openers, image = tools.sealer.openers, f"{tools.repository.reference.name}@{manifest.digest}"
    refused = of_any_host(read_statements(tools.repository, manifest, openers)).refusals if openers else ()
    if found := next((one for one in refused if one.reason is Reason.WITHDRAWN), None):
        hint = f"envbuilder publish --answer {image} {found.statement} --key KEY --reason TEXT"
        raise PublishError(f"{image} is not published again: {found.message}", hint=hint)


def attach_signed(
    repository: Repository, sealer: Sealer, manifest: Manifest, statement: Statement
) -> tuple[Descriptor, ...]:
    """Sign and attach a statement; a verdict also as a bundle."""
    sealed, annotations = sealer.seal(encode(statement)), {PREDICATE_TYPE: statement.predicate_type}
    attached = attach(repository, manifest, sealed, sealer.media_type, annotations)
    if statement.predicate_type != VERDICT or sealer.media_type != ENVELOPE:
        return (attached,)
    annotations |= {_CONTENT: "dsse-envelope", _BUNDLED: VERDICT}
    return attached, attach(repository, manifest, bundled(sealed), BUNDLE, annotations)


def links(
    repository: Repository, openers: Openers, manifest: Manifest, verdict: Verdict | None, now: datetime
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the trusted statements that a new one answers, and all that it follows.

    A verdict answers each FAILED whose checks passed in it. It does not follow itself: an interrupted run may have
    attached it.
    """
    found = read_statements(repository, manifest, openers) if openers else ()
    answers, previous = [], []
    for one in sorted(found, key=lambda one: one.stored):
        meaning, stated = one.meaning, one.verdict
        known = isinstance(meaning, VerdictPredicate | Notice) or (isinstance(meaning, Unread) and meaning.blocks)
        if not one.signed_by or one.below or not known or (verdict is not None and stated == verdict):
            continue
        previous.append(one.stored)
        if verdict and stated and stated.verdict == "FAILED" and supersedes(verdict, stated, now):
            answers.append(one.stored)
    return tuple(answers), tuple(previous)


def image_at(repository: Repository) -> Manifest:
    """Return the manifest of the repository's digest. Raises PublishError if the registry does not have it."""
    reference = repository.reference
    manifest = repository.manifest(reference.digest)
    if manifest is None:
        hint = f"check the digest; to publish the image: envbuilder publish --to {reference.name} --key KEY"
        raise PublishError(f"the registry has no {reference}", hint=hint)
    return manifest


def by_digest(target: str | None) -> Reference:
    """Read a reference with a digest. Raises UsageError for a tag, which may be another image tomorrow."""
    reference = parse(target or "")
    if not reference.digest:
        hint = "registry.example.org/team/image@sha256:…, as `envbuilder verify IMAGE --key KEY` names it"
        raise UsageError(f"{target!r} names no digest; a verdict is attached to a digest", hint=hint)
    return reference


def attach_verdict(tools: PublishTools, *, fresh: bool = False) -> Verdict:
    """Validate the image of the repository's digest and attach its verdict, a FAILED one too.

    That of an interrupted run under the same conditions is attached first: trying again loses no FAILED. Raises
    PublishError for an unknown image and for a simulated verdict.
    """
    manifest = image_at(tools.repository)
    with exclusively(tools.folder):
        verdict = validated(manifest, tools, again=fresh)
        stored = attach_all(manifest, verdict, tools)
        remove(tools.verdict_file(manifest.digest))
    tools.session.say(f"attached to {tools.repository.reference}: {', '.join(stored)}")
    return verdict


def _on_slices(verdict: Verdict, host: HostRef) -> Verdict:
    """Return the verdict with the host's MIG slices: inside the container NVML names the complete board."""
    if not any(" MIG " in gpu.name for gpu in host.gpus) or verdict.unreal:
        return verdict
    return msgspec.structs.replace(verdict, host=msgspec.structs.replace(verdict.host, gpus=host.gpus))


def validate_and_attach(
    request: ValidationRequest,
    reference: Reference,
    session: PublishSession,
    sealer: Sealer,
    validate: Callable[[ValidationRequest], Verdict],
) -> Verdict:
    """Validate the image of a digest on this host as a request says, and attach the verdict."""

    def judge(image: Reference) -> Verdict:
        return validate(replace(request, image=str(image)))

    terms = ValidationTerms(session.host, request.profile, request.gpus)
    folder, repository = session.workspace.attached(reference.digest), Repository(reference, session.environment)
    with advising(reference):
        tools = PublishTools(session, repository, sealer, judge, folder, terms)
        return attach_verdict(tools, fresh=request.fresh)


LONGEST_REASON = 1_000  # characters: it is shown in one line
NOTICE_S = 50.0  # in which a registry has to take and list a notice, or to say where an image's tags point


def publish_notice(
    image: str,
    answers: tuple[str, ...],
    reason: str | None,
    sealer: Sealer,
    environment: Mapping[str, str],
    now: datetime,
    say: Callable[[str], object] = str,
) -> PublishDocument:
    """Withdraw the image of a digest, or answer statements about it. Raises UsageError without a reason.

    Raises PublishError if the registry has no such image, or no statement that refuses it has such a digest.
    """
    reason = (reason or "").strip()
    if not any(map(str.isalnum, reason)) or not reason.isprintable() or len(reason) > LONGEST_REASON:
        raise UsageError(f"a reason in words is needed, one line of at most {LONGEST_REASON}", hint="--reason TEXT")
    reference = by_digest(image)
    if wrong := [one for one in answers if not DIGEST.match(one)]:
        raise UsageError(f"{wrong[0]!r} is not the digest of a statement", hint="sha256:…, as `verify` prints it")
    repository = Repository(reference, environment)
    notice = Notice(reason=reason, time=now.isoformat(timespec="seconds"), answers=answers)
    work = partial(_publish_notice, repository, notice, sealer, say)
    with advising(reference):
        return repository.within(NOTICE_S, work, "the notice may be attached: run the same command again")


def _publish_notice(
    repository: Repository, notice: Notice, sealer: Sealer, say: Callable[[str], object]
) -> PublishDocument:
    reference, answers = repository.reference, notice.answers
    manifest = image_at(repository)
    if (image := only_image(manifest)) or ambiguity(manifest):
        raise PublishError(f"{reference} is not one image", hint=f"name one by its digest {image}".strip())
    found = read_statements(repository, manifest, sealer.openers)
    known = {one.stored for one in found if one.refuses} - {""}
    if unknown := [one for one in answers if one not in known]:
        if untrusted := [one.meaning for one in found if one.stored == unknown[0] and isinstance(one.meaning, Unread)]:
            hint = "add the public key of its signer: --key SIGNER.pub"
            raise PublishError(f"{unknown[0]}: {untrusted[0].message}", hint=hint)
        hint = f"envbuilder verify {reference} --key KEY --format json has digests; --withdraw takes an answer back"
        raise PublishError(f"no statement that refuses {reference} has the digest {unknown[0]}", hint=hint)
    _, previous = links(repository, sealer.openers, manifest, None, moment(notice.time))
    notice = msgspec.structs.replace(notice, previous=tuple(one for one in previous if one not in answers))
    statement = about(reference.name, manifest.digest, NOTICE, notice)
    attached = attach_signed(repository, sealer, manifest, statement)
    confirm(repository, manifest.digest, attached)
    if answers and (left := of_any_host(read_statements(repository, manifest, sealer.openers)).refusals):
        say(f"still refused: {', '.join(dict.fromkeys(f'{one.reason} {one.statement}'.strip() for one in left))}")
    stored = tuple(one.digest for one in attached)
    row = PublishRow(environment="", repository=reference.name, digest=manifest.digest, statements=stored)
    kind = "answered" if answers else "withdrawn"
    return PublishDocument(rows=(msgspec.structs.replace(row, notice=kind, reason=notice.reason),))
