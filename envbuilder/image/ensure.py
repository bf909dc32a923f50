"""Build an environment's image: lock, packages, render, base, build. Up-to-date steps are skipped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import OperatingSystem
from envbuilder.engine.port import Engine, Step
from envbuilder.environment import Environment
from envbuilder.errors import UsageError
from envbuilder.image import lockfile, system_lock
from envbuilder.image.bases import Base, ensure_base
from envbuilder.image.build import BuildOptions, Built, ImageRecord, build, of_files
from envbuilder.image.context import (
    build_files,
    ensure_lock,
    ensure_packages,
    ensure_system_locks,
    system_of,
    tools_system,
    write_context,
)
from envbuilder.image.wheel_records import WheelRecords
from envbuilder.workspace import Workspace, cache_dir, content_key, read_document


@dataclass(frozen=True)
class Given:
    """A lock that the caller has chosen; with ``as_it_lies`` the stored files are built as they are."""

    lock: str
    as_it_lies: bool = False


def ensure(
    environment: Environment,
    catalog: Catalog,
    workspace: Workspace,
    engine: Engine,
    on_step: Callable[[Step], None],
    *,
    given: Given | None = None,
    options: BuildOptions | None = None,
) -> Built:
    """Lock an environment that has no lock, write its files, and build it unless the engine has that image.

    Raises InputError for a lock that does not fit the environment, UnsatisfiableError if it cannot be locked,
    BaseUnavailableError, BuildFailedError, and InfrastructureError. An interrupted build leaves no record, so that
    the next call builds.
    """
    options = options or BuildOptions()

    def base_of(system: OperatingSystem) -> Base:
        return ensure_base(engine, system, cache_dir() / "bases", lambda line: on_step(Step("log", "base", line)))

    files = _prepared(environment, catalog, workspace, given, options)
    base = base_of(system_of(environment, catalog))
    key = content_key({**files, "base": base.id.encode()})
    kept = None if options.no_cache else _kept(environment, key, workspace, engine)
    if kept is not None:
        return of_files(environment, kept, files, workspace, fresh=False)
    tools = base_of(tools_system(catalog)) if environment.on_registry_base else None
    record = build(
        environment, workspace, engine, on_step, files=files, base=base, tools=tools, key=key, options=options
    )
    built = of_files(environment, record, files, workspace, fresh=True)
    wheels = WheelRecords(options.index, pins=built.pins, own=environment.added.indexes)
    cudnn = built.system.get(system_lock.CUDNN_LOCK, "")
    wheels.keep((*lockfile.parse(built.lock), *lockfile.parse(cudnn)), environment.python, environment.arch)
    return built


def _prepared(
    environment: Environment, catalog: Catalog, workspace: Workspace, given: Given | None, options: BuildOptions
) -> Mapping[str, bytes]:
    """Return the files that a build needs, by path below ``images/``; unless they are given, they are written first."""
    if given is not None and given.as_it_lies:
        files = build_files(environment.id, workspace)
        if f"{environment.id}/Dockerfile" not in files:
            hint = f"envbuilder render -s {environment.id}"
            raise UsageError(f"{workspace.context(environment.id)} has no Dockerfile", hint=hint)
        return files
    lock = given.lock if given else ensure_lock(environment, catalog, workspace)
    if given is not None:
        ensure_system_locks(environment, catalog, workspace)
    ensure_packages(environment, lock, catalog, workspace, options.index)
    return write_context(environment, lock, workspace)


def _kept(environment: Environment, key: str, workspace: Workspace, engine: Engine) -> ImageRecord | None:
    """Return the record of an image of exactly this content that the engine still holds."""
    record = read_document(workspace.image_record(environment.id), ImageRecord)
    return record if record and record.key == key and engine.image(record.image) is not None else None
