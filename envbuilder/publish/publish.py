"""Publish one image: push it aside, validate that very digest, attach statements, and only then move public tags."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol, assert_never

import msgspec

from envbuilder.attest import statement
from envbuilder.attest.demand import moment
from envbuilder.attest.envelope import Sealer
from envbuilder.attest.predicates import Allowance, result_statement, verdict_statement
from envbuilder.engine.port import Engine, Image
from envbuilder.errors import PublishError, decode
from envbuilder.exits import ExitCode
from envbuilder.publish.journal import Entry, Journal, exclusively
from envbuilder.publish.promotion import Mover, check_immutable, pin
from envbuilder.publish.publish_document import PublishRow, Tag
from envbuilder.publish.tag_names import staging_tag
from envbuilder.registry.client import Manifest, Repository
from envbuilder.registry.reference import Reference
from envbuilder.registry.referrers import attach, confirm
from envbuilder.verdict import Verdict
from envbuilder.workspace import read_document, write_document

REUSE_WITHIN = timedelta(hours=24)
"""How old a verdict that an interrupted run left may be; an older one is made anew."""

PREDICATE_TYPE = "in-toto.io/predicate-type"
"""The annotation by which tools find a statement of one type without opening it."""


@dataclass(frozen=True)
class Publication:
    """What to publish where: an image in the engine, immutable ``tags``, and ``moving`` ones that follow them.

    ``folder`` keeps the journal and the verdict that was published.
    """

    environment: str
    image: str
    to: Reference
    tags: tuple[str, ...]
    moving: tuple[str, ...]
    folder: Path
    allow: tuple[Allowance, ...] = ()


class Describe(Protocol):
    """What makes the further statements about an image: what is in it, and where it came from."""

    def __call__(self, name: str, digest: str, image: Image) -> tuple[statement.Statement, ...]:
        """State what is known about a manifest digest."""


@dataclass(frozen=True)
class Tools:
    """The outside world: the engine, the repository, who signs, what validates a reference by digest, and the time."""

    engine: Engine
    repository: Repository
    sealer: Sealer
    validate: Callable[[Reference], Verdict]
    now: Callable[[], datetime]
    describe: Describe = field(default=lambda name, digest, image: ())  # noqa: ARG005 - the port's names
    say: Callable[[str], None] = field(default=lambda text: None)  # noqa: ARG005 - likewise


def publish(publication: Publication, tools: Tools) -> PublishRow:
    """Publish one image, or say why its verdict forbids it. Safe to kill at any moment, and to run again.

    A public tag is moved only to a digest whose statement is already attached. Raises PublishError and
    InfrastructureError; moving tags are then where they were.
    """
    for tag in (*publication.tags, *publication.moving):
        publication.to.at(tag)  # a tag that no registry takes is refused before anything is pushed
    image = tools.engine.image(publication.image)
    if image is None:
        raise PublishError(f"the engine has no image {publication.image}", hint="envbuilder build makes it")
    with exclusively(publication.folder):
        journal = Journal(publication.folder / f"{_key(publication, image)}.jsonl")
        manifest = _stage(publication, tools, image, journal)
        check_immutable(tools.repository, publication.tags, manifest.digest)
        verdict = _validated(publication, tools, manifest, journal)
        refusal = _unfit(verdict, publication.allow)
        statements = _state(publication, tools, image, manifest, verdict)
        row = _row(publication, manifest, verdict, statements)
        if refusal:
            code = ExitCode.FAILED if verdict.verdict == "FAILED" else ExitCode.NO_CLAIM
            return msgspec.structs.replace(row, error=refusal, exit_code=code)
        journal.note(Entry(step="stated", digest=manifest.digest))
        _promote(publication, tools, manifest, journal)
        _tidy(publication, tools, image)
        tags = [Tag(name=name, moving=False) for name in publication.tags]
        tags += [Tag(name=name, moving=True) for name in publication.moving]
        return msgspec.structs.replace(row, published=True, tags=tuple(tags))


def _key(publication: Publication, image: Image) -> str:
    """Name the journal: by everything that makes this publication another one."""
    parts = (image.id, str(publication.to), publication.tags, publication.moving, publication.allow)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _stage(publication: Publication, tools: Tools, image: Image, journal: Journal) -> Manifest:
    """Push under the staging tag, unless that was done, and check that the registry holds this very image."""
    kept = journal.last("staged")
    if kept is not None:
        manifest = tools.repository.manifest(kept.digest)
        if manifest is not None:
            tools.say(f"already pushed: {manifest.digest}")
            return manifest
    staged = str(publication.to.at(staging_tag(publication.environment)))
    tools.say(f"pushing {staged}")
    tools.engine.tag(image.id, staged)
    digest = tools.engine.push(staged)
    manifest = tools.repository.manifest(digest)
    if manifest is None:
        raise PublishError(f"{staged} was pushed as {digest}, but the registry does not have that")
    if image.id not in (manifest.digest, config_digest(manifest)):
        raise PublishError(f"{staged} holds another image than the one that was pushed ({image.id})")
    journal.note(Entry(step="staged", digest=digest))
    return manifest


def config_digest(manifest: Manifest) -> str:
    """Return the digest of an image's configuration, which an engine takes for the image's id; '' for an index."""
    try:
        return decode.from_json(manifest.content, _ImageManifest).config.digest
    except decode.DamagedError:
        return ""


class _Config(msgspec.Struct, frozen=True):
    digest: str


class _ImageManifest(msgspec.Struct, frozen=True):
    config: _Config


def _is_fresh(verdict: Verdict, now: datetime) -> bool:
    """Tell whether a kept verdict may stand for the run that was interrupted; one whose time is none may not."""
    with suppress(decode.DamagedError):
        return now - moment(verdict.finished) < REUSE_WITHIN
    return False


def _validated(publication: Publication, tools: Tools, manifest: Manifest, journal: Journal) -> Verdict:
    """Validate the digest that the registry holds, unless an interrupted run did so a short while ago."""
    path = publication.folder / f"{manifest.digest.removeprefix('sha256:')[:16]}.verdict.json"
    kept = journal.last("validated")
    verdict = read_document(path, Verdict) if kept is not None and kept.digest == manifest.digest else None
    if verdict is not None and _is_fresh(verdict, tools.now()):
        tools.say(f"already validated: {verdict.verdict}")
    else:
        reference = publication.to.at(manifest.digest)
        tools.say(f"validating {reference}")
        if tools.engine.image(str(reference)) is None:
            tools.engine.pull(str(reference))
        verdict = tools.validate(reference)
        write_document(path, verdict)
        journal.note(Entry(step="validated", digest=manifest.digest, verdict=path.name))
    if verdict.image.digest != manifest.digest:
        raise PublishError(f"the verdict is about {verdict.image.digest}, not about {manifest.digest}")
    return verdict


def _unfit(verdict: Verdict, allow: tuple[Allowance, ...]) -> str:
    """Say why a verdict forbids publishing; '' where it does not."""
    because = "; ".join(verdict.reasons) or "see its checks"
    if verdict.simulated:
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


def _state(
    publication: Publication, tools: Tools, image: Image, manifest: Manifest, verdict: Verdict
) -> tuple[str, ...]:
    """Sign and attach every statement, and read back that all are listed; what is attached already stays."""
    name = publication.to.name
    result = result_statement(name, verdict, allowed=publication.allow)
    statements = (
        verdict_statement(name, verdict, allowed=publication.allow),
        *((result,) if result else ()),
        *tools.describe(name, manifest.digest, image),
    )
    made = []
    for each in statements:
        tools.say(f"attaching {each.predicate_type}")
        sealed = tools.sealer.seal(statement.encode(each))
        annotations = {PREDICATE_TYPE: each.predicate_type}
        made.append(attach(tools.repository, manifest, sealed, tools.sealer.media_type, annotations))
    confirm(tools.repository, manifest.digest, tuple(made))
    return tuple(one.digest for one in made)


def _promote(publication: Publication, tools: Tools, manifest: Manifest, journal: Journal) -> None:
    """Give the validated digest its public names: the immutable ones first, the moving ones last."""
    for tag in publication.tags:
        pin(tools.repository, tag, manifest)
        tools.say(f"tagged {publication.to.at(tag)}")
    journal.note(Entry(step="pinned", digest=manifest.digest))
    mover = Mover(tools.repository, publication.moving)
    journal.note(Entry(step="moving", digest=manifest.digest, tags=mover.before))
    mover.move(manifest)
    for tag in publication.moving:
        tools.say(f"moved {publication.to.at(tag)}")
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
