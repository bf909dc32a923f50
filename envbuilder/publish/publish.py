"""Publish one image: push it under a staging tag, validate its digest, attach statements, then move public tags."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

import msgspec

from envbuilder.attest.statements import Allowance
from envbuilder.engine.port import Image
from envbuilder.errors import ExitCode, PublishError
from envbuilder.publish.attestation import PublishTools, ValidationTerms, state, validated
from envbuilder.publish.journal import Journal, JournalEntry, exclusively
from envbuilder.publish.results import PublishRow, Tag
from envbuilder.publish.tags import FORGETS, check_immutable, confirm_tags, move, pin, staging_tag
from envbuilder.registry.manifests import Manifest, config_digest
from envbuilder.registry.reference import Reference
from envbuilder.verdict import Verdict


@dataclass(frozen=True)
class Publication:
    """An image in the engine, its repository, and its immutable and moving tags.

    ``folder`` stores the journal and the verdict; ``terms`` are the conditions of a validation.
    """

    environment: str
    image: str
    to: Reference
    tags: tuple[str, ...]
    moving: tuple[str, ...]
    folder: Path
    terms: ValidationTerms
    allow: tuple[Allowance, ...] = ()


def publish(publication: Publication, tools: PublishTools) -> PublishRow:
    """Publish one image unless its verdict forbids it. Safe to kill at any moment and to run again.

    A public tag is moved only to a digest whose statement is attached. After an error each moving tag is where it was,
    or at the validated digest.
    """
    for tag in (*publication.tags, *publication.moving):
        publication.to.at(tag)  # refuses a tag that no registry accepts, before anything is pushed
    image = tools.engine.image(publication.image)
    if image is None:
        raise PublishError(f"the engine has no image {publication.image}", hint="envbuilder build")
    with exclusively(publication.folder):
        journal = Journal(publication.folder / f"{_key(publication, image, tools.compression)}.jsonl")
        manifest = _stage(publication, tools, image, journal)
        check_immutable(tools.repository, publication.tags, manifest.digest)
        verdict = validated(publication.folder, publication.to, manifest, journal, tools, publication.terms)
        refusal = _unfit(verdict, publication.allow)
        further = tools.describe(publication.to.name, manifest.digest, image)
        statements = state(publication.to.name, manifest, verdict, tools, publication.allow, further)
        row = PublishRow(
            environment=publication.environment,
            repository=publication.to.name,
            digest=manifest.digest,
            compression=tools.compression,
            verdict=verdict.verdict,
            level=verdict.level,
            allowed=publication.allow,
            statements=statements,
        )
        if refusal:
            code = ExitCode.FAILED if verdict.verdict == "FAILED" else ExitCode.NO_CLAIM
            return msgspec.structs.replace(row, error=refusal, exit_code=code)
        journal.note(JournalEntry(step="stated", digest=manifest.digest))
        _promote(publication, tools, manifest)
        _tidy(publication, tools, image)
        tags = [Tag(name=name, moving=False) for name in publication.tags]
        tags += [Tag(name=name, moving=True) for name in publication.moving]
        return msgspec.structs.replace(row, published=True, tags=tuple(tags))


def _key(publication: Publication, image: Image, compression: str) -> str:
    """Return the name of the journal, made of everything that distinguishes publications."""
    parts = (image.id, str(publication.to), publication.tags, publication.moving, publication.allow, compression)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _stage(publication: Publication, tools: PublishTools, image: Image, journal: Journal) -> Manifest:
    """Push under the staging tag, unless that is done, and check that the registry has this image."""
    staged_before = journal.last("staged")
    if staged_before is not None:
        manifest = tools.repository.manifest(staged_before.digest)
        if manifest is not None and not tools.repository.lacking(manifest):
            tools.say(f"already pushed: {manifest.digest}")
            return manifest
    tag = staging_tag(publication.environment)
    staged = str(publication.to.at(tag))
    tools.say(f"pushing {staged}")
    if tools.zstd is not None:
        digest = tools.zstd.push(tools.engine, image, tag)
    else:
        tools.engine.tag(image.id, staged)
        digest = tools.engine.push(staged)
    manifest = tools.repository.manifest(digest)
    if manifest is None:
        raise PublishError(f"{staged} was pushed as {digest}, but the registry does not have it", hint=FORGETS)
    if tools.zstd is None and image.id not in (manifest.digest, config_digest(manifest)):
        raise PublishError(f"{staged} holds another image than the one that was pushed ({image.id})", hint=_ONE)
    journal.note(JournalEntry(step="staged", digest=digest))
    return manifest


_ONE = "push from one host at a time, to a registry that does not convert images"


def _unfit(verdict: Verdict, allow: tuple[Allowance, ...]) -> str:
    """Return why a verdict forbids publishing; '' if it does not."""
    because = "; ".join(verdict.reasons) or "see its checks"
    if verdict.unreal:
        raise PublishError("a simulated verdict is never published", hint="validate on a host with a real driver")
    match verdict.verdict:
        case "PASSED":
            return ""
        case "FAILED":
            step = f"envbuilder validate {verdict.image.reference} shows every check"
            return f"not published: FAILED: {because} (next: {step})"
        case "INCONCLUSIVE":
            step = "publish on a host with its GPU, or with --allow inconclusive"
            return "" if "inconclusive" in allow else f"not published: INCONCLUSIVE: {because} (next: {step})"
        case _ as never:
            assert_never(never)


def _promote(publication: Publication, tools: PublishTools, manifest: Manifest) -> None:
    """Give the validated digest its immutable tags, then its moving tags.

    Raises PublishError if the registry has lost a part of the image since the push.
    """
    if lost := tools.repository.lacking(manifest):
        raise PublishError(f"the registry has lost {lost}, a part of {manifest.digest}", hint=FORGETS)
    for tag in publication.tags:
        pin(tools.repository, tag, manifest)
        tools.say(f"tagged {publication.to.at(tag)}")
    for tag in publication.moving:
        move(tools.repository, tag, manifest)
        tools.say(f"moved {publication.to.at(tag)}")
    confirm_tags(tools.repository, (*publication.tags, *publication.moving))


def _tidy(publication: Publication, tools: PublishTools, image: Image) -> None:
    staged = str(publication.to.at(staging_tag(publication.environment)))
    if any(tag != staged for tag in image.tags):
        tools.engine.remove(staged)
