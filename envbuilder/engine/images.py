"""Read the engine's descriptions of images into `Image`: layers with their sizes, environment, labels, user."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from envbuilder.engine.port import Image, Layer
from envbuilder.support import decoding

# Instructions that leave no layer, as BuildKit ("ENV A=b") and the classic builder ("/bin/sh -c #(nop)  ENV A=b")
# note them.
_METADATA = re.compile(
    r"^(?:/bin/sh -c #\(nop\)\s+)?"
    r"(?:ARG|CMD|ENTRYPOINT|ENV|EXPOSE|HEALTHCHECK|LABEL|MAINTAINER|ONBUILD|SHELL|STOPSIGNAL|USER|VOLUME)\b"
)


class _Config(msgspec.Struct, rename="pascal"):
    labels: dict[str, str] | None = None
    env: tuple[str, ...] | None = None
    user: str | None = None
    entrypoint: tuple[str, ...] | str | None = None
    cmd: tuple[str, ...] | str | None = None
    working_dir: str | None = None


class _Files(msgspec.Struct, rename="pascal"):
    layers: tuple[str, ...] | None = None


class _Inspected(msgspec.Struct, rename="pascal"):
    id: str
    repo_tags: tuple[str, ...] | None = None
    repo_digests: tuple[str, ...] | None = None
    size: int | None = None
    config: _Config | None = None
    files: _Files | None = msgspec.field(default=None, name="RootFS")
    architecture: str | None = None
    created: str | None = None


class _Entry(msgspec.Struct, rename="pascal"):
    size: int | None = None
    created_by: str | None = None


def to_image(inspected: object, history: object) -> Image:
    """Join what ``inspect`` and ``history`` say of one image. Raises DamagedError where that is of another shape."""
    told = decoding.converted(inspected, _Inspected)
    entries = decoding.converted(history, list[_Entry])
    config = told.config or _Config()
    diff_ids = (told.files.layers if told.files else None) or ()
    made = [{"Size": entry.size, "CreatedBy": entry.created_by} for entry in entries]
    return Image(
        id=told.id,
        tags=told.repo_tags or (),
        digests=told.repo_digests or (),
        size=told.size or 0,
        labels=config.labels or {},
        env=dict(pair.partition("=")[::2] for pair in config.env or ()),
        user=config.user or "",
        architecture=told.architecture or "",
        layers=to_layers(diff_ids, made),
        entrypoint=_words(config.entrypoint),
        command=_words(config.cmd),
        created=told.created or "",
        workdir=config.working_dir or "",
        history=tuple(entry.created_by or "" for entry in entries),
    )


def to_layers(diff_ids: tuple[str, ...], history: list[dict[str, Any]]) -> tuple[Layer, ...]:
    """Pair diff ids (oldest first) with the history entries (newest first) that made them.

    The engine does not say which entries made a layer: one with a size did, one of a metadata instruction did not.
    Where that does not add up to the number of layers, sizes are paired from the newest layer backwards.
    """
    made = [entry for entry in history if entry.get("Size") or not _METADATA.match(entry.get("CreatedBy") or "")]
    if len(made) > len(diff_ids):
        surplus = len(made) - len(diff_ids)
        empty = [entry for entry in made if not entry.get("Size")][:surplus]
        made = [entry for entry in made if not any(entry is other for other in empty)]
    made += [{}] * (len(diff_ids) - len(made))
    pairs = zip(reversed(diff_ids), made, strict=False)
    layers = [Layer(diff, entry.get("Size") or 0, entry.get("CreatedBy") or "") for diff, entry in pairs]
    return tuple(reversed(layers))


def _words(value: tuple[str, ...] | str | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())
