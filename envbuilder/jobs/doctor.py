"""Describe this host, its problems with their fixes, and the environments that it can run."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from uv import find_uv_bin

from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import OperatingSystem
from envbuilder.compat.check import findings_of
from envbuilder.compat.fleet import Cell, findings_on
from envbuilder.compat.question import Question
from envbuilder.engine.port import Engine
from envbuilder.environment import Environment
from envbuilder.errors import InfrastructureError
from envbuilder.finding import Severity, compatible
from envbuilder.support.console import table
from envbuilder.verdict import HostRef

NEEDED_SPACE = 20 << 30
"""Free bytes for building a GPU image: the image (5 to 7 GB), its layers' cache and the downloads."""


class EngineFacts(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: str
    builder: str
    gpu_runtime: bool
    storage: str


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A program that a step needs; ``path`` is None if it is not installed."""

    name: str
    path: str | None
    purpose: str


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """Free bytes on the disk of a folder."""

    path: str
    free: int
    purpose: str


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """A problem and its fix."""

    what: str
    fix: str


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """Result of ``envbuilder doctor``.

    ``engine`` is null if none answers. ``registry``: the usual base's registry answers (null: no engine).
    ``environments`` are checked for this host's driver, GPUs and processor.
    """

    schema: str = "envbuilder/doctor/v1"
    host: HostRef
    avx: bool | None
    engine: EngineFacts | None
    registry: bool | None
    tools: tuple[Tool, ...]
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
    tools: tuple[Tool, ...],
    places: tuple[tuple[str, Path], ...],
    environments: tuple[Environment, ...],
    catalog: Catalog,
) -> Diagnosis:
    """Collect the facts of a host, with or without an engine.

    ``places`` are purposes and folders; their disks and the engine's are measured.
    """
    engine, registry, root, troubles = _engine(connect, base)
    diagnosis = Diagnosis(
        host=host,
        avx=avx,
        engine=engine,
        registry=registry,
        tools=tools,
        disk=tuple(_disks((*places, ("images", Path(root))) if root else places)),
        troubles=troubles,
        environments=tuple(_cell(environment, host, arch, catalog, avx=avx) for environment in environments),
    )
    return msgspec.structs.replace(diagnosis, troubles=(*troubles, *_troubles(diagnosis)))


def as_text(diagnosis: Diagnosis) -> str:
    host, engine = diagnosis.host, diagnosis.engine
    gpus = ", ".join(f"{gpu.name} (compute capability {gpu.compute_capability})" for gpu in host.gpus)
    registry = {True: "answers", False: "does not answer", None: "unknown: no engine"}[diagnosis.registry]
    facts = [
        ("kernel", host.kernel),
        ("processor", f"{host.cpus} x {host.cpu_model}{' (no AVX)' if diagnosis.avx is False else ''}"),
        ("memory", f"{host.memory / 1e9:.1f} GB"),
        ("driver", host.driver or "none"),
        ("GPUs", gpus or "none"),
        ("engine", f"{engine.name} {engine.version}, {engine.builder}, {engine.storage}" if engine else "none"),
        ("GPU runtime", "there" if engine and engine.gpu_runtime else "none"),
        ("registry", registry),
        *((tool.name, f"{tool.path or 'not installed'} ({tool.purpose})") for tool in diagnosis.tools),
        *((f"disk for {disk.purpose}", f"{disk.free / 1e9:.0f} GB free at {disk.path}") for disk in diagnosis.disk),
    ]
    words = {True: "runs", False: "does not", None: "unknown"}
    rows = [(cell.environment, words[cell.compatible], cell.why) for cell in diagnosis.environments]
    troubles = [f"trouble: {trouble.what}\n  next: {trouble.fix}" for trouble in diagnosis.troubles]
    parts = [table(("host", ""), facts), *troubles, table(("environment", "here", "why"), rows)]
    return "\n\n".join(parts)


def find_tools() -> tuple[Tool, ...]:
    try:
        uv: str | None = find_uv_bin()
    except FileNotFoundError:
        uv = None
    return (
        Tool(name="uv", path=uv, purpose="locks"),
        Tool(name="mmdebstrap", path=shutil.which("mmdebstrap"), purpose="bases without a registry"),
    )


def _engine(
    connect: Callable[[], Engine], base: OperatingSystem
) -> tuple[EngineFacts | None, bool | None, str, tuple[Trouble, ...]]:
    try:
        engine = connect()
        info = engine.info()
    except InfrastructureError as error:
        return None, None, "", (Trouble(what=error.message, fix=error.hint),)
    facts = EngineFacts(**{name: getattr(info, name) for name in EngineFacts.__struct_fields__})
    try:
        engine.reach(base.image)
    except InfrastructureError:
        return facts, False, info.root, ()
    return facts, True, info.root, ()


def _disks(places: tuple[tuple[str, Path], ...]) -> Iterator[Disk]:
    for purpose, folder in places:
        there = next((path for path in (folder, *folder.absolute().parents) if path.exists()), None)
        if there is not None:
            with suppress(OSError):  # no permission to read the folder
                yield Disk(path=str(folder), free=shutil.disk_usage(there).free, purpose=purpose)


def _troubles(found: Diagnosis) -> Iterator[Trouble]:
    host = found.host
    missing = {tool.name for tool in found.tools if tool.path is None}
    if host.driver and not host.gpus:
        yield Trouble(
            what=f"driver {host.driver} is loaded but reports no GPU: its library is another version, or they failed",
            fix="run nvidia-smi for the reason; reboot after a driver update",
        )
    if host.gpus and found.engine and not found.engine.gpu_runtime:
        yield Trouble(what="the engine cannot pass GPUs to containers", fix="install the NVIDIA Container Toolkit")
    if host.persistence is False:
        yield Trouble(
            what="persistence mode is off: the first use of a GPU waits for the driver's initialisation",
            fix="nvidia-smi -pm 1, or enable nvidia-persistenced",
        )
    if found.registry is False and "mmdebstrap" in missing:
        yield Trouble(
            what="no source of base images: no registry answers, and mmdebstrap is missing",
            fix="apt-get install mmdebstrap, or docker pull the base while a registry is reachable",
        )
    if "uv" in missing:
        yield Trouble(what="uv is missing; `envbuilder lock` needs it", fix="reinstall envbuilder, which includes uv")
    if found.avx is False:
        yield Trouble(what="the processor has no AVX, which TensorFlow's wheels need", fix="use another host")
    for place in found.disk:
        if place.free < NEEDED_SPACE:
            yield Trouble(
                what=f"{place.path} ({place.purpose}) has {place.free / 1e9:.0f} GB free; a GPU image needs 20",
                fix="free space with `envbuilder clean`; `docker system df` shows the engine's use",
            )


def _cell(environment: Environment, host: HostRef, arch: str, catalog: Catalog, *, avx: bool | None) -> Cell:
    gpus = tuple(gpu.name for gpu in host.gpus)
    found = findings_on(environment, host.driver, gpus, catalog, arch)
    if avx is False:
        question = Question(tensorflow=environment.tensorflow, package=environment.package, gpu=False, avx=False)
        missing = (one for one in findings_of(question, catalog) if one.code == "CPU_FEATURE_MISSING")
        found = (*missing, *found)
    works = compatible(found)
    reasons = (one.message for one in found if one.code == "UNKNOWN" or one.severity is Severity.ERROR)
    why = "" if works else next(reasons)
    return Cell(host=platform.node(), environment=environment.id, compatible=works, findings=found, why=why)
