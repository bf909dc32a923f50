"""The build of a control's image: its Dockerfile, and locks that agree with its changes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import assert_never

from envbuilder.controls.control import Control, ControlStep, Copy, Entrypoint, Env, FromWheel, RunCommand
from envbuilder.image import lockfile, system_lock
from envbuilder.image.lockfile import LOCK
from envbuilder.image.render import WITH_HOST
from envbuilder.image.system_lock import CUDNN_LOCK, SYSTEM_LOCK
from envbuilder.workspace import packaged


def dockerfile(control: Control, python: str, lock: str, system: Mapping[str, str] | None = None) -> str:
    """Write the Dockerfile that breaks the image ``BASE``; ``python`` is its minor version (``3.11``).

    If the control changes packages, the image gets the ``lock`` (and the locks of its ``system``) with that change, and
    the labels that name them.
    """
    site = f"/opt/venv/lib/python{python}/site-packages"
    lines = [f"# Negative control: {control.broken}.", "ARG BASE", "FROM ${BASE}", "USER root"]
    lines += [_instruction(step).replace("{site}", site) for step in control.steps]
    if control.changes_lock:
        lines += [f"COPY {LOCK} /opt/envbuilder/{LOCK}", f'LABEL org.envbuilder.lock="{lockfile.digest(lock)}"']
    if control.changes_system and system:
        lines += [f"COPY {name} /opt/envbuilder/{name}" for name in sorted(system)]
        lines += [f'LABEL org.envbuilder.system="{system_lock.digest(system)}"']
    return "\n".join([*lines, "USER envbuilder", ""])


def _instruction(step: ControlStep) -> str:
    match step:
        case RunCommand(command, network, folder, tool):
            mounts = f"{WITH_HOST}\n    " if network else ""
            mounts += f"--mount=type=bind,source={tool},target=/run/{tool} " if tool else ""
            return f"RUN {mounts}{f'cd {folder} && ' if folder else ''}{command}"
        case Copy() | FromWheel():
            return f"COPY {step.source} {step.to}"
        case Env(name, value):
            return f"ENV {name}={value}"
        case Entrypoint(program):
            return f'ENTRYPOINT ["{program}"]'
        case _:
            assert_never(step)


def defect_probes(control: Control) -> dict[str, bytes]:
    """Return the probes of the control's own checks by file name; the suite never includes them."""
    folder = files("envbuilder.controls") / "defects"
    names = {check.probe.partition(":")[0] + ".py" for check in control.extra}
    return {name: packaged(folder / name) for name in sorted(names)}


def broken_system(control: Control, system: Mapping[str, str]) -> dict[str, str]:
    """Return the system's locks with the control's change; a changed version has no hash."""
    locks = dict(system)
    for name in control.unlocked:
        lines = locks[SYSTEM_LOCK].splitlines(keepends=True)
        kept = [line for line in lines if f"  {name}_" not in line]
        if len(kept) == len(lines):
            raise ValueError(f"{control.name} removes a package that the system's lock does not name: {name}")
        locks[SYSTEM_LOCK] = "".join(kept)
    if control.cudnn:
        (package,) = lockfile.parse(locks[CUDNN_LOCK])
        locks[CUDNN_LOCK] = f"{package.name}=={control.cudnn}\n"
    return locks


def broken_lock(control: Control, lock: str) -> str:
    """Return the lock with the control's change; a changed package has no hash."""
    packages = lockfile.parse(lock)
    unknown = (control.locked.keys() | control.swapped.keys()) - {package.name for package in packages}
    if unknown:
        raise ValueError(f"{control.name} replaces packages that the lock does not name: {', '.join(sorted(unknown))}")
    blocks = []
    for package in packages:
        version, name = control.locked.get(package.name), control.swapped.get(package.name)
        pin = f"{name or package.name}=={version or package.version}"
        blocks.append(pin if version or name else package.text)
    blocks += [f"{name}=={version}" for name, version in control.added.items()]
    return re.sub(r"\n?\Z", "\n", "\n".join(blocks)) if control.changes_lock else lock
