"""Free the engine's disk: what was made on the way, and on request everything of ours."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from envbuilder.engine.port import Engine
from envbuilder.errors import InfrastructureError
from envbuilder.image import names


class ImageGone(msgspec.Struct, frozen=True, kw_only=True):
    """One tag that was taken out of the store; ``size`` in bytes, layers that others share included.

    ``kept`` says why it is still there, where the engine would not let it go.
    """

    reference: str
    size: int
    kept: str = ""


class CleanDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed, or with ``dry_run`` would be; sizes in bytes.

    ``freed`` counts what the engine says of images without tags and of the builder's cache, 0 in a dry run.
    """

    schema: str = "envbuilder/clean/v1"
    dry_run: bool
    images: tuple[ImageGone, ...] = ()
    containers: int = 0
    freed: int = 0


@dataclass(frozen=True)
class CleanOptions:
    """What to remove: ``everything`` of ours, the builder's cache down to ``cache_keep`` bytes (None: not at all)."""

    everything: bool = False
    cache_keep: int | None = None
    dry_run: bool = False


def clean(engine: Engine, options: CleanOptions) -> CleanDocument:
    """Remove images of ours from the engine's store; their contexts, locks and verdicts stay where they are.

    Without ``everything`` these are what stays of reports that were reproduced, of upgrades and of controls, and builds
    that newer ones replaced.
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
    """List the tags to remove, those built on others first."""
    made = (*engine.names(names.REPRODUCED), *engine.names(names.CONTROLS))
    environments = engine.names(names.ENVIRONMENTS)
    if options.everything:
        return (*made, *environments, *engine.names(names.BASES))
    return (*made, *(name for name in environments if names.is_after(name)))


def _gone(engine: Engine, name: str, *, dry_run: bool) -> ImageGone:
    image = engine.image(name)
    kept = ""
    if not dry_run:
        try:
            engine.remove(name)
        except InfrastructureError as error:
            kept = error.message
    return ImageGone(reference=name, size=image.size if image else 0, kept=kept)
