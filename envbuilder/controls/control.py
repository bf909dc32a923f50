"""The negative controls: what a control is, and the table (`controls.yaml`)."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, Literal

import msgspec

from envbuilder.errors import UsageError
from envbuilder.finding import Code
from envbuilder.support import decoding
from envbuilder.validation.checks import Check, Profile
from envbuilder.workspace import packaged_yaml

Base = Literal["cpu", "gpu", "told-gpu", "system-gpu", "numpy-1"]
"""The good environment that a control breaks.

``told-gpu`` is a GPU build whose loader needs a setting for one folder, ``system-gpu`` has the CUDA of the system,
``numpy-1`` is a CPU build made for NumPy 1.
"""

RECORD_TOOL = "record.py"
"""The file of defects/ that writes RECORD entries."""


class RunCommand(msgspec.Struct, frozen=True, tag=True):
    """A shell command, run as root in ``folder``, with or without the package index; ``tool`` is a mounted file."""

    command: str
    network: bool = False
    folder: str = ""
    tool: str = ""


class Copy(msgspec.Struct, frozen=True, tag=True):
    """A file of the build context, copied into the image."""

    source: str
    to: str


class Env(msgspec.Struct, frozen=True, tag=True):
    """A variable of the image."""

    name: str
    value: str


class Entrypoint(msgspec.Struct, frozen=True, tag=True):
    """The program that the image runs before the user's command."""

    program: str


class FromWheel(msgspec.Struct, frozen=True, tag=True):
    """One file of a wheel on the package index, copied into the image."""

    project: str
    version: str
    member: str
    to: str

    @property
    def source(self) -> str:
        """Its name in the build context."""
        return self.to.rpartition("/")[2]


ControlStep = RunCommand | Copy | Env | Entrypoint | FromWheel


class Control(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One deliberate defect.

    ``code`` is the only finding that may be an error; None is the good environment itself. If ``warned``, the code is
    a warning, there is no other warning, and no check fails. ``locked`` are versions that the defect replaces,
    ``added`` packages that it brings, ``swapped`` packages that another one replaces: the lock gets the same change, so
    that the change itself is not what is found. ``unlocked`` are system packages that the lock must not name, ``cudnn``
    the version for the lock of cuDNN ('' keeps it). ``profile`` is the smallest profile that finds the defect,
    ``extra`` are checks that misbehave.
    """

    name: str
    base: Base
    broken: str
    code: Code | None = None
    steps: tuple[ControlStep, ...] = ()
    locked: dict[str, str] = {}
    added: dict[str, str] = {}
    swapped: dict[str, str] = {}
    unlocked: tuple[str, ...] = ()
    cudnn: str = ""
    warned: bool = False
    profile: Profile = "quick"
    budgets: dict[str, float] = {}
    simulate: str = ""
    extra: tuple[Check, ...] = ()

    @property
    def changes_lock(self) -> bool:
        return bool(self.locked or self.added or self.swapped)

    @property
    def changes_system(self) -> bool:
        return bool(self.unlocked or self.cudnn)

    @property
    def sources(self) -> tuple[str, ...]:
        """The files of the build context that its steps use."""
        copied = [step.source for step in self.steps if isinstance(step, Copy)]
        tools = [step.tool for step in self.steps if isinstance(step, RunCommand) and step.tool]
        return tuple(dict.fromkeys([*copied, *tools]))


_PIP = (
    "python3 -m venv /run/tools && "
    "/run/tools/bin/pip --python /opt/venv/bin/python install --no-deps --no-compile --quiet {0}"
)


def _steps(row: dict[str, Any]) -> tuple[ControlStep, ...]:
    """Return the instructions for one step of the table. Raises ValueError for an unknown step."""
    match row:
        case {"run": command}:
            return (RunCommand(command, network=row.get("network", False)),)
        case {"pip": pin}:
            return (RunCommand(_PIP.format(pin), network=True),)
        case {"env": variables}:
            return tuple(Env(name, value) for name, value in variables.items())
        case {"entrypoint": program}:
            return (Entrypoint(program),)
        case {"copy": {"file": file, "to": to}}:
            return (Copy(file, to),)
        case {"wheel": {"project": pin, "member": member, "to": to}}:
            name, _, version = pin.partition("==")
            return (FromWheel(name, version, member, to),)
        case {"package": module}:
            return (_record("package", module),)
        case {"defect": module}:
            load = RunCommand(f"echo 'import {module}' > {{site}}/{module}.pth")
            return (Copy("envbuilder_defect.py", f"{{site}}/{module}.py"), load, _record("package", module))
        case {"record": files}:
            return (_record("update", *files, folder=row.get("folder", "{site}")),)
    raise ValueError(f"controls.yaml: unknown step: {row}")


def _record(*words: str, folder: str = "{site}") -> RunCommand:
    return RunCommand(f"python3 -IS /run/{RECORD_TOOL} {' '.join(words)}", folder=folder, tool=RECORD_TOOL)


def _control(row: dict[str, Any]) -> Control:
    row = dict(row)
    written = row.pop("steps", [])
    check = row.pop("check", None)
    packages = [step.get("package") or step.get("defect") for step in written if {"package", "defect"} & step.keys()]
    added = row.pop("added", {}) | {name.replace("_", "-"): "1.0" for name in packages}
    made = {"level": "static", "group": "static", "proves": "nothing: it misbehaves", "codes": [row.get("code")]}
    extra = [made | {"name": f"control-{row['name']}"} | check] if check else []
    control = decoding.converted(row | {"added": added, "extra": extra}, Control, f"controls.yaml: {row['name']}")
    return msgspec.structs.replace(control, steps=tuple(step for one in written for step in _steps(one)))


@cache
def controls() -> tuple[Control, ...]:
    """Return every control in the order of the table, the good environments included."""
    rows = packaged_yaml(resources.files("envbuilder.controls") / "controls.yaml", tuple[dict[str, Any], ...])
    return tuple(map(_control, rows))


def named(names: tuple[str, ...]) -> tuple[Control, ...]:
    """Return the controls of these names in the order of the table; all without names. Raises UsageError."""
    known = [control.name for control in controls()]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(f"unknown control: {', '.join(unknown)}", hint="one of: " + ", ".join(known))
    return tuple(control for control in controls() if not names or control.name in names)
