"""Build an environment's image from its context, or find that it is built already."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import msgspec

from envbuilder.catalog.rows import OperatingSystem
from envbuilder.engine.port import BuildRequest, Engine, EngineInfo, Image, Step
from envbuilder.environment import Environment
from envbuilder.errors import UsageError
from envbuilder.image.bases import Base, ensure_base
from envbuilder.image.hostfiles import host_files
from envbuilder.workspace import Workspace, cache_dir, content_key, folder_contents, read_document, write_document

REPOSITORY = "envbuilder/tensorflow"
"""Built images are tagged ``envbuilder/tensorflow:<environment id>``."""


class LayerSize(msgspec.Struct, frozen=True):
    """One layer: its diff id, its size in bytes, the instruction that made it."""

    diff_id: str
    size: int
    created_by: str


class ImageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a build left in the engine: ``out/<id>/image.json``. ``key`` covers the context and the base."""

    schema: str = "envbuilder/image/v1"
    environment: str
    key: str
    image: str
    reference: str
    size: int
    base: str
    base_id: str
    base_origin: str
    builder: str
    seconds: float
    layers: tuple[LayerSize, ...]


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """A build's record, and whether anything had to be done for it."""

    record: ImageRecord
    fresh: bool


def reference(environment_id: str) -> str:
    """Name the image of an environment in the engine's store."""
    return f"{REPOSITORY}:{environment_id}"


def build(  # noqa: PLR0913 - the stage's inputs, each from another place
    environment: Environment,
    system: OperatingSystem,
    workspace: Workspace,
    engine: Engine,
    *,
    on_step: Callable[[Step], None],
    no_cache: bool = False,
    wheels: Path | None = None,
) -> Built:
    """Build an environment's rendered context, unless the engine holds the image of exactly this content.

    ``wheels`` is a folder of wheels that the steps may install from, beside the index.
    Writes ``out/<id>/build.log`` as the build goes and ``out/<id>/image.json`` when it is whole. Raises
    BuildFailedError with the failed step's last lines.
    """
    context = workspace.context(environment.id)
    files = folder_contents(context)
    if "Dockerfile" not in files:
        raise UsageError(f"{context} has no Dockerfile", hint=f"envbuilder render -s {environment.id}")
    base = ensure_base(engine, system, cache_dir() / "bases", lambda line: on_step(Step("log", "base", line)))
    key = content_key({**files, "base": base.id.encode()})
    path = workspace.results(environment.id) / "image.json"
    kept = read_document(path, ImageRecord)
    if kept and kept.key == key and not no_cache and engine.image(kept.image) is not None:
        return Built(record=kept, fresh=False)
    path.unlink(missing_ok=True)
    started = time.monotonic()
    request = BuildRequest(
        context=context,
        tag=reference(environment.id),
        extra=host_files(wheels=wheels),
        build_args={"BASE": base.reference},
        labels={"org.opencontainers.image.base.name": base.reference, "org.opencontainers.image.base.digest": base.id},
        no_cache=no_cache,
    )
    image = build_logged(request, engine, path.with_name("build.log"), on_step)
    record = _record(request.tag, key, image, base, engine.info())
    record = msgspec.structs.replace(record, seconds=round(time.monotonic() - started, 1))
    write_document(path, record)
    return Built(record=record, fresh=True)


def build_logged(request: BuildRequest, engine: Engine, log: Path, on_step: Callable[[Step], None]) -> Image:
    """Build an image and write each step to a log file as it happens."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:

        def both(step: Step) -> None:
            write_step(file, step)
            on_step(step)

        return engine.build(request, both)


def write_step(file: TextIO, step: Step) -> None:
    """Write one event of a build as a line of a log, and flush it: the log is for following, too."""
    match step.kind:
        case "started":
            line = f"→ {step.name}"
        case "log":
            line = f"  {step.text.rstrip()}"
        case "done":
            line = f"✓ {step.name} ({step.seconds:.1f} s)"
        case "cached":
            line = f"= {step.name} (cached)"
        case "failed":
            line = f"✗ {step.name}: {step.error}"
    file.write(line + "\n")
    file.flush()


def _record(tag: str, key: str, image: Image, base: Base, info: EngineInfo) -> ImageRecord:
    return ImageRecord(
        environment=tag.rpartition(":")[2],
        key=key,
        image=image.id,
        reference=tag,
        size=image.size,
        base=base.reference,
        base_id=base.id,
        base_origin=base.origin,
        builder=f"{info.name} {info.version} {info.builder}",
        seconds=0.0,
        layers=tuple(LayerSize(layer.diff_id, layer.size, layer.created_by) for layer in image.layers),
    )
