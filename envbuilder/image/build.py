"""Build an environment's image from its context, and keep the record of what was built."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TextIO

import msgspec

from envbuilder.engine.port import BuildRequest, Engine, EngineInfo, Image, Step
from envbuilder.environment import Environment
from envbuilder.errors import redacted
from envbuilder.image import lockfile, removed_files, system_lock
from envbuilder.image.bases import Base, ask_for_room
from envbuilder.image.context import build_files
from envbuilder.image.hostfiles import host_files
from envbuilder.image.layers import carried_out
from envbuilder.image.names import BASE_DIGEST_LABEL, BASE_NAME_LABEL, reference
from envbuilder.image.wheel_records import Pin, read_pins
from envbuilder.pypi.package_index import PackageIndex
from envbuilder.support import decoding, subprocesses, terminal_text
from envbuilder.verdict import EngineRef
from envbuilder.workspace import Workspace, read_document, read_users, write_document, writing

_INSTALLER = re.compile(rb"(?m)^FROM \S+ AS tools$")
"""The stage of a template that has the installer."""
_one_installer = threading.Lock()


class LayerSize(msgspec.Struct, frozen=True):
    """One layer: its diff id, its size in bytes, the instruction that made it."""

    diff_id: str
    size: int
    created_by: str


class ImageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a build left in the engine: ``out/<id>/image.json``. ``key`` covers the context and the base.

    ``builder`` is ``engine`` as a phrase; a record of an earlier version holds the phrase alone. ``context`` is path →
    digest of what was built, ``revision`` the commit that it was checked out from ('' where there is none, or where
    the context differs from it), ``started`` and ``finished`` are ISO 8601. ``omitted`` sums what its variant leaves
    out of what its lock pins; the list is in the context.
    """

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
    engine: EngineRef | None = None
    seconds: float
    layers: tuple[LayerSize, ...]
    context: dict[str, str] = {}
    revision: str = ""
    started: str = ""
    finished: str = ""
    omitted: tuple[removed_files.Omitted, ...] = ()
    checksum: str = ""


@dataclass(frozen=True)
class Built:
    """An environment, the record of its image and the text of its lock; ``fresh`` where something was done for it.

    ``removed`` lists the files that its variant removes, '' if none; ``pins`` are what is stored about large wheels, by
    their hash; ``system`` are the locks of the packages of the system, by name.
    """

    environment: Environment
    record: ImageRecord
    lock: str
    fresh: bool = False
    removed: str = ""
    pins: Mapping[str, Pin] = field(default_factory=dict)
    system: Mapping[str, str] = field(default_factory=dict)


def span(began: float) -> tuple[str, str]:
    """Return when what began then by the monotonic clock began and ended just now: UTC to the second, as ISO 8601.

    The clock on the wall is asked once, in the end: it may have been set meanwhile, and nothing ends before it begins.
    """
    ended = datetime.now(UTC)
    begun = ended - timedelta(seconds=time.monotonic() - began)
    return begun.isoformat(timespec="seconds"), ended.isoformat(timespec="seconds")


def of_files(
    environment: Environment, record: ImageRecord, files: Mapping[str, bytes], workspace: Workspace, *, fresh: bool
) -> Built:
    """Return what was built from these files of ``images/``."""
    return Built(
        environment,
        record,
        decoding.lossy(files.get(f"{environment.id}/{lockfile.LOCK}", b"")),
        fresh=fresh,
        removed=carried_out(files, f"{environment.id}/Dockerfile"),
        pins=read_pins(workspace),
        system=system_lock.texts(workspace.context(environment.id), environment),
    )


@dataclass(frozen=True)
class BuildOptions:
    """How to build: ``wheels`` is a folder of wheels that steps may install from, beside the index.

    ``index`` is asked what the locked wheels hold, once they are built with: validation compares with that.
    """

    no_cache: bool = False
    wheels: Path | None = None
    index: PackageIndex | None = None


def standing(environment: Environment, workspace: Workspace) -> Built | None:
    """Return what an earlier build left in a workspace, the engine not asked; None where there is nothing."""
    record = read_document(workspace.image_record(environment.id), ImageRecord)
    if record is None:
        return None
    return of_files(environment, record, build_files(environment.id, workspace), workspace, fresh=False)


def build(
    environment: Environment,
    workspace: Workspace,
    engine: Engine,
    on_step: Callable[[Step], None],
    *,
    files: Mapping[str, bytes],
    base: Base,
    key: str,
    options: BuildOptions,
    tools: Base | None = None,
) -> ImageRecord:
    """Build an environment from ``files`` (by path below ``images/``) on its base.

    ``key`` is the digest of both, ``tools`` the base on which the installer runs.

    Writes ``out/<id>/build.log`` as the build goes and ``out/<id>/image.json`` when it is whole. Raises
    BuildFailedError with the failed step's last lines, InfrastructureError where the engine's disk has no room.
    """
    ask_for_room(environment, engine)
    path = workspace.image_record(environment.id)
    with writing(path):
        path.unlink(missing_ok=True)
    began = time.monotonic()
    dockerfile = f"{environment.id}/Dockerfile"
    request = BuildRequest(
        context=files,
        dockerfile=dockerfile,
        tag=reference(environment.id),
        extra=host_files(
            wheels=options.wheels,
            indexes=environment.added.indexes,
            repository=environment.packaged_cuda.repository if environment.packaged_cuda else "",
            folder="shared/host",
        ),
        build_args={"BASE": base.reference, **({"TOOLS": tools.reference} if tools else {})},
        labels={BASE_NAME_LABEL: base.reference, BASE_DIGEST_LABEL: base.id},
        no_cache=options.no_cache,
    )
    image = build_logged(request, engine, workspace.build_log(environment.id), on_step)
    record = _record(environment, key, image, base, engine.info())
    took, (started, finished) = time.monotonic() - began, span(began)
    record = msgspec.structs.replace(
        record,
        seconds=round(took, 1),
        context=digests_of(files),
        revision=_revision(workspace.images, files),
        started=started,
        finished=finished,
        omitted=removed_files.parse(carried_out(files, dockerfile)).sums(),
    )
    write_document(path, record)
    return record


def digests_of(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: f"sha256:{hashlib.sha256(data).hexdigest()}" for name, data in sorted(files.items())}


def _revision(images: Path, files: Iterable[str]) -> str:
    """Return the commit that files of ``images/`` were checked out from; '' if one differs, or without git."""

    def git(*words: str) -> str | None:
        try:
            done = subprocesses.run(["git", *words], within=20, folder=images, brief=True)
        except subprocesses.ProgramError:
            return None
        return done.text.strip() if done.code == 0 else None

    commit = git("rev-parse", "HEAD")
    return commit if commit and git("status", "--porcelain", "--ignored", "--", *files) == "" else ""


def build_logged(request: BuildRequest, engine: Engine, log: Path, on_step: Callable[[Step], None]) -> Image:
    """Build an image and write each step to a log file as it happens, without credentials in an address.

    The stage of the installer is built first, by one build of this process at a time. Where builds begin side by side
    on a cold builder, BuildKit (20.10) makes what they share once, and another that begins while one of them goes on
    does not know again what follows: it would install a CUDA set that is there. A template of the user's may have no
    such stage.
    """
    with writing(log), log.open("w", encoding="utf-8", errors="replace") as file:

        def both(step: Step) -> None:
            clean = replace(step, name=_clean(step.name), text=_clean(step.text), error=_clean(step.error))
            write_step(file, clean)
            on_step(clean)

        if _begins_with_installer(request):
            first = replace(request, tag=f"{request.tag}-tools", target="tools", labels={})
            with _one_installer:
                try:
                    engine.build(first, both)
                finally:
                    engine.remove(first.tag)
        return engine.build(request, both)


def _begins_with_installer(request: BuildRequest) -> bool:
    if isinstance(request.context, Path):
        path = request.context / request.dockerfile
        text = read_users(path) if path.is_file() else b""
    else:
        text = request.context.get(request.dockerfile, b"")
    return not (request.no_cache or request.target) and _INSTALLER.search(text) is not None


def _clean(text: str) -> str:
    return terminal_text.text(redacted(text))


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


def _record(environment: Environment, key: str, image: Image, base: Base, info: EngineInfo) -> ImageRecord:
    return ImageRecord(
        environment=environment.id,
        key=key,
        image=image.id,
        reference=reference(environment.id),
        size=image.size,
        base=base.reference,
        base_id=base.id,
        base_origin=base.origin,
        builder=f"{info.name} {info.version} {info.builder}",
        engine=EngineRef(name=info.name, version=info.version, builder=info.builder),
        seconds=0.0,
        layers=tuple(LayerSize(layer.diff_id, layer.size, layer.created_by) for layer in image.layers),
    )
