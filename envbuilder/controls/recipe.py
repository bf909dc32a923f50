"""The build of a control's image: its Dockerfile, and locks that agree with its changes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from envbuilder.controls.control import Control
from envbuilder.image import lockfile, system_lock
from envbuilder.image.lockfile import LOCK


def dockerfile(control: Control, python: str, locks: Mapping[str, str]) -> str:
    """Write the Dockerfile that breaks the image ``BASE``; ``python`` is its minor version (``3.11``).

    The image gets those of its ``locks`` that the control changes, and the labels that name them.
    """
    site = f"/opt/venv/lib/python{python}/site-packages"
    lines = [f"# Negative control: {control.broken}.", "ARG BASE", "FROM ${BASE}", "USER root"]
    lines += [step.instruction.replace("{site}", site) for step in control.steps]
    broken = broken_locks(control, locks)
    changed = [name for name in sorted(broken) if broken[name] != locks[name]]
    lines += [f"COPY {name} /opt/envbuilder/{name}" for name in changed]
    lock = broken.pop(LOCK)
    if LOCK in changed:
        lines.append(f'LABEL org.envbuilder.lock="{lockfile.digest(lock)}"')
    if broken.keys() & set(changed):
        lines.append(f'LABEL org.envbuilder.system="{system_lock.digest(broken)}"')
    return "\n".join([*lines, "USER envbuilder", ""])


def broken_locks(control: Control, locks: Mapping[str, str]) -> dict[str, str]:
    """Return an image's locks, by file name, with the control's change; a changed package has no hash.

    A pin replaces that of its package in any lock; otherwise the environment's lock gets it.
    """
    pins = {pin.partition("==")[0]: pin for pin in control.lock}
    broken = {name: _without({*control.unlock, *pins}, text) for name, text in locks.items()}
    for package, pin in pins.items():
        holder = next((name for name, text in locks.items() if _without({package}, text) != text), LOCK)
        broken[holder] += f"{pin}\n"
    return broken


def _without(packages: set[str], lock: str) -> str:
    """Remove wheels, which are several lines each, and packages of the system."""
    names = "|".join(map(re.escape, packages))
    return re.sub(rf"^(?:(?:{names})==.*(?:\n[ \t].*)*|[0-9a-f]+  (?:{names})_.*)\n", "", lock, flags=re.MULTILINE)
