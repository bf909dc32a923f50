"""Publish one image: push it aside, validate that very digest, attach statements, and only then move public tags."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import assert_never

import msgspec

from envbuilder.attest.predicates import Allowance
from envbuilder.engine.port import Image
from envbuilder.errors import EnvbuilderError, ExitCode, InfrastructureError, PublishError, UsageError
from envbuilder.publish.journal import Entry, Journal, exclusively
from envbuilder.publish.layer_manifest import compressed
from envbuilder.publish.promotion import FORGETS, Mover, check_immutable, confirm_tags, pin
from envbuilder.publish.publish_document import PublishRow, Tag, ZstdForm
from envbuilder.publish.stating import Terms, Tools, state, validated
from envbuilder.publish.tag_names import staging_tag
from envbuilder.publish.zstd_form import SUFFIX, Work, check_ours
from envbuilder.registry.client import Manifest
from envbuilder.registry.reference import Reference
from envbuilder.registry.shapes import config_digest
from envbuilder.verdict import Verdict


@dataclass(frozen=True)
class Publication:
    """What to publish where: an image in the engine, immutable ``tags``, and ``moving`` ones that follow them.

    ``folder`` keeps the journal and the verdict that was published, ``terms`` are what one of now is reached under.
    """

    environment: str
    image: str
    to: Reference
    tags: tuple[str, ...]
    moving: tuple[str, ...]
    folder: Path
    terms: Terms
    allow: tuple[Allowance, ...] = ()


def publish(publication: Publication, tools: Tools) -> PublishRow:
    """Publish one image, or say why its verdict forbids it. Safe to kill at any moment, and to run again.

    A public tag is moved only to a digest whose statement is already attached. Raises PublishError and
    InfrastructureError; moving tags are then where they were. What goes wrong with the same image in zstd is in the
    row: the image in gzip is published by then, and stays so.
    """
    second = _named_second(publication)
    _check_tags(publication, second if tools.repacker else None)
    image = tools.engine.image(publication.image)
    if image is None:
        raise PublishError(f"the engine has no image {publication.image}", hint="envbuilder build makes it")
    with exclusively(publication.folder):
        journal = Journal(publication.folder / f"{_key(publication, image)}.jsonl")
        manifest = _stage(publication, tools, image, journal)
        check_immutable(tools.repository, publication.tags, manifest.digest)
        verdict = validated(publication.folder, publication.to, manifest, journal, tools, publication.terms)
        refusal = _unfit(verdict, publication.allow)
        further = tools.describe(publication.to.name, manifest.digest, image)
        statements = state(publication.to.name, manifest, verdict, tools, publication.allow, further)
        row = _row(publication, manifest, verdict, statements)
        if refusal:
            code = ExitCode.FAILED if verdict.verdict == "FAILED" else ExitCode.NO_CLAIM
            return msgspec.structs.replace(row, error=refusal, exit_code=code)
        journal.note(Entry(step="stated", digest=manifest.digest))
        _promote(publication, tools, manifest, journal)
        _tidy(publication, tools, image)
        row = msgspec.structs.replace(row, published=True, tags=_row_tags(publication))
        if tools.repacker is None:
            return row
        try:
            return msgspec.structs.replace(row, zstd=_in_zstd(second, tools, image, manifest, verdict, journal))
        except EnvbuilderError as error:
            text = f"published in gzip; in zstd not: {error.message}" + (f" (next: {error.hint})" if error.hint else "")
            failed = error.exit_code if isinstance(error, InfrastructureError) else ExitCode.PUBLISH_FAILED
            return msgspec.structs.replace(row, error=text, exit_code=failed)


def _check_tags(publication: Publication, second: Publication | None) -> None:
    """Refuse a tag that no registry takes, or that is meant for both forms, before anything is pushed."""
    first = (*publication.tags, *publication.moving)
    others = (*second.tags, *second.moving) if second else ()
    for tag in (*first, *others):
        publication.to.at(tag)
    for tag in sorted({*first} & {*others}):
        raise UsageError(f"{tag} is the name of {tag.removesuffix(SUFFIX)} in zstd", hint="--moving without it")


def _row_tags(publication: Publication) -> tuple[Tag, ...]:
    tags = [Tag(name=name, moving=False) for name in publication.tags]
    return (*tags, *(Tag(name=name, moving=True) for name in publication.moving))


def _named_second(publication: Publication) -> Publication:
    """Name the same image's other form: each tag of the first has one."""
    tags, moving = ((f"{name}{SUFFIX}" for name in names) for names in (publication.tags, publication.moving))
    return replace(publication, tags=tuple(tags), moving=tuple(moving))


def _in_zstd(
    second: Publication, tools: Tools, image: Image, manifest: Manifest, verdict: Verdict, journal: Journal
) -> ZstdForm:
    """Publish the judged image with its layers in zstd: repacked, read back, then stated, and tagged last.

    The verdict is stated about this manifest only because it is of the same configuration, which is the image, and
    every layer was seen to unpack to what that names. Raises PublishError and InfrastructureError.
    """
    assert tools.repacker is not None, "asked for"  # noqa: S101 - for the type checker
    config = config_digest(manifest)
    if not config or verdict.image.id not in (config, manifest.digest):
        raise PublishError(
            f"the verdict is about {verdict.image.id}, and {manifest.digest} is {config or 'no single image'}",
            hint="publish from an engine whose images are named by their configuration or their manifest",
        )
    check_ours(tools.repository, second.moving)
    kept = journal.last("repacked")
    work = Work(
        repository=tools.repository,
        judged=manifest,
        pin=second.tags[0],
        folder=second.folder,
        most=2 * image.size + _BESIDES,
        say=tools.say,
        earlier=(kept.digest,) if kept else (),
    )
    made = tools.repacker.repacked(work)
    if config_digest(made) != config:
        raise PublishError(f"{made.digest} is not the image that was judged ({config})")
    journal.note(Entry(step="repacked", digest=made.digest))
    told = msgspec.structs.replace(
        verdict.image, id=config, digest=made.digest, reference=str(second.to.at(made.digest)), repacked=manifest.digest
    )
    restated = msgspec.structs.replace(verdict, image=told)
    further = tools.describe(second.to.name, made.digest, image)
    statements = state(second.to.name, made, restated, tools, second.allow, further)
    _promote(second, tools, made, journal)
    return ZstdForm(
        digest=made.digest,
        tags=_row_tags(second),
        statements=statements,
        compressed=compressed(made),
        gzip=compressed(manifest),
    )


_BESIDES = 1 << 30
"""What a layer may have beside twice what the engine says of the whole image's files (bytes): headers, padding."""


def _key(publication: Publication, image: Image) -> str:
    """Name the journal: by everything that makes this publication another one."""
    parts = (image.id, str(publication.to), publication.tags, publication.moving, publication.allow)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _stage(publication: Publication, tools: Tools, image: Image, journal: Journal) -> Manifest:
    """Push under the staging tag, unless that was done, and check that the registry holds this very image."""
    kept = journal.last("staged")
    if kept is not None:
        manifest = tools.repository.manifest(kept.digest)
        if manifest is not None and not tools.repository.lacking(manifest):
            tools.say(f"already pushed: {manifest.digest}")
            return manifest
    staged = str(publication.to.at(staging_tag(publication.environment)))
    tools.say(f"pushing {staged}")
    tools.engine.tag(image.id, staged)
    digest = tools.engine.push(staged)
    manifest = tools.repository.manifest(digest)
    if manifest is None:
        raise PublishError(f"{staged} was pushed as {digest}, but the registry does not have that", hint=FORGETS)
    if image.id not in (manifest.digest, config_digest(manifest)):
        raise PublishError(f"{staged} holds another image than the one that was pushed ({image.id})", hint=_ONE)
    journal.note(Entry(step="staged", digest=digest))
    return manifest


_ONE = "push from one host at a time, and let the registry take images as they are"


def _unfit(verdict: Verdict, allow: tuple[Allowance, ...]) -> str:
    """Say why a verdict forbids publishing; '' where it does not."""
    because = "; ".join(verdict.reasons) or "see its checks"
    if verdict.unreal:
        raise PublishError("a simulated verdict is never published", hint="validate on a host with a real driver")
    match verdict.verdict:
        case "PASSED":
            return ""
        case "FAILED":
            return f"not published: FAILED: {because}"
        case "INCONCLUSIVE":
            return "" if "inconclusive" in allow else f"not published: INCONCLUSIVE: {because}"
        case _ as never:
            assert_never(never)


def _promote(publication: Publication, tools: Tools, manifest: Manifest, journal: Journal) -> None:
    """Give the validated digest its public names: the immutable ones first, the moving ones last.

    Raises PublishError where the registry has lost a part of the image since it was pushed: nobody could pull it.
    """
    if lost := tools.repository.lacking(manifest):
        raise PublishError(f"the registry has lost {lost}, a part of {manifest.digest}", hint=FORGETS)
    for tag in publication.tags:
        pin(tools.repository, tag, manifest)
        tools.say(f"tagged {publication.to.at(tag)}")
    journal.note(Entry(step="pinned", digest=manifest.digest))
    mover = Mover(tools.repository, publication.moving)
    journal.note(Entry(step="moving", digest=manifest.digest, tags=mover.before))
    mover.move(manifest)
    for tag in publication.moving:
        tools.say(f"moved {publication.to.at(tag)}")
    confirm_tags(tools.repository, (*publication.tags, *publication.moving))
    journal.note(Entry(step="done", digest=manifest.digest))


def _tidy(publication: Publication, tools: Tools, image: Image) -> None:
    """Take the staging name out of the engine again, where the image keeps another."""
    staged = str(publication.to.at(staging_tag(publication.environment)))
    if any(tag != staged for tag in image.tags):
        tools.engine.remove(staged)


def _row(publication: Publication, manifest: Manifest, verdict: Verdict, statements: tuple[str, ...]) -> PublishRow:
    return PublishRow(
        environment=publication.environment,
        repository=publication.to.name,
        digest=manifest.digest,
        verdict=verdict.verdict,
        level=verdict.level,
        allowed=publication.allow,
        statements=statements,
    )
