"""The engine's description of an image as `Image`: layers with their sizes, environment, labels, user."""

from __future__ import annotations

import re

import msgspec

from envbuilder.engine.port import Image, Layer

# Instructions without a layer, of BuildKit ("ENV A=b") and of the classic builder ("/bin/sh -c #(nop)  ENV A=b").
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
    exposed_ports: dict[str, object] | None = None
    volumes: dict[str, object] | None = None
    healthcheck: dict[str, object] | None = None
    on_build: tuple[str, ...] | None = None
    stop_signal: str | None = None
    shell: tuple[str, ...] | None = None


class _RootFs(msgspec.Struct, rename="pascal"):
    layers: tuple[str, ...] | None = None


class _Metadata(msgspec.Struct, rename="pascal"):
    last_tag_time: str | None = None


class Inspected(msgspec.Struct, rename="pascal"):
    id: str
    repo_tags: tuple[str, ...] | None = None
    repo_digests: tuple[str, ...] | None = None
    size: int | None = None
    config: _Config | None = None
    root_fs: _RootFs | None = msgspec.field(default=None, name="RootFS")
    architecture: str | None = None
    metadata: _Metadata | None = None


class HistoryEntry(msgspec.Struct, rename="pascal"):
    size: int | None = None
    created_by: str | None = None


def to_image(inspected: Inspected, history: list[HistoryEntry]) -> Image:
    config = inspected.config or _Config()
    diff_ids = (inspected.root_fs.layers if inspected.root_fs else None) or ()
    return Image(
        id=inspected.id,
        tags=inspected.repo_tags or (),
        digests=inspected.repo_digests or (),
        size=inspected.size or 0,
        labels=config.labels or {},
        env=dict(pair.partition("=")[::2] for pair in config.env or ()),
        user=config.user or "",
        architecture=inspected.architecture or "",
        layers=to_layers(diff_ids, history),
        entrypoint=_words(config.entrypoint),
        command=_words(config.cmd),
        workdir=config.working_dir or "",
        history=tuple(entry.created_by or "" for entry in history),
        tagged=(inspected.metadata.last_tag_time if inspected.metadata else None) or "",
        settings={name: value for name, value in msgspec.structs.asdict(config).items() if value},
    )


def to_layers(diff_ids: tuple[str, ...], history: list[HistoryEntry]) -> tuple[Layer, ...]:
    """Pair diff ids (oldest first) with their instructions in the history (newest first).

    The engine does not give the pairs. An instruction has a layer if it has a size and is not metadata. If these are
    not as many as the layers, the sizes are paired from the newest layer backwards.
    """
    entries = [entry for entry in history if entry.size or not _METADATA.match(entry.created_by or "")]
    for entry in [entry for entry in entries if not entry.size][: max(0, len(entries) - len(diff_ids))]:
        entries = [other for other in entries if other is not entry]
    entries += [HistoryEntry()] * (len(diff_ids) - len(entries))
    pairs = zip(reversed(diff_ids), entries, strict=False)
    return tuple(reversed([Layer(diff_id, entry.size or 0, entry.created_by or "") for diff_id, entry in pairs]))


def _words(value: tuple[str, ...] | str | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())
