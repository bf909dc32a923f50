"""Describe this host, its problems with their fixes, and the environments that it can run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from uv import find_uv_bin

from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import OperatingSystem
from envbuilder.compat.check import EnvironmentImage
from envbuilder.compat.fleet import Cell, choose_for, place
from envbuilder.engine.port import Engine, EngineInfo
from envbuilder.environment import Environment
from envbuilder.errors import InfrastructureError
from envbuilder.jobs.choose import as_fleet_host, image_of, newest_wanted
from envbuilder.support.tables import folded, table
from envbuilder.verdict import HostRef

NEEDED_SPACE = 20 << 30
"""Free bytes for building a GPU image: the image (5 to 7 GB), its layers' cache and the downloads."""


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
    ``environments`` are checked for this host's driver, GPUs and processor; ``chosen`` is the newest of all that runs.
    """

    schema: str = "envbuilder/doctor/v1"
    host: HostRef
    avx: bool | None
    engine: EngineInfo | None
    registry: bool | None
    tools: tuple[Tool, ...]
    disk: tuple[Disk, ...]
    troubles: tuple[Trouble, ...]
    environments: tuple[Cell, ...]
    chosen: EnvironmentImage | None = None


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
    engine, registry, troubles = _engine(connect, base)
    here = as_fleet_host(host, arch)
    newest = choose_for(newest_wanted(here), here, catalog, avx=avx)
    diagnosis = Diagnosis(
        host=host,
        avx=avx,
        engine=engine,
        registry=registry,
        tools=tools,
        disk=tuple(_disks((*places, ("images", Path(engine.root))) if engine and engine.root else places)),
        troubles=troubles,
        environments=place(environments, (here,), catalog, avx=avx),
        chosen=image_of(newest.environment),
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
        ("newest environment", diagnosis.chosen.environment if diagnosis.chosen else "none"),
        ("image to build", diagnosis.chosen.image if diagnosis.chosen else "-"),
        *((f"disk for {disk.purpose}", f"{disk.free / 1e9:.0f} GB free at {disk.path}") for disk in diagnosis.disk),
    ]
    troubles = [f"{folded(f'trouble: {one.what}')}\n  next: {one.fix}" for one in diagnosis.troubles]
    runs = _runs(diagnosis.environments, "run here" if engine else "would run here with an engine")
    return "\n\n".join([table(("host", ""), facts), *troubles, "\n".join(runs)])


def _runs(cells: tuple[Cell, ...], run: str) -> Iterator[str]:
    """Count the environments that run, and list those that share an answer and its reason."""
    words = {True: run, False: "do not run here", None: f"{run} on a condition, or are unknown"}
    groups: dict[tuple[bool | None, str], list[str]] = {}
    for cell in cells:
        groups.setdefault((cell.compatible, cell.why), []).append(cell.environment)
    for (judged, why), names in groups.items():
        yield folded(f"{len(names)} of {len(cells)} environments {words[judged]}: {why}".removesuffix(": "))
        yield from (f"  {name}" for name in names)


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
) -> tuple[EngineInfo | None, bool | None, tuple[Trouble, ...]]:
    try:
        engine = connect()
        info = engine.info()
    except InfrastructureError as error:
        return None, None, (Trouble(what=error.message, fix=error.hint),)
    try:
        engine.reach(base.image)
    except InfrastructureError:
        return info, False, ()
    return info, True, ()


def _disks(places: tuple[tuple[str, Path], ...]) -> Iterator[Disk]:
    for purpose, folder in places:
        there = next((path for path in (folder, *folder.absolute().parents) if path.exists()), None)
        if there is not None:
            with suppress(OSError):  # no permission to read the folder
                yield Disk(path=str(folder), free=shutil.disk_usage(there).free, purpose=purpose)


def _troubles(found: Diagnosis) -> Iterator[Trouble]:
    host, engine, missing = found.host, found.engine, {tool.name for tool in found.tools if tool.path is None}
    silent = f"driver {host.driver} is loaded but reports no GPU: its library is another version, or they failed"
    slow = "persistence mode is off: the first use of a GPU waits for the driver's initialisation"
    bare = "no source of base images: no registry answers, and mmdebstrap is missing"
    bootstrap = "apt-get install mmdebstrap, or docker pull the base while a registry is reachable"
    reinstall = "reinstall envbuilder, which includes uv"
    runtime = bool(host.gpus and engine and not engine.gpu_runtime)
    rows = [
        (bool(host.driver and not host.gpus), silent, "run nvidia-smi for the reason; reboot after a driver update"),
        (runtime, "the engine cannot pass GPUs to containers", "install the NVIDIA Container Toolkit"),
        (host.persistence is False, slow, "nvidia-smi -pm 1, or enable nvidia-persistenced"),
        (found.registry is False and "mmdebstrap" in missing, bare, bootstrap),
        ("uv" in missing, "uv is missing; `envbuilder lock` needs it", reinstall),
        (found.avx is False, "the processor has no AVX, which TensorFlow's wheels need", "use another host"),
    ]
    for disk in found.disk:
        what = f"{disk.path} ({disk.purpose}) has {disk.free / 1e9:.0f} GB free; a GPU image needs 20"
        fix = "free space with `envbuilder clean`; `docker system df` shows the engine's use"
        rows.append((disk.free < NEEDED_SPACE, what, fix))
    yield from (Trouble(what=what, fix=fix) for holds, what, fix in rows if holds)
