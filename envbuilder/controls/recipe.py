"""How a control's image is made from the good one: a Dockerfile, and the lock that tells the truth about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import assert_never

from envbuilder.controls.control import Control, Copy, Entrypoint, Env, Run
from envbuilder.image import lockfile, system_lock
from envbuilder.image.lockfile import LOCK
from envbuilder.image.render import with_host
from envbuilder.image.system_lock import CUDNN_LOCK, SYSTEM_LOCK
from envbuilder.workspace import packaged

_SITE = "/opt/venv/lib/python{python}/site-packages"


def dockerfile(control: Control, python: str, lock: str, system: Mapping[str, str] | None = None) -> str:
    """Write the Dockerfile that breaks the image given as ``BASE``; ``python`` is its minor version (``3.11``).

    Where the control replaces or adds packages, the image gets the ``lock`` that names them, and its claim with it; so
    it does with the locks of what the ``system`` brings.
    """
    site = _SITE.format(python=python)
    lines = [f"# Negative control: {control.broken}.", "ARG BASE", "FROM ${BASE}", "USER root"]
    lines += [_instruction(step, site) for step in control.steps]
    if control.changes_lock:
        lines += [f"COPY {LOCK} /opt/envbuilder/{LOCK}", f'LABEL org.envbuilder.lock="{lockfile.digest(lock)}"']
    if control.changes_system and system:
        lines += [f"COPY {name} /opt/envbuilder/{name}" for name in sorted(system)]
        lines += [f'LABEL org.envbuilder.system="{system_lock.digest(system)}"']
    return "\n".join([*lines, "USER envbuilder", ""])


def _instruction(step: Run | Copy | Env | Entrypoint, site: str) -> str:
    match step:
        case Run(command, network):
            return "RUN " + (f"{with_host()}\n    " if network else "") + command.replace("{site}", site)
        case Copy(source, to):
            return f"COPY {source} {to.replace('{site}', site)}"
        case Env(name, value):
            return f"ENV {name}={value}"
        case Entrypoint(program):
            return f'ENTRYPOINT ["{program}"]'
        case _:
            assert_never(step)


def defect_probes(control: Control) -> dict[str, bytes]:
    """Return the files of the control's own checks, by name: they ship with the controls, never with the suite."""
    folder = files("envbuilder.controls") / "defects"
    names = {check.probe.partition(":")[0] + ".py" for check in control.extra}
    return {name: packaged(folder / name) for name in sorted(names)}


def broken_system(control: Control, system: Mapping[str, str]) -> dict[str, str]:
    """Return the locks of what the system brings, as the control leaves it; a version that it changes has no hash."""
    told = dict(system)
    for name in control.unlocked:
        kept = [line for line in told[SYSTEM_LOCK].splitlines(keepends=True) if f"  {name}_" not in line]
        if len(kept) == len(told[SYSTEM_LOCK].splitlines()):
            raise ValueError(f"{control.name} takes away what the system's lock does not hold: {name}")
        told[SYSTEM_LOCK] = "".join(kept)
    if control.cudnn:
        (package,) = lockfile.parse(told[CUDNN_LOCK])
        told[CUDNN_LOCK] = f"{package.name}=={control.cudnn}\n"
    return told


def broken_lock(control: Control, lock: str) -> str:
    """Return the lock with the versions that the control installs; hashes are dropped where a version changes."""
    replaced, swapped = dict(control.locked), dict(control.swapped)
    blocks = []
    for package in lockfile.parse(lock):
        version, name = replaced.get(package.name), swapped.get(package.name)
        told = f"{name or package.name}=={version or package.version}"
        blocks.append(told if version or name else package.text)
    missing = (replaced.keys() | swapped.keys()) - {package.name for package in lockfile.parse(lock)}
    if missing:
        raise ValueError(f"{control.name} replaces what the lock does not hold: {', '.join(sorted(missing))}")
    blocks += [f"{name}=={version}" for name, version in control.added]
    return re.sub(r"\n?\Z", "\n", "\n".join(blocks)) if control.changes_lock else lock
