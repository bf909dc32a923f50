"""``envbuilder verify``: options and decision; the state of images on host classes for reports and fleets."""

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from envbuilder.attest.envelope import KeyOpener, Opener, Openers, SigstoreOpener
from envbuilder.attest.keys import load_public_keys
from envbuilder.attest.requirements import (
    CLOCK_SKEW,
    EnvironmentRequirement,
    GpuRequirement,
    HostClass,
    NamesOf,
    Refusal,
    Refusals,
    Requirement,
    age_s,
    moment,
    parse_host_classes,
    rank,
    read_driver,
    read_environment,
    read_gpu,
    read_version,
)
from envbuilder.attest.statements import Unread
from envbuilder.attest.trust_policy import AttachedStatement, Decision, Evidence, decide, decide_by_class
from envbuilder.errors import EnvbuilderError, InfrastructureError, Reason, UsageError
from envbuilder.publish.attached_statements import ANSWER_S, PublishedVerdicts, published, read_statements
from envbuilder.publish.tags import destination, meant_by, tensorflow_in
from envbuilder.publish.verification import Verification, advising, demanded, with_next
from envbuilder.registry.client import Repository
from envbuilder.registry.errors import RegistryFailedError, RegistryRefusedError
from envbuilder.registry.manifests import Manifest, config_digest, only_image
from envbuilder.registry.reference import parse
from envbuilder.registry.referrers import listing, subject_of
from envbuilder.support.terminal_text import duration
from envbuilder.verdict import HostRef, ImageState, Level

MAX_SKEW_S = CLOCK_SKEW.total_seconds()  # how far the clocks of two hosts may differ


@dataclass(frozen=True)
class VerifyOptions:
    image: str
    keys: tuple[Path, ...]
    identity: str | None = None
    issuer: str | None = None
    level: Level | None = None
    driver: str | None = None
    gpu: str | None = None
    max_age: str = "90d"
    environment: str | None = None
    tensorflow: str | None = None
    threshold: int = 1
    on: str | None = None


def verify_image(options: VerifyOptions, names_of: NamesOf) -> Verification:
    """Verify the image of the options. Raises UsageError if one is not understood, or if they contradict each other.

    With host classes, a driver or a GPU, the required level is ``gpu`` by default.
    """
    if options.on is not None and (options.driver is not None or options.gpu is not None):
        raise UsageError("--on names drivers and GPUs itself", hint="leave --driver and --gpu out")
    reference, wanted = parse(options.image), requirement_of(options, names_of)
    ends = time.monotonic() + ANSWER_S
    openers, repository = openers_of(options.keys, options.identity, options.issuer), Repository(reference, os.environ)
    signers = len(_names(openers))
    if not 1 <= options.threshold <= signers:
        text = f"--threshold {options.threshold} is impossible: {signers} different signers are given"
        raise UsageError(text, hint="give as many different keys with --key")
    return verify(repository, openers, wanted, datetime.now(UTC), ends - time.monotonic())


def requirement_of(options: VerifyOptions, names_of: NamesOf) -> Requirement:
    return Requirement(
        level=options.level or ("cpu" if {options.on, options.driver, options.gpu} == {None} else "gpu"),
        driver=read_driver(options.driver) if options.driver is not None else None,
        gpu=read_gpu(options.gpu, names_of) if options.gpu is not None else None,
        max_age_s=duration(options.max_age),
        environment=_environment(options),
        tensorflow=read_version(options.tensorflow) if options.tensorflow is not None else None,
        named=tensorflow_in(parse(options.image).tag),
        threshold=options.threshold,
        on=parse_host_classes(options.on, names_of) if options.on is not None else (),
    )


def _environment(options: VerifyOptions) -> EnvironmentRequirement | None:
    """Return the required environment. A tag that is an environment's id means this environment, and its image."""
    given = read_environment(options.environment) if options.environment is not None else None
    meant = meant_by(parse(options.image).tag)
    if given is None or meant is None:
        return given or meant
    if not meant.is_met_by(given.id) or len({given.image, meant.image} - {""}) > 1:
        text = f"the tag means {meant}, and --environment {given}"
        raise UsageError(text, hint="leave out --environment, or name the image by its digest")
    return msgspec.structs.replace(given, image=given.image or meant.image)


def openers_of(keys: tuple[Path, ...], identity: str | None, issuer: str | None) -> Openers:
    """Return openers for the trusted signers. Raises UsageError if there are none."""
    if bool(identity) != bool(issuer):
        raise UsageError("--identity and --issuer belong together", hint="an identity means nothing without its issuer")
    openers: list[Opener] = [KeyOpener(load_public_keys(*keys))] if keys else []
    if identity and issuer:
        openers.append(SigstoreOpener(identity, issuer))
    if not openers:
        hint = "give --key ~/.envbuilder/envbuilder.pub (envbuilder keys new), or --identity and --issuer"
        raise UsageError("no trusted signer: every statement would be refused", hint=hint)
    return tuple(openers)


def fetch(
    repository: str, keys: tuple[Path, ...], say: Callable[[str], None], update: Callable[..., None] = lambda *_: None
) -> PublishedVerdicts:
    """Fetch the verdicts in a repository that trusted keys signed; warn about keys that signed nothing."""
    reference, openers = destination(repository), openers_of(keys, None, None)
    with advising(reference):
        found = published(Repository(reference, os.environ), openers, say, update)
    signed = {one.name for each in found.evidence.values() for item in each for one in item.signed_by}
    for name in _names(openers):
        if name not in signed:
            say(f"warning: nothing that can be read in {reference.name} is signed by the key {name[:16]}")
    return found


def _names(openers: Openers) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for opener in openers for name in opener.names))


def standings(published: PublishedVerdicts, on: str | None, max_age: str, names_of: NamesOf) -> tuple[ImageState, ...]:
    """Return the state of each image with statements on each host class; empty without host classes."""
    if on is None:
        return ()
    wanted = Requirement(level="gpu", max_age_s=duration(max_age), on=parse_host_classes(on, names_of))
    named = {one.image.digest: one.environment.id for one in published.verdicts if one.environment is not None}
    return tuple(_standing(one, named.get(one, ""), found, wanted) for one, found in published.evidence.items())


def _standing(digest: str, environment: str, found: Evidence, wanted: Requirement) -> ImageState:
    decisions = decide_by_class(found, wanted, datetime.now(UTC))
    kinds = tuple(one.standing for one in decisions if one.standing is not None)
    return ImageState(digest=digest, environment=environment, kinds=kinds)


@dataclass(frozen=True)
class Registrar:
    """A repository with its trusted signers; ``max_age_s`` is how old a PASSED may be (seconds)."""

    repository: Repository
    openers: Openers
    names_of: NamesOf
    max_age_s: float

    def standing(
        self, environment: str, level: Level, kinds: Iterable[tuple[str, str]], name: str = ""
    ) -> ImageState | None:
        """Return the state of an environment's image on host classes, each a GPU and a driver ('' for any).

        ``name`` is the tag or digest of the image, by default the environment's id; None if the repository lacks it.
        Raises InfrastructureError or PublishError if the registry fails.
        """
        manifest = self.repository.manifest(name or environment)
        if manifest is None:
            return None
        found = read_statements(self.repository, manifest, self.openers)
        classes = tuple(HostClass(GpuRequirement(gpu, self.names_of) if gpu else None, driver) for gpu, driver in kinds)
        required = EnvironmentRequirement(environment)
        wanted = Requirement(level=level, environment=required, max_age_s=self.max_age_s, on=classes)
        return _standing(manifest.digest, environment, found, wanted)


_OTHER_TAGS = 20  # that are read to distinguish a moved tag from an image that was never published


def verify(
    repository: Repository, openers: Openers, wanted: Requirement, now: datetime, seconds: float | None = None
) -> Verification:
    """Decide about the image of the repository's reference; without proof it is refused.

    A failing registry or a nonsensical answer is a reason to refuse, never an error: there is always an answer, within
    so many seconds.
    """
    bare = Verification(image=str(repository.reference), accepted=False, demanded=demanded(wanted))
    try:
        found = repository.within(seconds, lambda: _verify(bare, repository, openers, wanted, now))
    except (RegistryFailedError, RegistryRefusedError) as error:
        refusal = Refusal(reason=error.fault, message=error.message, next=error.hint)
        unanswered = isinstance(error, InfrastructureError)
        found = msgspec.structs.replace(bare, refusals=(refusal,), unanswered=unanswered)
    image = repository.reference.at(found.digest) if found.digest else repository.reference
    return msgspec.structs.replace(found, refusals=with_next(found.refusals, image, found.demanded))


def _verify(
    bare: Verification, repository: Repository, openers: Openers, wanted: Requirement, now: datetime
) -> Verification:
    reference = repository.reference
    manifest = repository.manifest(reference.digest or reference.tag or "latest")
    if manifest is None:
        missing = Refusal(reason=Reason.NO_IMAGE, message=f"the registry has no {reference}")
        return msgspec.structs.replace(bare, refusals=(missing,))
    bare = msgspec.structs.replace(bare, digest=manifest.digest)
    documents = read_statements(repository, manifest, openers)
    evidence = (*_other_image(manifest, wanted.environment), *documents)
    decisions = decide_by_class(evidence, wanted, now) if wanted.on else (decide(evidence, wanted, now),)
    kinds = tuple(one.standing for one in decisions if one.standing is not None)
    notes = tuple(dict.fromkeys(note for one in decisions for note in one.notes))
    told = msgspec.structs.replace(bare, kinds=kinds, notes=notes)
    if all(one.verdict is not None for one in decisions):
        return _accepted(told, decisions, now)
    refusals: Refusals = ()
    for one in decisions:
        host = one.standing.kind if one.standing else ""
        refusals += with_next(one.refusals, reference.at(manifest.digest), bare.demanded, host)
    attached = any(one.stored and not one.below for one in documents)
    if notes and not refusals and attached:
        return msgspec.structs.replace(bare, refusals=notes)
    if not refusals or (wanted.on and not attached):
        refusals = (_nothing(repository, manifest, attached=attached), *refusals)
    return msgspec.structs.replace(told, refusals=refusals)


def _other_image(manifest: Manifest, wanted: EnvironmentRequirement | None) -> Evidence:
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
    if image := only_image(manifest):
        text = f"nothing is attached to {manifest.digest}, an index of one image: name the image by its own digest"
        step = f"envbuilder verify {repository.reference.at(image)}"
        return Refusal(reason=Reason.NO_STATEMENT, message=text, next=step)
    if repository.reference.digest or not _others_have_statements(repository, manifest.digest):
        return Refusal(reason=Reason.NO_STATEMENT, message=f"nothing is attached to {manifest.digest}")
    text = f"{repository.reference} points at {manifest.digest}, to which nothing is attached, while other images of"
    text += " this repository have statements: the tag was moved to an image that was never validated"
    return Refusal(reason=Reason.TAG_MOVED, message=text)


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


def _accepted(bare: Verification, decisions: tuple[Decision, ...], now: datetime) -> Verification:
    """Return the lowest level and the oldest time of the verdicts, and the host if there is only one."""
    verdicts = [one.verdict for one in decisions if one.verdict is not None]
    signers = tuple(dict.fromkeys(name for one in decisions for name in one.signed_by))
    lowest = min(verdicts, key=lambda one: rank(one.level))
    oldest = min(verdicts, key=lambda one: moment(one.finished))
    has, host = lowest.environment, HostRef() if bare.kinds else lowest.host
    gpus = tuple(gpu.name for gpu in host.gpus)
    what = {"verdict": lowest.verdict, "level": lowest.level, "finished": oldest.finished, "age_s": age_s(oldest, now)}
    what |= {"environment": has.id, "tensorflow": has.tensorflow} if has else {}
    on = {"driver": host.driver, "gpus": gpus, "cpu": host.cpu_model, "kernel": host.kernel}
    return msgspec.structs.replace(bare, accepted=True, **what, **on, signed_by=signers[0], signers=signers)
