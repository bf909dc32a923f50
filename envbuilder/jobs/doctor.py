"""Diagnose this host: what is there, what is in the way and how to mend it, and which environments it can run."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import OperatingSystem
from envbuilder.compat.check import findings_of
from envbuilder.compat.fleet import Cell, findings_on
from envbuilder.compat.question import Question
from envbuilder.engine.port import Engine
from envbuilder.environment import Environment
from envbuilder.errors import InfrastructureError
from envbuilder.finding import Finding, Severity, compatible
from envbuilder.image.lock import uv_binary
from envbuilder.verdict import HostRef

ROOM = 20 << 30
"""Free bytes that building a GPU image asks for: the image (5 to 7 GB), its layers' cache, and the downloads."""


class EngineSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The engine that answers."""

    name: str
    version: str
    builder: str
    gpu_runtime: bool
    storage: str


class ToolSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A program that a step needs; ``path`` is None where it is not installed."""

    name: str
    path: str | None
    purpose: str


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """Free bytes where something large is kept."""

    path: str
    free: int
    purpose: str


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Something in the way, and what mends it."""

    what: str
    fix: str


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``envbuilder doctor``.

    ``engine`` is null where none answers, ``registry`` says whether the registry of the usual base answers (null:
    there was no engine to ask it). ``environments`` are judged for this host's driver, GPUs and processor.
    """

    schema: str = "envbuilder/doctor/v1"
    host: HostRef
    avx: bool | None
    engine: EngineSeen | None
    registry: bool | None
    tools: tuple[ToolSeen, ...]
    disk: tuple[Disk, ...]
    troubles: tuple[Trouble, ...]
    environments: tuple[Cell, ...]


def diagnose(
    host: HostRef,
    connect: Callable[[], Engine],
    *,
    avx: bool | None,
    arch: str,
    base: OperatingSystem,
    tools: tuple[ToolSeen, ...],
    places: tuple[tuple[str, Path], ...],
    environments: tuple[Environment, ...],
    catalog: Catalog,
) -> Diagnosis:
    """Put together what the ports say; an engine that does not answer is an answer, too.

    ``places`` are purposes and folders whose disks matter, besides the engine's own.
    """
    engine, registry, root, troubles = _engine(connect, base)
    disk = tuple(_disks((*places, ("images", Path(root))) if root else places))
    troubles += tuple(_troubles(host, engine, registry, tools, disk, avx=avx))
    return Diagnosis(
        host=host,
        avx=avx,
        engine=engine,
        registry=registry,
        tools=tools,
        disk=disk,
        troubles=troubles,
        environments=tuple(_cell(environment, host, arch, catalog, avx=avx) for environment in environments),
    )


def find_tools() -> tuple[ToolSeen, ...]:
    """Look for the programs that steps need beside the engine."""
    try:
        uv: str | None = uv_binary()
    except FileNotFoundError:
        uv = None
    return (
        ToolSeen(name="uv", path=uv, purpose="locks"),
        ToolSeen(name="mmdebstrap", path=shutil.which("mmdebstrap"), purpose="bases without a registry"),
    )


def _engine(
    connect: Callable[[], Engine], base: OperatingSystem
) -> tuple[EngineSeen | None, bool | None, str, tuple[Trouble, ...]]:
    try:
        engine = connect()
        info = engine.info()
    except InfrastructureError as error:
        return None, None, "", (Trouble(what=error.message, fix=error.hint),)
    seen = EngineSeen(
        name=info.name,
        version=info.version,
        builder=info.builder,
        gpu_runtime=info.gpu_runtime,
        storage=info.storage,
    )
    try:
        engine.reach(base.image)
    except InfrastructureError:
        return seen, False, info.root, ()
    return seen, True, info.root, ()


def _disks(places: tuple[tuple[str, Path], ...]) -> Iterator[Disk]:
    for purpose, folder in places:
        there = next((path for path in (folder, *folder.absolute().parents) if path.exists()), None)
        if there is not None:
            with suppress(OSError):  # a folder that may not be looked into has no room to tell
                yield Disk(path=str(folder), free=shutil.disk_usage(there).free, purpose=purpose)


def _troubles(
    host: HostRef,
    engine: EngineSeen | None,
    registry: bool | None,  # noqa: FBT001 - one of three answers
    tools: tuple[ToolSeen, ...],
    disk: tuple[Disk, ...],
    *,
    avx: bool | None,
) -> Iterator[Trouble]:
    missing = {tool.name for tool in tools if tool.path is None}
    if host.driver and not host.gpus:
        yield Trouble(
            what=f"driver {host.driver} is loaded and names no GPU: its library is another version, or it lost them",
            fix="nvidia-smi says which; after a driver update, reboot",
        )
    if host.gpus and engine and not engine.gpu_runtime:
        yield Trouble(what="the engine cannot hand GPUs over", fix="install the NVIDIA Container Toolkit")
    if host.persistence is False:
        yield Trouble(
            what="persistence mode is off: each first use of a GPU waits for the driver's initialisation",
            fix="nvidia-smi -pm 1, or enable nvidia-persistenced",
        )
    if registry is False and "mmdebstrap" in missing:
        yield Trouble(
            what="bases can come neither from a registry (none answers) nor from packages (no mmdebstrap)",
            fix="apt-get install mmdebstrap, or docker pull the base where a registry is reachable",
        )
    if "uv" in missing:
        yield Trouble(what="uv is not found, and locking needs it", fix="reinstall envbuilder: uv comes with it")
    if avx is False:
        yield Trouble(what="the processor has no AVX, which TensorFlow's wheels need", fix="use another host")
    for place in disk:
        if place.free < ROOM:
            yield Trouble(
                what=f"{place.path} ({place.purpose}) has {place.free / 1e9:.0f} GB free; a GPU image asks for 20",
                fix="free some, or move it: docker system df shows what the engine holds",
            )


def _cell(environment: Environment, host: HostRef, arch: str, catalog: Catalog, *, avx: bool | None) -> Cell:
    gpus = tuple(gpu.name for gpu in host.gpus)
    side = findings_on(environment, host.driver, gpus, catalog, arch)
    found = (*_processor(environment, catalog, avx=avx), *side)
    judged = compatible(found)
    why = next((finding.message for finding in found if finding.severity is Severity.ERROR), "")
    if judged is None:
        why = next(finding.message for finding in found if finding.code == "UNKNOWN")
    return Cell(host=platform.node(), environment=environment.id, compatible=judged, findings=found, why=why)


def _processor(environment: Environment, catalog: Catalog, *, avx: bool | None) -> tuple[Finding, ...]:
    if avx is not False:
        return ()
    question = Question(tensorflow=environment.tensorflow, package=environment.package, gpu=False, avx=False)
    return tuple(finding for finding in findings_of(question, catalog) if finding.code == "CPU_FEATURE_MISSING")
