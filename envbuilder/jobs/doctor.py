"""Describe this host, its problems with their fixes, and the environments that it can run."""

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
from envbuilder.support.templates import rendered
from envbuilder.verdict import HostRef
from envbuilder.workspace import packaged_yaml

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
    gpus = ", ".join(f"{gpu.name} (compute capability {gpu.compute_capability})" for gpu in diagnosis.host.gpus)
    groups: dict[tuple[bool | None, str], list[str]] = {}  # environments that share an answer and its reason
    for cell in diagnosis.environments:
        groups.setdefault((cell.compatible, cell.why), []).append(cell.environment)
    return rendered("jobs/doctor", found=diagnosis, gpus=gpus, groups=groups)


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


_TEXTS = packaged_yaml("jobs/troubles.yaml", dict[str, Trouble])


def _troubles(found: Diagnosis) -> Iterator[Trouble]:
    host, engine, missing = found.host, found.engine, {tool.name for tool in found.tools if tool.path is None}
    holds = {
        "no GPU": host.driver and not host.gpus,
        "no runtime": host.gpus and engine and not engine.gpu_runtime,
        "no persistence": host.persistence is False,
        "no base": found.registry is False and "mmdebstrap" in missing,
        "no uv": "uv" in missing,
        "no AVX": found.avx is False,
    }
    for text in (_TEXTS[name] for name, is_true in holds.items() if is_true):
        yield msgspec.structs.replace(text, what=text.what.format(driver=host.driver))
    full = _TEXTS["no space"]
    for disk in (disk for disk in found.disk if disk.free < NEEDED_SPACE):
        what = full.what.format(path=disk.path, purpose=disk.purpose, free=disk.free / 1e9)
        yield msgspec.structs.replace(full, what=what)
