"""Derive what an environment's image can do without, from an image with everything, by a probe that reads its files."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import msgspec

from envbuilder.engine.port import FILES_AT, BuildRequest, ContainerSpec, Engine, Step
from envbuilder.environment import Environment
from envbuilder.errors import InfrastructureError
from envbuilder.image import lockfile, omissions
from envbuilder.image.bases import Base
from envbuilder.image.build import build_logged
from envbuilder.image.hostfiles import host_files
from envbuilder.image.names import reference
from envbuilder.image.omissions import Omissions
from envbuilder.support import decoding
from envbuilder.versions import same
from envbuilder.workspace import packaged, temporary_folder, write_atomically

_PROBES = (
    *omissions.PROGRAMS,
    *(f"probes/{name}.py" for name in ("needs", "module_texts", "spoken", "linked_in", "suite/elf")),
)
_MOST = 32 << 20
_LIMIT_S = 1800.0
_WHOLE = "-whole"


def derive(
    environment: Environment,
    lock: str,
    whole: dict[str, bytes],
    engine: Engine,
    on_step: Callable[[Step], None],
    *,
    bases: dict[str, Base],
    log: Path,
    wheels: Path | None = None,
) -> Omissions:
    """Build an environment with everything that its lock pins, and list what nothing in it can load or execute.

    ``whole`` is the context of that, ``bases`` are the build arguments that name what it is built on, ``log`` is where
    the build's steps are written, ``wheels`` a folder that steps may install from. The image is removed again; its
    steps stay in the builder's cache. Raises BuildFailedError, InfrastructureError.
    """
    tag = reference(environment.id) + _WHOLE
    with temporary_folder("whole") as folder:
        for name, content in whole.items():
            write_atomically(folder / name, content)
        arguments = {name: base.reference for name, base in bases.items()}
        request = BuildRequest(
            context=folder,
            tag=tag,
            extra=host_files(wheels=wheels, indexes=environment.added.indexes),
            build_args=arguments,
        )
        try:
            image = build_logged(request, engine, log, on_step)
            on_step(Step("log", "omissions", "looking for what nothing in it can load or execute"))
            found = _asked(engine, image.id, environment)
        finally:
            engine.remove(tag)
    pinned = {package.name: package.version for package in lockfile.parse(lock)}
    strange = [one.name for one in found.distributions if not same(pinned.get(one.name), one.version)]
    if strange:
        raise InfrastructureError(f"{environment.id}: {strange[0]} is installed and not as the lock pins it")
    return msgspec.structs.replace(found, lock=lockfile.digest(lock))


def _asked(engine: Engine, image: str, environment: Environment) -> Omissions:
    plan = {
        "site": f"/opt/venv/lib/python{environment.python}/site-packages",
        "wished": lockfile.names(environment.requirements),
        "libraries": environment.libraries,
        "framework": environment.package,
    }
    folder = resources.files("envbuilder")
    stdout, stderr = bytearray(), bytearray()
    spec = ContainerSpec(
        image=image,
        command=(f"/opt/venv/bin/python{environment.python}", "-S", "-s", "-m", "probes.needs", json.dumps(plan)),
        env={"PYTHONPATH": FILES_AT, "PYTHONDONTWRITEBYTECODE": "1"},
        files={name: packaged(folder.joinpath(name)) for name in _PROBES},
        output=_MOST,
        time_limit=_LIMIT_S,
    )
    ended = engine.run(spec, stdout.extend, stderr.extend)
    said = f"{environment.id}: what it can do without was not found (exit code {ended.exit_code})"
    try:
        return omissions.parse(decoding.text(bytes(stdout)))
    except decoding.DamagedError as error:
        raise InfrastructureError(f"{said}: {error}\n{decoding.lossy(bytes(stderr[-2000:])).strip()}") from error
