"""From an environment to its image, the one way there is: lock, context, base, build; what stands is not redone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import OperatingSystem
from envbuilder.engine.port import Engine, Step
from envbuilder.environment import Environment
from envbuilder.errors import UsageError
from envbuilder.image import lockfile, omissions, system_lock
from envbuilder.image.bases import Base, ensure_base
from envbuilder.image.build import BuildOptions, Built, ImageRecord, build, of_context
from envbuilder.image.context import (
    ensure_lock,
    ensure_system_locks,
    rendered,
    system_of,
    tools_system,
    underived,
    write_context,
)
from envbuilder.image.derive import derive
from envbuilder.image.omissions import OMISSIONS, Omissions
from envbuilder.image.wheel_records import WheelRecords
from envbuilder.workspace import (
    Workspace,
    cache_dir,
    content_key,
    folder_contents,
    read_document,
    write_atomically,
)


@dataclass(frozen=True)
class Given:
    """A lock that the caller has chosen; ``as_it_lies``: its context is taken as it is committed, nothing written."""

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
    """Lock an environment where it has no lock, write its context, and build it unless the engine holds that image.

    Raises InputError for a lock that does not fit the environment, UnsatisfiableError where it cannot be locked,
    BaseUnavailableError, BuildFailedError, and InfrastructureError. An interrupted build leaves no record, so that
    the next call builds.
    """
    options = options or BuildOptions()

    def base_of(system: OperatingSystem) -> Base:
        return ensure_base(engine, system, cache_dir() / "bases", lambda line: on_step(Step("log", "base", line)))

    def bases() -> dict[str, Base]:
        tools = {"TOOLS": base_of(tools_system(catalog))} if environment.on_registry_base else {}
        return {"BASE": base_of(system_of(environment, catalog)), **tools}

    def derived(lock: str) -> Omissions:
        whole = rendered(msgspec.structs.replace(environment, form=msgspec.UNSET), lock, workspace)
        log = workspace.build_log(environment.id)
        return derive(environment, lock, whole, engine, on_step, bases=bases(), log=log, wheels=options.wheels)

    lock = _prepared(environment, catalog, workspace, given, derived)
    context = workspace.context(environment.id)
    files = folder_contents(context)
    if "Dockerfile" not in files:
        hint = f"envbuilder render -s {environment.id}"
        raise UsageError(f"{context} has no Dockerfile", hint=hint)
    base = base_of(system_of(environment, catalog))
    key = content_key({**files, "base": base.id.encode()})
    kept = None if options.no_cache else _kept(environment, key, workspace, engine)
    if kept is not None:
        return of_context(environment, kept, lock, workspace, fresh=False)
    record = build(
        environment, workspace, engine, on_step, base=base, tools=bases().get("TOOLS"), key=key, options=options
    )
    built = of_context(environment, record, lock, workspace, fresh=True)
    wheels = WheelRecords(options.index, pins=built.pins, own=environment.added.indexes)
    beside = built.system.get(system_lock.CUDNN_LOCK, "")
    wheels.keep((*lockfile.parse(lock), *lockfile.parse(beside)), environment.python, environment.arch)
    return built


def _prepared(
    environment: Environment,
    catalog: Catalog,
    workspace: Workspace,
    given: Given | None,
    derived: Callable[[str], Omissions],
) -> str:
    """Return the lock of a context that is ready to be built; ``derived`` lists what its form can do without."""
    if given is not None and given.as_it_lies:
        return given.lock
    lock = given.lock if given else ensure_lock(environment, catalog, workspace)
    context = workspace.context(environment.id)
    if given is not None:
        ensure_system_locks(environment, catalog, workspace)
    if underived(environment, lock, workspace):
        write_atomically(context / OMISSIONS, omissions.write(derived(lock)).encode())
    write_context(environment, lock, workspace)
    return lock


def _kept(environment: Environment, key: str, workspace: Workspace, engine: Engine) -> ImageRecord | None:
    """Return the record of an image of exactly this content that the engine still holds."""
    record = read_document(workspace.image_record(environment.id), ImageRecord)
    return record if record and record.key == key and engine.image(record.image) is not None else None
