"""The negative controls: what a control is, and the table (`controls.yaml`)."""

from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

import msgspec

from envbuilder.errors import UsageError
from envbuilder.finding import Code
from envbuilder.image.host_settings import WITH_HOST
from envbuilder.support import decoding
from envbuilder.support.tables import table
from envbuilder.validation.suite_plan import Check, Profile
from envbuilder.workspace import packaged_yaml

Base = Literal["cpu", "gpu", "told-gpu", "system-gpu", "numpy-1"]
"""The good environment that a control breaks.

``told-gpu`` is a GPU build whose loader needs a setting for one folder, ``system-gpu`` has the CUDA of the system,
``numpy-1`` is a CPU build made for NumPy 1.
"""

RECORD_TOOL = "record.py"
"""The file of defects/ that writes RECORD entries."""


class FromWheel(msgspec.Struct, frozen=True):
    project: str
    version: str
    member: str


class ControlStep(msgspec.Struct, frozen=True):
    """An instruction of a Dockerfile; ``file`` is what it needs in the build context, from defects/ or from a wheel."""

    instruction: str
    file: str = ""
    wheel: FromWheel | None = None


class Control(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One deliberate defect.

    ``code`` is the only finding that may be an error; None is the good environment itself. If ``warned``, the code is
    a warning, there is no other warning, and no check fails. ``lock`` are pins (``name==version``) that the locks get,
    and ``unlock`` packages that they lose, so that the change itself is not what is found. ``checks`` must give the
    code. ``profile`` is the smallest profile that finds the defect, ``extra`` are checks that misbehave.
    """

    name: str
    base: Base
    broken: str
    code: Code | None = None
    checks: tuple[str, ...] = ()
    steps: tuple[ControlStep, ...] = ()
    lock: tuple[str, ...] = ()
    unlock: tuple[str, ...] = ()
    warned: bool = False
    profile: Profile = "quick"
    budgets: dict[str, float] = {}
    simulate: str = ""
    extra: tuple[Check, ...] = ()


_PIP = (
    "python3 -m venv /run/tools && "
    "/run/tools/bin/pip --python /opt/venv/bin/python install --no-deps --no-compile --quiet {0}"
)


def steps(row: str | dict[str, Any]) -> tuple[ControlStep, ...]:
    """Return the instructions for one step of the table. Raises ValueError for an unknown step."""
    match row:
        case str():
            return (instruction(row),)
        case {"network": command}:
            return (instruction(f"RUN {WITH_HOST}\n    {command}"),)
        case {"pip": pin}:
            return steps({"network": _PIP.format(pin)})
        case {"wheel": {"project": pin, "member": member, "to": to}}:
            name, _, version = pin.partition("==")
            return (of_wheel(FromWheel(name, version, member), to),)
        case {"package": module}:
            return (_record("{site}", "package", module),)
        case {"defect": module}:
            copy = instruction(f"COPY envbuilder_defect.py {{site}}/{module}.py")
            load = instruction(f"RUN echo 'import {module}' > {{site}}/{module}.pth")
            return (copy, load, _record("{site}", "package", module))
        case {"record": files}:
            return (_record(row.get("folder", "{site}"), "update", *files),)
    raise ValueError(f"controls.yaml: unknown step: {row}")


def instruction(text: str) -> ControlStep:
    return ControlStep(text, text.split()[1] if text.startswith("COPY ") else "")


def of_wheel(wheel: FromWheel, to: str) -> ControlStep:
    name = to.rpartition("/")[2]
    return ControlStep(f"COPY {name} {to}", name, wheel)


def _record(folder: str, *words: str) -> ControlStep:
    mount = f"--mount=type=bind,source={RECORD_TOOL},target=/run/{RECORD_TOOL}"
    return ControlStep(f"RUN {mount} cd {folder} && python3 -IS /run/{RECORD_TOOL} {' '.join(words)}", RECORD_TOOL)


def _control(row: dict[str, Any]) -> Control:
    row = dict(row)
    written = row.pop("steps", [])
    check = row.pop("check", None)
    modules = [step.get("package") or step.get("defect") for step in written if isinstance(step, dict)]
    pins = [f"{module.replace('_', '-')}==1.0" for module in modules if module]
    made = {"level": "static", "group": "static", "proves": "nothing: it misbehaves", "codes": [row.get("code")]}
    extra = [made | {"name": f"control-{row['name']}"} | check] if check else []
    row |= {"lock": [*row.get("lock", []), *pins], "extra": extra}
    control = decoding.converted(row, Control, f"controls.yaml: {row['name']}")
    return msgspec.structs.replace(control, steps=tuple(step for one in written for step in steps(one)))


@cache
def controls() -> tuple[Control, ...]:
    """Return every control in the order of the table, the good environments included."""
    rows = packaged_yaml("controls/controls.yaml", tuple[dict[str, Any], ...])
    return tuple(map(_control, rows))


def named(names: tuple[str, ...]) -> tuple[Control, ...]:
    """Return the controls of these names in the order of the table; all without names. Raises UsageError."""
    known = [control.name for control in controls()]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(f"unknown control: {', '.join(unknown)}", hint="one of: " + ", ".join(known))
    return tuple(control for control in controls() if not names or control.name in names)


class ControlListed(msgspec.Struct, frozen=True, kw_only=True):
    """One control: the good environment, the defect, and the one finding that it must lead to."""

    control: str
    base: Base
    expected: Code | None
    broken: str


class ControlListDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``envbuilder controls --list``."""

    schema: str = "envbuilder/control-list/v1"
    controls: tuple[ControlListed, ...]


def listed_of(controls: Sequence[Control]) -> ControlListDocument:
    rows = (ControlListed(control=one.name, base=one.base, expected=one.code, broken=one.broken) for one in controls)
    return ControlListDocument(controls=tuple(rows))


def list_text(document: ControlListDocument) -> str:
    rows = [(one.control, one.base, one.expected or "no failures", one.broken) for one in document.controls]
    return table(("control", "environment", "must find", "defect"), rows)
