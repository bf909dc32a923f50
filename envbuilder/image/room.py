"""Is there room for a build? Asked before, because a disk that fills up says so after twenty minutes."""

from __future__ import annotations

import shutil
from pathlib import Path

from envbuilder.engine.port import Engine
from envbuilder.environment import Environment
from envbuilder.errors import InfrastructureError
from envbuilder.support import console

NEEDED = {"gpu": 12_000_000_000, "cpu": 4_000_000_000}
"""Bytes that a build leaves with the engine at first: the image, and the builder's cache of what it was made from.

Measured on what ships: 6 GB and 1.8 GB for the images, as much again for the cache.
"""

_BASE = 1_600_000_000
"""Bytes for a base: 125 MB of its own, and what is made of it. With less than an eighth not even itself fits."""

_HOPELESS = 8
"""With less than this part of it, no build ends, however much of it is cached."""

_NEXT = "envbuilder clean --cache 5 frees what builds left, docker system df says what holds the rest"


def ask_for_room(environment: Environment, engine: Engine) -> None:
    """Warn where the engine's disk has less than a build needs; nothing is said of an engine elsewhere.

    Raises InfrastructureError where it has next to none.
    """
    _ask(environment.id, NEEDED[environment.flavor], engine)


def ask_for_base(name: str, engine: Engine) -> None:
    """Ask the same for a base that is about to be fetched or bootstrapped."""
    _ask(f"the base {name}", _BASE, engine)


def _ask(what: str, needed: int, engine: Engine) -> None:
    root = engine.info().root
    free = _free(Path(root)) if root else None
    if free is None or free >= needed:
        return
    text = f"{what} needs about {needed / 1e9:g} GB, and {root} has {free / 1e9:.1f} GB free"
    if free < needed // _HOPELESS:
        raise InfrastructureError(f"the engine's disk is full: {text}", hint=_NEXT)
    console.warn(f"{text}; {_NEXT}")


def _free(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None  # the engine's host is another one, or keeps its folders to itself
