"""Keep the rows of a table that selectors ask for: a glob on what a row is called, or ``field=value``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from envbuilder.catalog.rows import Row
from envbuilder.errors import NothingSelectedError, UsageError

_CALLED = ("name", "package", "version", "branch", "first", "bound", "aliases", "smi_names")
"""The fields by which a row is called, where it has them."""

_FIELD = re.compile(r"([a-z_]+)=(?!=)(.*)")
"""``field=value``; a distribution with its version (``tensorflow-gpu==2.11.0``) is a name."""


def kept(table: str, rows: tuple[Row, ...], selectors: Sequence[str]) -> tuple[Row, ...]:
    """Keep the rows that some selector matches, in their order; no selector keeps all. Letters' case does not count.

    ``RTX 50*`` is a glob on what a row is called (words in front of it may be left out), ``compute_capability=9.0`` one
    on a field or on a part of a list.
    Raises UsageError for a field that the table's rows do not have, NothingSelectedError, with near misses, for a
    selector that matches no row.
    """
    if not selectors or not rows:
        return rows
    wanted: set[int] = set()
    for selector in selectors:
        matched = {place for place, row in enumerate(rows) if _matches(table, row, selector)}
        if not matched:
            raise NothingSelectedError(f"no row of {table} matches {selector!r}", hint=_hint(rows, selector))
        wanted |= matched
    return tuple(row for place, row in enumerate(rows) if place in wanted)


def _matches(table: str, row: Row, selector: str) -> bool:
    asked = _FIELD.fullmatch(selector)
    if asked is None:
        return any(_alike(text, selector) or _alike(text, f"* {selector}") for text in called(row))
    field, value = asked.groups()
    if field not in row.__struct_fields__:
        known = ", ".join(row.__struct_fields__)
        raise UsageError(f"selector {selector!r}: rows of {table} have no field {field!r}", hint=f"one of: {known}")
    return any(_alike(text, value) for text in _texts(row, field))


def _alike(text: str, pattern: str) -> bool:
    return fnmatchcase(text.lower(), pattern.lower())


def called(row: Row) -> Iterator[str]:
    """Give everything that a row is called; a release also by its distribution and version, as pip writes them."""
    for field in _CALLED:
        if field in row.__struct_fields__:
            yield from _texts(row, field)
    if {"package", "version"} <= set(row.__struct_fields__):
        yield "==".join(text for field in ("package", "version") for text in _texts(row, field))


def _texts(row: Row, field: str) -> Iterator[str]:
    value = getattr(row, field)
    match value:
        case None:
            yield ""
        case bool():
            yield "yes" if value else "no"
        case tuple():
            yield from map(str, value)
        case _:
            yield str(value)


def _hint(rows: tuple[Row, ...], selector: str) -> str:
    asked = _FIELD.fullmatch(selector)
    field, value = asked.groups() if asked else ("", selector)
    texts = (text for row in rows for text in (_texts(row, field) if field else called(row)))
    known = {text.lower(): text for text in texts if text}
    near = difflib.get_close_matches(value.lower(), known, n=3, cutoff=0.5)
    shown = [known[text] for text in near] or list(known.values())[:3]
    return "near misses: " + ", ".join(f"{field}={text}" if field else text for text in shown)
