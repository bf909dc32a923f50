"""Read the engine's descriptions of images into `Image`: layers with their sizes, environment, labels, user."""

from __future__ import annotations

import re
from typing import Any

from envbuilder.engine.port import Image, Layer

# Instructions that leave no layer, as BuildKit ("ENV A=b") and the classic builder ("/bin/sh -c #(nop)  ENV A=b")
# note them.
_METADATA = re.compile(
    r"^(?:/bin/sh -c #\(nop\)\s+)?"
    r"(?:ARG|CMD|ENTRYPOINT|ENV|EXPOSE|HEALTHCHECK|LABEL|MAINTAINER|ONBUILD|SHELL|STOPSIGNAL|USER|VOLUME)\b"
)


def to_image(inspected: dict[str, Any], history: list[dict[str, Any]]) -> Image:
    """Join what ``inspect`` and ``history`` say of one image."""
    config = inspected.get("Config") or {}
    diff_ids = tuple((inspected.get("RootFS") or {}).get("Layers") or ())
    return Image(
        id=inspected["Id"],
        tags=tuple(inspected.get("RepoTags") or ()),
        digests=tuple(inspected.get("RepoDigests") or ()),
        size=inspected.get("Size") or 0,
        labels=dict(config.get("Labels") or {}),
        env=dict(pair.partition("=")[::2] for pair in config.get("Env") or ()),
        user=config.get("User") or "",
        architecture=inspected.get("Architecture") or "",
        layers=to_layers(diff_ids, history),
        entrypoint=_words(config.get("Entrypoint")),
        command=_words(config.get("Cmd")),
        created=inspected.get("Created") or "",
        workdir=config.get("WorkingDir") or "",
        history=tuple(entry.get("CreatedBy") or "" for entry in history),
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


def _words(value: list[str] | str | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())
