"""The table of line recognisers (recognisers.yaml): one expression each; named groups are fields or conversions."""

from __future__ import annotations

from functools import cache
from importlib import resources

import msgspec

from envbuilder.reproduce.grammar import expression
from envbuilder.reproduce.report.reported import Trust
from envbuilder.workspace import packaged_yaml


class Recogniser(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of recognisers.yaml; the file explains the fields."""

    name: str
    trust: Trust
    pattern: str
    needles: tuple[str, ...] = ()
    near: str = ""
    says: dict[str, str] = {}
    unless: tuple[str, ...] = ()
    apart: str = ""
    below: int = 0
    any_case: bool = False


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    skipped: dict[str, tuple[str, ...]]
    rows: tuple[Recogniser, ...]


TAG = "tag of a wheel"
"""The recogniser for a wheel's Python version; the running version outranks it."""


@cache
def table() -> tuple[Recogniser, ...]:
    """Read the rows, with the words of `skipped` in place of its names."""
    file = packaged_yaml(resources.files("envbuilder.reproduce.report") / "recognisers.yaml", _File)
    return tuple(
        msgspec.structs.replace(
            row,
            pattern=expression(row.pattern),
            unless=tuple(word for name in row.unless for word in file.skipped.get(name, (name,))),
        )
        for row in file.rows
    )
