"""Free the engine's disk: intermediate images, and on request all of envbuilder's images."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from envbuilder.engine.port import Engine
from envbuilder.errors import InfrastructureError
from envbuilder.image import names
from envbuilder.image.host_settings import repository
from envbuilder.support.console import table


class ImageGone(msgspec.Struct, frozen=True, kw_only=True):
    """A removed tag; ``size`` in bytes, including shared layers. ``kept``: why the engine refused to remove it."""

    reference: str
    size: int
    kept: str = ""


class CleanDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Removed images, or with ``dry_run`` the images to remove; sizes in bytes.

    ``freed`` is the engine's figure for images without tags and the builder's cache, 0 in a dry run.
    """

    schema: str = "envbuilder/clean/v1"
    dry_run: bool
    images: tuple[ImageGone, ...] = ()
    containers: int = 0
    freed: int = 0


@dataclass(frozen=True)
class CleanOptions:
    """``everything``: all of envbuilder's images. ``cache_keep``: new size of the builder's cache (None: unchanged)."""

    everything: bool = False
    cache_keep: int | None = None
    dry_run: bool = False


def clean(engine: Engine, options: CleanOptions) -> CleanDocument:
    """Remove envbuilder's images from the engine's store, but not their contexts, locks and verdicts.

    Without ``everything`` these are images of reports, upgrades and controls, and replaced builds.
    """
    images = tuple(_gone(engine, name, dry_run=options.dry_run) for name in _names(engine, options))
    if options.dry_run:
        return CleanDocument(dry_run=True, images=images)
    containers = engine.sweep()
    freed = sum(engine.prune(label) for label in names.OURS)
    if options.cache_keep is not None:
        freed += engine.trim_cache(options.cache_keep)
    return CleanDocument(dry_run=False, images=images, containers=containers, freed=freed)


def _names(engine: Engine, options: CleanOptions) -> tuple[str, ...]:
    """Return the tags to remove; an image comes before its base."""
    intermediate = (*engine.names(names.REPRODUCED), *engine.names(names.CONTROLS))
    environments = engine.names(repository())
    if options.everything:
        return (*intermediate, *environments, *engine.names(names.BASES))
    return (*intermediate, *(name for name in environments if names.is_after(name)))


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
    verb = "would be removed" if document.dry_run else "removed"
    rows = [(row.reference, f"{row.size / 1e9:.2f} GB", row.kept or verb) for row in document.images]
    lines = [table(("image", "size", ""), rows)] if rows else ["no image to remove"]
    if document.containers:
        lines.append(f"{document.containers} containers of interrupted runs removed")
    if document.freed:
        lines.append(f"{document.freed / 1e9:.2f} GB freed in replaced builds and the builder's cache")
    return "\n".join(lines)
