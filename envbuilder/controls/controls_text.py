"""The list of the negative controls as a document, and both of their documents written for people."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from envbuilder.controls.control import Base, Control
from envbuilder.controls.control_run import ControlsDocument
from envbuilder.finding import Code
from envbuilder.support.console import table


class ControlListed(msgspec.Struct, frozen=True, kw_only=True):
    """One control: the good environment that it breaks, how, and the one finding that this must lead to."""

    control: str
    base: Base
    expected: Code | None
    broken: str


class ControlListDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``envbuilder controls --list``."""

    schema: str = "envbuilder/control-list/v1"
    controls: tuple[ControlListed, ...]


def listed(controls: Sequence[Control]) -> ControlListDocument:
    """List controls without running any."""
    rows = (ControlListed(control=one.name, base=one.base, expected=one.code, broken=one.broken) for one in controls)
    return ControlListDocument(controls=tuple(rows))


def list_text(document: ControlListDocument) -> str:
    """Write the list: control, what it breaks, what must be found, how it is broken."""
    rows = [(one.control, one.base, one.expected or "nothing red", one.broken) for one in document.controls]
    return table(("control", "of", "must find", "broken"), rows)


def as_text(document: ControlsDocument) -> str:
    """Write the table that ends a run of the controls."""
    rows = [
        (
            row.control,
            row.expected or "nothing red",
            ", ".join(row.found) or "nothing red",
            row.verdict,
            f"{row.build_s + row.validate_s:.0f} s",
            row.wrong or "as it must",
        )
        for row in document.rows
    ]
    return table(("control", "must find", "found", "verdict", "time", ""), rows)
