"""The documents of the negative controls as text, and the list of controls."""

from collections.abc import Sequence

import msgspec

from envbuilder.controls.control import Base, Control
from envbuilder.controls.run import ControlsDocument
from envbuilder.finding import Code
from envbuilder.support.tables import table


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


def listed(controls: Sequence[Control]) -> ControlListDocument:
    rows = (ControlListed(control=one.name, base=one.base, expected=one.code, broken=one.broken) for one in controls)
    return ControlListDocument(controls=tuple(rows))


def list_text(document: ControlListDocument) -> str:
    rows = [(one.control, one.base, one.expected or "no failures", one.broken) for one in document.controls]
    return table(("control", "environment", "must find", "defect"), rows)


def as_text(document: ControlsDocument) -> str:
    rows = [
        (
            row.control,
            row.expected or "no failures",
            ", ".join(row.found) or "no failures",
            ", ".join(row.red),
            row.verdict,
            f"{row.build_s + row.validate_s:.0f} s",
            row.wrong or "ok",
        )
        for row in document.rows
    ]
    return table(("control", "must find", "found", "failed checks", "verdict", "time", ""), rows)
