"""List the catalogue's tables, or rows of one that selectors match."""

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, get_args, get_type_hints

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import Row, Tables
from envbuilder.errors import NothingSelectedError, UsageError
from envbuilder.support.tables import table as aligned
from envbuilder.workspace import packaged_yaml


class CatalogDocument(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = "envbuilder/catalog/v1"
    catalog: Catalog


Read = Callable[[Any], str]
Columns = tuple[tuple[str, Read], ...]
"""Titles, and functions that write a row's value."""


def _field(name: str) -> Read:
    """Return a function that writes a field: a list as words, a truth value as yes or no."""
    return lambda row: " ".join(_texts(row, name)) or "-"


_COMPUTED: dict[str, Read] = {
    "build": lambda row: "gpu" if row.gpu else "cpu" if row.installable else "not installable",
    "range": lambda row: f"{row.first_capability} to {row.last_capability}",
    "count": lambda row: str(len(row.versions)),
    "newest": lambda row: row.versions[-1],
    "first name": lambda row: row.smi_names[0] if row.smi_names else "-",
    "releases": lambda row: f"{row.first} to {row.last}",
    "works": lambda row: {True: "yes", False: "no", None: "undecided"}[row.works],
}
"""Values that are not simply a field."""

_CHOSEN = packaged_yaml("cli/catalog_columns.yaml", dict[str, str])
"""Columns, as ``title: value``, of tables with too many fields for a line, or with better words."""


def _columns(text: str) -> Columns:
    pairs = [(title, value or title) for title, _, value in (part.partition(": ") for part in text.split(", "))]
    return tuple((title.replace("_", " "), _COMPUTED.get(value) or _field(value)) for title, value in pairs)


def own_columns(kind: type[Row]) -> Columns:
    names = [name for name in kind.__struct_fields__ if name not in Row.__struct_fields__]
    return tuple((name.replace("_", " "), _field(name)) for name in names)


TABLES: dict[str, Columns] = {
    name: _columns(_CHOSEN[name]) if name in _CHOSEN else own_columns(get_args(kind)[0])
    for name, kind in get_type_hints(Tables).items()
}
"""The columns of each table, in order."""


def list_catalog(catalog: Catalog, table: str | None, selectors: Sequence[str] = ()) -> CatalogDocument:
    """Return the complete catalogue, one table, or the rows of it that selectors match.

    A selector is a glob on a row's names (``RTX 50*``; leading words may be omitted) or on a field
    (``compute_capability=9.0``); case does not matter. Raises UsageError for an unknown table or field and for
    selectors without a table, NothingSelectedError for a selector that matches no row.
    """
    if table is None:
        if selectors:
            raise UsageError("a selector needs a table", hint="such as `envbuilder catalog list gpus -s 'RTX 50*'`")
        return CatalogDocument(catalog=catalog)
    _known(table)
    selected: dict[str, Any] = {table: _selected(table, getattr(catalog, table), selectors)}
    return CatalogDocument(catalog=Catalog(**selected))


def as_text(document: CatalogDocument, table: str | None, *, sources: bool = False) -> str:
    """Write one table, or the names of all; ``sources`` adds the sources of each row below it.

    Raises UsageError for an unknown table.
    """
    if table is None:
        return "\n".join(f"{name:<14}{len(getattr(document.catalog, name)):>5} rows" for name in TABLES)
    columns = _known(table)
    rows = getattr(document.catalog, table)
    cells = [[read(row) for _, read in columns] for row in rows]
    return aligned([title for title, _ in columns], cells, [*map(_origin, rows)] if sources else ())


def _origin(row: Row) -> Iterator[str]:
    for source in row.source:
        yield f"    source: {source}"
    yield f"    verified: {row.verified}"
    if row.note:
        yield f"    note: {row.note}"


def _known(table: str) -> Columns:
    if table not in TABLES:
        raise UsageError(f"the catalogue has no table {table!r}", hint="one of: " + ", ".join(TABLES))
    return TABLES[table]


_NAMES = ("name", "package", "version", "branch", "first", "bound", "aliases", "smi_names")
"""Fields with names of a row."""

_FIELD = re.compile(r"([a-z_]+)=(?!=)(.*)")
"""``field=value``; ``tensorflow-gpu==2.11.0`` is a name."""


def _selected(table: str, rows: tuple[Row, ...], selectors: Sequence[str]) -> tuple[Row, ...]:
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
    matched = _FIELD.fullmatch(selector)
    if matched is None:
        return any(_alike(text, selector) or _alike(text, f"* {selector}") for text in names_of(row))
    field, value = matched.groups()
    if field not in row.__struct_fields__:
        known = ", ".join(row.__struct_fields__)
        raise UsageError(f"selector {selector!r}: rows of {table} have no field {field!r}", hint=f"one of: {known}")
    return any(_alike(text, value) for text in _texts(row, field))


def _alike(text: str, pattern: str) -> bool:
    return fnmatchcase(text.lower(), pattern.lower())


def names_of(row: Row) -> Iterator[str]:
    """Yield all names of a row; for a release also ``distribution==version``."""
    for field in _NAMES:
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
    matched = _FIELD.fullmatch(selector)
    field, value = matched.groups() if matched else ("", selector)
    texts = (text for row in rows for text in (_texts(row, field) if field else names_of(row)))
    known = {text.lower(): text for text in texts if text}
    near = difflib.get_close_matches(value.lower(), known, n=3, cutoff=0.5)
    shown = [known[text] for text in near] or list(known.values())[:3]
    return "near misses: " + ", ".join(f"{field}={text}" if field else text for text in shown)
