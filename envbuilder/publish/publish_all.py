"""Publish one image, and every selected environment's.

An image is pushed under a staging tag and validated by its digest; its statements are attached, then tags are moved.
"""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec

from envbuilder.attest.envelope import KeyOpener, KeySealer, Openers, Sealer, SigstoreSealer
from envbuilder.attest.keys import is_public, load_private, load_public_keys
from envbuilder.attest.sbom import bom, provenance, read
from envbuilder.attest.statements import CYCLONEDX, Allowance, Statement, about
from envbuilder.choice import Choice
from envbuilder.engine.port import Image
from envbuilder.environment import Environment
from envbuilder.errors import EnvbuilderError, ExitCode, InfrastructureError, PublishError, UsageError
from envbuilder.image import lockfile, removed_files
from envbuilder.image.build import Built, digests_of, stored_build
from envbuilder.image.context import build_files
from envbuilder.publish import attestation
from envbuilder.publish.attestation import NOTICE_S, PublishSession, PublishTools, ValidationTerms, exclusively
from envbuilder.publish.results import Compression, PublishDocument, PublishRow, Tag
from envbuilder.publish.tags import FORGETS, check_immutable, confirm_tags, point, staging_tag
from envbuilder.publish.verification import advising
from envbuilder.publish.zstd_push import ZstdPusher
from envbuilder.pypi.client import open_index
from envbuilder.registry.client import Repository
from envbuilder.registry.manifests import Manifest, config_digest
from envbuilder.registry.reference import Reference
from envbuilder.support import decoding
from envbuilder.support.console import Console, Task
from envbuilder.validation import known_image
from envbuilder.validation.image_files import read_image
from envbuilder.validation.suite_plan import Profile
from envbuilder.validation.suite_session import progress_of
from envbuilder.validation.validate import ValidationRequest, validate
from envbuilder.verdict import Verdict
from envbuilder.workspace import content_key, read_document, write_document
from envbuilder.workspace import digest as sha256_of


@dataclass(frozen=True)
class PublishOptions:
    """Where to publish, further moving tags, what is allowed, how to validate and how to compress."""

    to: Reference
    moving: tuple[str, ...] = ()
    allow: tuple[Allowance, ...] = ()
    profile: Profile = "quick"
    gpus: str = "auto"
    sbom: bool = True
    compression: Compression = "gzip"


def publish_all(
    choice: Choice, options: PublishOptions, sealer: Sealer, session: PublishSession, console: Console | None = None
) -> PublishDocument:
    """Publish the image of every selected environment. If one fails, its row says so and the others go on."""
    shown = console or Console()
    repository = Repository(options.to, session.environment)
    folder = session.workspace.out
    pusher = ZstdPusher(repository, folder, session.say) if options.compression == "zstd" else None
    session.engine.sweep()  # containers of killed runs

    def publish_one(environment: Environment) -> PublishRow:
        built = _built(environment, session)
        rebuild = session.workspace.command("build", environment.id)
        publication = Publication(environment.id, built.record.image, _tags(built, options), options.allow, rebuild)
        terms = ValidationTerms(session.host, options.profile, options.gpus, choice.matrix.budgets)
        own = session.workspace.publication(environment.id)
        with shown.task(environment.id) as task:
            shows = replace(session, say=task.update)
            judge = partial(_judge, built, choice, options, session, task)
            describe = partial(_statements, built, shows, sbom=options.sbom)
            tools = PublishTools(shows, repository, sealer, judge, own, terms, describe=describe, zstd=pusher)
            return publish(publication, tools)

    with shown.live(tuple(environment.id for environment in choice.environments)):
        return PublishDocument(rows=_rows(choice, options, publish_one, shown))


def _rows(
    choice: Choice, options: PublishOptions, work: Callable[[Environment], PublishRow], shown: Console | None = None
) -> tuple[PublishRow, ...]:
    rows = []
    for environment in choice.environments:
        try:
            with advising(options.to):
                row = work(environment)
        except EnvbuilderError as error:
            text = f"{error.message} (next: {error.hint})" if error.hint else error.message
            code = error.exit_code if isinstance(error, InfrastructureError) else ExitCode.PUBLISH_FAILED
            row = PublishRow(environment=environment.id, repository=options.to.name, error=text, exit_code=code)
        rows.append(row)
        if shown is not None:
            shown.finished(environment.id, "ERROR" if row.error else row.verdict or "published", error=row.error)
    return tuple(rows)


def sealer_of(
    keys: tuple[Path, ...],
    *,
    keyless: bool,
    environment: Mapping[str, str],
    say: Callable[[str], object] = str,
    openers: Openers | None = None,
) -> Sealer:
    """Return the signer; of ``keys`` the public ones are trusted only.

    Raises UsageError if there is none, or if ``openers`` do not trust it: every run would repeat the work.
    """
    public, keys = (tuple(path for path in keys if is_public(path) == kind) for kind in (True, False))
    if bool(keys) == keyless:
        why = "both are given" if keyless else f"{public[0]} is a public key" if public else "no signer is given"
        raise UsageError(f"give a private --key or --keyless: {why}", hint="envbuilder keys new ~/.envbuilder")
    if keyless:
        SigstoreSealer().token()  # before anything is pushed
        return SigstoreSealer()
    password = environment.get("TF_ENVBUILDER_KEY_PASSWORD") or None
    first, *others = (load_private(path, *public, password=password) for path in keys)
    for path, key in zip(keys, (first, *others), strict=True):
        if (end := key.public.expires) is not None and end < datetime.now(UTC):
            raise UsageError(f"the key {path} expired on {end}", hint="envbuilder keys new FOLDER")
        if path.stat().st_mode & 0o077:
            say(f"warning: others can read the private key {path}: chmod 600 {path}")
        if password and not key.is_protected:
            say(f"warning: no password protects the private key {path}: TF_ENVBUILDER_KEY_PASSWORD is not used")
    trusted = tuple(key for opener in openers or () if isinstance(opener, KeyOpener) for key in opener.trusted)
    if openers is not None and first.public.keyid not in {key.keyid for key in trusted}:
        raise UsageError("the signing key is not one of the trusted keys", hint="give its public half with --key")
    return KeySealer(first, others=tuple(others), trusted=(*load_public_keys(*public), *trusted))


def plan_all(choice: Choice, options: PublishOptions, session: PublishSession) -> PublishDocument:
    """Return the tags that each image would get, and where they point now."""
    repository = Repository(options.to, session.environment)

    def tagged(tags: tuple[Tag, ...]) -> tuple[Tag, ...]:
        check_immutable(repository, tags, zstd=options.compression == "zstd")
        found = [(tag, repository.manifest(tag.name)) for tag in tags]
        return tuple(msgspec.structs.replace(tag, before=at.digest if at else "") for tag, at in found)

    def planned(environment: Environment) -> PublishRow:
        row = PublishRow(environment=environment.id, repository=options.to.name, compression=options.compression)
        tags = repository.within(NOTICE_S, partial(tagged, _tags(_built(environment, session), options)))
        return msgspec.structs.replace(row, allowed=options.allow, tags=tags)

    return PublishDocument(dry_run=True, rows=_rows(choice, options, planned))


def _tags(built: Built, options: PublishOptions) -> tuple[Tag, ...]:
    """Return the tags of an image: an immutable one, its environment's, which moves to the newest image, and others."""
    name = built.environment.image_tag
    fixed = Tag(name=f"{name}-{built.record.tag_part}", moving=False)
    return (fixed, *(Tag(name=one, moving=True) for one in dict.fromkeys((name, *options.moving))))


def _judge(
    built: Built, choice: Choice, options: PublishOptions, session: PublishSession, task: Task, reference: Reference
) -> Verdict:
    name, digest = str(reference), reference.digest
    request = ValidationRequest(
        profile=options.profile, budgets=choice.matrix.budgets, gpus=options.gpus, index=open_index()
    ).of(built, image=name)
    image = session.engine.image(name)
    verdict = validate(session.engine, request, on_progress=progress_of(task))
    if image is None or not image.has(digest):
        raise PublishError(f"the engine does not know {name} by its digest", hint=f"docker pull {name}")
    return msgspec.structs.replace(verdict, image=msgspec.structs.replace(verdict.image, digest=digest))


def _statements(
    built: Built, session: PublishSession, name: str, digest: str, image: Image, *, sbom: bool
) -> tuple[Statement, ...]:
    record, locked = built.record, lockfile.parse(built.lock)
    context = build_files(record.environment, session.workspace)
    engine = record.engine
    tools = {engine.name: engine.version, "builder": engine.builder} if engine else {"builder": record.builder}
    tools |= {one.name: one.version for one in lockfile.parse(decoding.lossy(context.get("shared/tools.lock", b"")))}
    # A record of an earlier version has no digests; its key proves that the files are those of the build.
    is_known = known_image.parse(built.known, known_image.key_of(record.context)) is not None
    known = sha256_of(built.known) if is_known else ""
    origin = provenance(name, digest, record, record.context or digests_of(context), locked, tools, known)
    if not sbom:
        return (origin,)
    session.say("reading the image for the bill of materials")
    left_out = removed_files.parse(built.removed)
    files = read_image(session.engine, image)
    contents = read(files.contents.items(), files.content)
    bill = bom(name, digest, contents, locked, created=record.finished, left_out=left_out)
    return origin, about(name, digest, CYCLONEDX, bill)


def _built(environment: Environment, session: PublishSession) -> Built:
    """Return the build of an environment. Raises PublishError if its context has changed since.

    Statements about an image must describe the files that it was made from.
    """
    hint = session.workspace.command("build", environment.id)
    built = stored_build(environment, session.workspace)
    if built is None:
        raise PublishError(f"{environment.id} is not built", hint=hint)
    path = session.workspace.context(environment.id)
    files = build_files(environment.id, session.workspace)
    if content_key({**files, "base": built.record.base_id.encode()}) != built.record.key:
        raise PublishError(f"{path} has changed since the image was built", hint=hint)
    return built


@dataclass(frozen=True)
class Publication:
    """An image in the engine, its tags, and the command that builds it again."""

    environment: str
    image: str
    tags: tuple[Tag, ...]
    allow: tuple[Allowance, ...] = ()
    rebuild: str = "envbuilder build"


def publish(publication: Publication, tools: PublishTools) -> PublishRow:
    """Publish one image unless its verdict forbids it. Safe to kill at any moment and to run again.

    A public tag is moved only to a digest whose statement is attached. After an error each moving tag is where it was,
    or at the validated digest.
    """
    to = tools.repository.reference
    for tag in publication.tags:
        to.at(tag.name)  # refuses a tag that no registry accepts, before anything is pushed
    image = tools.session.engine.image(publication.image)
    if image is None:
        raise PublishError(f"the engine has no image {publication.image}", hint=publication.rebuild)
    with exclusively(tools.folder):
        try:
            return _published(publication, tools, image)
        finally:
            _tidy(publication, tools, image)


def _published(publication: Publication, tools: PublishTools, image: Image) -> PublishRow:
    to = tools.repository.reference
    check_immutable(tools.repository, publication.tags, zstd=tools.zstd is not None)
    manifest = _stage(publication, tools, image)
    check_immutable(tools.repository, publication.tags, manifest.digest)
    attestation.check_not_withdrawn(manifest, tools)
    verdict = attestation.validated(manifest, tools)
    refusal = _unfit(verdict, publication)
    further = tools.describe(to.name, manifest.digest, image)
    row = PublishRow(
        environment=publication.environment,
        repository=to.name,
        digest=manifest.digest,
        compression=tools.compression,
        verdict=verdict.verdict,
        level=verdict.level,
        allowed=publication.allow,
        statements=attestation.attach_all(manifest, verdict, tools, publication.allow, further),
    )
    if refusal:
        code = ExitCode.FAILED if verdict.verdict == "FAILED" else ExitCode.NO_CLAIM
        return msgspec.structs.replace(row, error=refusal, exit_code=code)
    _promote(publication, tools, manifest)
    return msgspec.structs.replace(row, published=True, tags=publication.tags)


def _stage(publication: Publication, tools: PublishTools, image: Image) -> Manifest:
    """Push under the staging tag, unless that is done, and check that the registry has this image.

    The pushed digest is in a file whose name says where it was pushed to and how.
    """
    key = repr((image.id, str(tools.repository.reference), tools.compression))
    path = tools.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.staged.json"
    if (before := read_document(path, str)) is not None:
        manifest = tools.repository.manifest(before)
        if manifest is not None and not tools.repository.lacking(manifest):
            tools.session.say(f"already pushed: {manifest.digest}")
            return manifest
    tag = staging_tag(publication.environment)
    staged = str(tools.repository.reference.at(tag))
    tools.session.say(f"pushing {staged}")
    if tools.zstd is not None:
        digest = tools.zstd.push(tools.session.engine, image, tag)
    else:
        tools.session.engine.tag(image.id, staged)
        digest = tools.session.engine.push(staged, partial(tools.session.say, f"pushing {staged}"))
    manifest = tools.repository.manifest(digest)
    if manifest is None:
        raise PublishError(f"{staged} was pushed as {digest}, but the registry does not have it", hint=FORGETS)
    if tools.zstd is None and image.id not in (manifest.digest, config_digest(manifest)):
        hint = "push from one host at a time, to a registry that does not convert images"
        raise PublishError(f"{staged} holds another image than the one that was pushed ({image.id})", hint=hint)
    write_document(path, digest)
    return manifest


def _unfit(verdict: Verdict, publication: Publication) -> str:
    """Return why a verdict forbids publishing; '' if it does not."""
    if verdict.unreal:
        raise PublishError("a simulated verdict is never published", hint="validate on a host with a real driver")
    if verdict.verdict == "PASSED" or (verdict.verdict == "INCONCLUSIVE" and "inconclusive" in publication.allow):
        return ""
    step = "publish on a host with its GPU, or with --allow inconclusive"
    if verdict.verdict == "FAILED":
        step = f"envbuilder validate {publication.environment} shows every check"
    return f"not published: {verdict.verdict}: {'; '.join(verdict.reasons) or 'see its checks'} (next: {step})"


def _promote(publication: Publication, tools: PublishTools, manifest: Manifest) -> None:
    """Give the validated digest its immutable tags, then its moving tags.

    Raises PublishError if the registry has lost a part of the image since the push.
    """
    if lost := tools.repository.lacking(manifest):
        raise PublishError(f"the registry has lost {lost}, a part of {manifest.digest}", hint=FORGETS)
    for tag in publication.tags:
        point(tools.repository, tag, manifest)
        tools.session.say(f"{'moved' if tag.moving else 'tagged'} {tools.repository.reference.at(tag.name)}")
    confirm_tags(tools.repository, publication.tags)


def _tidy(publication: Publication, tools: PublishTools, image: Image) -> None:
    """Remove the names that publishing gave the image in the engine, unless it has no other; a killed run's too."""
    to, tag = tools.repository.reference, staging_tag(publication.environment)
    with suppress(InfrastructureError):
        if after := tools.session.engine.image(image.id):
            names = {*after.tags, *after.digests} - {*image.digests}
            own = {one for one in names if one == str(to.at(tag)) or one.startswith(f"{to.name}@")}
            for name in own if {*after.tags} - own else ():
                tools.session.engine.remove(name)
