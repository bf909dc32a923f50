"""Free the engine's disk: intermediate images, and on request all of envbuilder's images."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from envbuilder.engine.port import Engine
from envbuilder.errors import InfrastructureError
from envbuilder.image import names
from envbuilder.image.host_settings import repository
from envbuilder.support.templates import rendered


class ImageGone(msgspec.Struct, frozen=True, kw_only=True):
    """A removed tag; ``size`` in bytes, including shared layers. ``kept``: why the engine refused to remove it."""

    reference: str
    size: int
    kept: str = ""


class CleanDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Removed images, or with ``dry_run`` the images to remove; sizes in bytes.

    ``freed`` is the engine's figure for images without tags and the builder's cache, 0 in a dry run. ``staying`` counts
    the images that stay, with ``staying_size`` bytes; layers that several share count in each.
    """

    schema: str = "envbuilder/clean/v1"
    dry_run: bool
    images: tuple[ImageGone, ...] = ()
    containers: int = 0
    freed: int = 0
    staying: int = 0
    staying_size: int = 0


@dataclass(frozen=True)
class CleanOptions:
    """``everything``: all of envbuilder's images. ``cache_keep``: new size of the builder's cache (None: unchanged).

    ``before`` and ``keep_last`` also remove environments' images that were tagged before a time, and all but so many.
    """

    everything: bool = False
    before: datetime | None = None
    keep_last: int | None = None
    cache_keep: int | None = None
    dry_run: bool = False


def clean(engine: Engine, options: CleanOptions) -> CleanDocument:
    """Remove envbuilder's images from the engine's store, but not their contexts, locks and verdicts.

    Without ``everything`` these are images of reports, upgrades and controls, and replaced builds.
    """
    wanted = _names(engine, options)
    every = (*engine.names(repository()), *engine.names(names.BASES))
    staying = [image for name in every if name not in wanted and (image := engine.image(name)) is not None]
    document = CleanDocument(
        dry_run=options.dry_run,
        images=tuple(_gone(engine, name, dry_run=options.dry_run) for name in wanted),
        staying=len(staying),
        staying_size=sum(image.size for image in staying),
    )
    if options.dry_run:
        return document
    containers = engine.sweep()
    freed = sum(engine.prune(label) for label in names.OURS)
    if options.cache_keep is not None:
        freed += engine.trim_cache(options.cache_keep)
    return msgspec.structs.replace(document, containers=containers, freed=freed)


def _names(engine: Engine, options: CleanOptions) -> tuple[str, ...]:
    """Return the tags to remove; an image comes before its base."""
    intermediate = (*engine.names(names.REPRODUCED), *engine.names(names.CONTROLS))
    environments = engine.names(repository())
    if options.everything:
        return (*intermediate, *environments, *engine.names(names.BASES))
    current = [name for name in environments if names.AFTER not in name]
    return (*intermediate, *(name for name in environments if name not in current), *_old(engine, current, options))


def _old(engine: Engine, current: Sequence[str], options: CleanOptions) -> Iterator[str]:
    if options.before is None and options.keep_last is None:
        return
    tagged = {name: _tagged(engine, name) for name in current}
    for name in sorted(current, key=tagged.__getitem__, reverse=True)[options.keep_last or 0 :]:
        if options.before is None or tagged[name] < options.before:
            yield name


def _tagged(engine: Engine, name: str) -> datetime:
    """Return when an image got its tag; without a record, now, so that it stays."""
    image = engine.image(name)
    return datetime.fromisoformat(image.tagged) if image is not None and image.tagged else datetime.now(UTC)


def _gone(engine: Engine, name: str, *, dry_run: bool) -> ImageGone:
    image = engine.image(name)
    kept = ""
    if not dry_run:
        try:
            engine.remove(name)
        except InfrastructureError as error:
            kept = error.message
    return ImageGone(reference=name, size=image.size if image else 0, kept=kept)


def as_text(document: CleanDocument) -> str:
    return rendered("jobs/clean", document=document)
