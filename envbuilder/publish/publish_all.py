"""`publish` for every selected environment: its validator, bill of materials and provenance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec

from envbuilder.attest.envelope import KeySealer, Sealer
from envbuilder.attest.keys import is_public, load_private, load_public_keys
from envbuilder.attest.provenance import provenance
from envbuilder.attest.sbom import bom, read
from envbuilder.attest.sigstore import SigstoreSealer
from envbuilder.attest.statements import CYCLONEDX, Allowance, Statement, about
from envbuilder.choice import Choice
from envbuilder.engine.port import Image
from envbuilder.environment import Environment
from envbuilder.errors import EnvbuilderError, ExitCode, InfrastructureError, PublishError, UsageError
from envbuilder.image import lockfile, removed_files
from envbuilder.image.build import Built, digests_of, standing
from envbuilder.image.context import build_files
from envbuilder.publish.attestation import PublishSession, ValidationTerms, tools_for
from envbuilder.publish.publish import Publication, publish
from envbuilder.publish.results import Compression, PublishDocument, PublishRow, Tag
from envbuilder.publish.zstd_push import ZstdPusher
from envbuilder.pypi.client import open_index
from envbuilder.registry.client import Repository
from envbuilder.registry.reference import Reference
from envbuilder.support import decoding
from envbuilder.validation import known_image
from envbuilder.validation.checks import Profile
from envbuilder.validation.image_files import read_image
from envbuilder.validation.validate import ValidationRequest, validate
from envbuilder.verdict import Verdict
from envbuilder.workspace import content_key
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


def publish_all(choice: Choice, options: PublishOptions, sealer: Sealer, session: PublishSession) -> PublishDocument:
    """Publish the image of every selected environment. If one fails, its row says so and the others go on."""
    repository = Repository(options.to, session.environment)
    folder = session.workspace.out
    pusher = ZstdPusher(repository, folder, session.say) if options.compression == "zstd" else None
    session.engine.sweep()  # containers of killed runs

    def publish_one(environment: Environment) -> PublishRow:
        built = _built(environment, session)
        fixed, name = _tags(built)
        publication = Publication(
            environment=environment.id,
            image=built.record.image,
            to=options.to,
            tags=(fixed,),
            moving=(name, *options.moving),
            folder=session.workspace.publication(environment.id),
            terms=ValidationTerms(session.host, options.profile, options.gpus, choice.matrix.budgets),
            allow=options.allow,
        )
        tools = replace(
            tools_for(options.to, session, sealer, partial(_judge, built, choice, options, session)),
            describe=partial(_statements, built, session, sbom=options.sbom),
            say=lambda text: session.say(f"{environment.id}: {text}"),
            zstd=pusher,
        )
        return publish(publication, tools)

    return PublishDocument(rows=_rows(choice, options, publish_one))


def _rows(choice: Choice, options: PublishOptions, work: Callable[[Environment], PublishRow]) -> tuple[PublishRow, ...]:
    rows = []
    for environment in choice.environments:
        try:
            rows.append(work(environment))
        except EnvbuilderError as error:
            text = f"{error.message} (next: {error.hint})" if error.hint else error.message
            code = error.exit_code if isinstance(error, InfrastructureError) else ExitCode.PUBLISH_FAILED
            row = PublishRow(environment=environment.id, repository=options.to.name, error=text, exit_code=code)
            rows.append(row)
    return tuple(rows)


def sealer_of(
    keys: tuple[Path, ...],
    *,
    keyless: bool,
    environment: Mapping[str, str],
    say: Callable[[str], None] = lambda _: None,
) -> Sealer:
    """Return the signer; of ``keys`` the public ones are trusted only. Raises UsageError if there is none."""
    public = tuple(path for path in keys if is_public(path))
    keys = tuple(path for path in keys if path not in public)
    if bool(keys) == keyless:
        raise UsageError("no signer: give --key or --keyless", hint="make a key: envbuilder keys new ~/.envbuilder")
    if keyless:
        return SigstoreSealer()
    password = environment.get("TF_ENVBUILDER_KEY_PASSWORD") or None
    first, *others = (load_private(path, password=password) for path in keys)
    for path, key in zip(keys, (first, *others), strict=True):
        if key.public.expires and key.public.expires < datetime.now(UTC):
            raise UsageError(f"the key {path} expired on {key.public.expires}", hint="envbuilder keys new FOLDER")
        if path.stat().st_mode & 0o077:
            say(f"warning: others can read the private key {path}: chmod 600 {path}")
    return KeySealer(first, others=tuple(others), trusted=load_public_keys(*public))


def plan_all(choice: Choice, options: PublishOptions, session: PublishSession) -> PublishDocument:
    """Return the tags that each image would get, and where they point now."""
    repository = Repository(options.to, session.environment)

    def planned(environment: Environment) -> PublishRow:
        fixed, *moving = (*_tags(_built(environment, session)), *options.moving)
        found = ((name, name in moving, repository.manifest(name)) for name in (fixed, *moving))
        return PublishRow(
            environment=environment.id,
            repository=options.to.name,
            compression=options.compression,
            allowed=options.allow,
            tags=tuple(Tag(name=name, moving=moving, before=at.digest if at else "") for name, moving, at in found),
        )

    return PublishDocument(dry_run=True, rows=_rows(choice, options, planned))


def _tags(built: Built) -> tuple[str, str]:
    """Return an environment's tags: an immutable one for this image, and its own, which moves to the newest image."""
    name = built.environment.image_tag
    return f"{name}-{built.record.image.removeprefix('sha256:')[:12]}", name


def _judge(
    built: Built, choice: Choice, options: PublishOptions, session: PublishSession, reference: Reference
) -> Verdict:
    name, digest = str(reference), reference.digest
    request = ValidationRequest(
        profile=options.profile, budgets=choice.matrix.budgets, gpus=options.gpus, index=open_index()
    ).of(built, image=name)
    image = session.engine.image(name)
    verdict = validate(session.engine, request)
    if image is None or not image.has(digest):
        raise PublishError(f"the engine does not know {name} by its digest")
    return msgspec.structs.replace(verdict, image=msgspec.structs.replace(verdict.image, digest=digest))


def _statements(
    built: Built, session: PublishSession, name: str, digest: str, image: Image, *, sbom: bool
) -> tuple[Statement, ...]:
    record, locked = built.record, lockfile.parse(built.lock)
    files = build_files(record.environment, session.workspace)
    engine = record.engine
    tools = {engine.name: engine.version, "builder": engine.builder} if engine else {"builder": record.builder}
    tools |= {one.name: one.version for one in lockfile.parse(decoding.lossy(files.get("shared/tools.lock", b"")))}
    # A record of an earlier version has no digests; its key proves that the files are those of the build.
    is_known = known_image.parse(built.known, known_image.key_of(record.context)) is not None
    known = sha256_of(built.known) if is_known else ""
    origin = provenance(name, digest, record, record.context or digests_of(files), locked, tools, known)
    if not sbom:
        return (origin,)
    session.say(f"{record.environment}: reading the image for the bill of materials")
    left_out = removed_files.parse(built.removed)
    contents = read(read_image(session.engine, image))
    bill = bom(name, digest, contents, locked, created=record.finished, left_out=left_out)
    return origin, about(name, digest, CYCLONEDX, bill)


def _built(environment: Environment, session: PublishSession) -> Built:
    """Return the build of an environment. Raises PublishError if its context has changed since.

    Statements about an image must describe the files that it was made from.
    """
    hint = session.workspace.command("build", environment.id)
    built = standing(environment, session.workspace)
    if built is None:
        raise PublishError(f"{environment.id} is not built", hint=hint)
    path = session.workspace.context(environment.id)
    files = build_files(environment.id, session.workspace)
    if content_key({**files, "base": built.record.base_id.encode()}) != built.record.key:
        raise PublishError(f"{path} has changed since the image was built", hint=hint)
    return built
