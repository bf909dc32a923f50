"""Show the catalogue's tables to a person, or as one document."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args, get_type_hints

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import Row, Tables, TensorflowRelease
from envbuilder.errors import UsageError
from envbuilder.jobs import listing_filter
from envbuilder.support.console import table as aligned


class CatalogDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The catalogue, whole or one table of it."""

    schema: str = "envbuilder/catalog/v1"
    catalog: Catalog


Columns = tuple[tuple[str, Callable[[Any], str]], ...]


def _words(name: str) -> Callable[[Any], str]:
    return lambda row: " ".join(map(str, getattr(row, name)))


def _text(name: str) -> Callable[[Any], str]:
    return lambda row: str(getattr(row, name) or "-")


def _cell(name: str) -> Callable[[Any], str]:
    """Write whatever a field holds: the parts of a list beside each other, a truth value as a word."""

    def read(row: Any) -> str:  # noqa: ANN401 - a row of any table
        value = getattr(row, name)
        if isinstance(value, bool):
            return "yes" if value else "no"
        return (" ".join(map(str, value)) if isinstance(value, tuple) else str(value or "")) or "-"

    return read


def _kind(row: TensorflowRelease) -> str:
    return "gpu" if row.gpu else "cpu" if row.installable else "not installable"


_CHOSEN: dict[str, Columns] = {
    "tensorflow": (
        ("package", _text("package")),
        ("version", _text("version")),
        ("build", _kind),
        ("python", _words("pythons")),
        ("cuda", _text("cuda")),
        ("cudnn", _text("cudnn")),
        ("cubins", _words("cubins")),
        ("ptx", _words("ptx")),
        ("finds cuda in", _text("finds_cuda")),
        ("reviewed", lambda row: "yes" if row.reviewed else "no"),
    ),
    "cuda": (
        ("version", _text("version")),
        ("own driver", _text("driver")),
        ("minimum driver", _text("minimum_driver")),
        ("capabilities", lambda row: f"{row.first_capability} to {row.last_capability}"),
        ("forward compatibility on", _words("forward_compat")),
    ),
    "cudnn": (
        ("version", _text("version")),
        ("capabilities", lambda row: f"{row.first_capability} to {row.last_capability}"),
        ("cuda", _words("cuda")),
    ),
    "cudnn_wheels": (
        ("package", _text("package")),
        ("versions", lambda row: str(len(row.versions))),
        ("newest", lambda row: row.versions[-1]),
    ),
    "drivers": (
        ("branch", _text("branch")),
        ("first", _text("first")),
        ("cuda", _text("cuda")),
        ("capabilities", lambda row: f"{row.first_capability} to {row.last_capability}"),
        ("kind", _text("kind")),
        ("end of life", _text("end_of_life")),
        ("note", _text("note")),
    ),
    "gpus": (
        ("name", _text("name")),
        ("capability", _text("compute_capability")),
        ("architecture", _text("architecture")),
        ("data centre", lambda row: "yes" if row.data_center else "no"),
        ("nvidia-smi", lambda row: row.smi_names[0] if row.smi_names else "-"),
    ),
    "systems": (
        ("name", _text("name")),
        ("python", _text("python")),
        ("glibc", _text("glibc")),
        ("image", _text("image")),
        ("suite", _text("suite")),
    ),
    "images": (
        ("name", _text("name")),
        ("cuda", _text("cuda")),
        ("cudnn", _text("cudnn")),
        ("python", _text("python")),
        ("glibc", _text("glibc")),
    ),
    "reports": (
        ("releases", lambda row: f"{row.first} to {row.last}"),
        ("capabilities", _words("capabilities")),
        ("works", lambda row: {True: "yes", False: "no", None: "undecided"}[row.works]),
        ("symptom", _text("symptom")),
    ),
}
"""The columns of tables that hold more than a line can show, or are better read in other words."""


def own_columns(kind: type[Row]) -> Columns:
    """Make a column of each field that a kind of fact has beyond those of every row."""
    names = [name for name in kind.__struct_fields__ if name not in Row.__struct_fields__]
    return tuple((name.replace("_", " "), _cell(name)) for name in names)


def _kinds() -> dict[str, type[Row]]:
    """Return the row type of each table, in the order of `Tables`."""
    return {name: get_args(kind)[0] for name, kind in get_type_hints(Tables).items()}


TABLES: dict[str, Columns] = {name: _CHOSEN.get(name) or own_columns(kind) for name, kind in _kinds().items()}
"""The columns of each table, in the order in which they are shown."""


def list_catalog(catalog: Catalog, table: str | None, selectors: Sequence[str] = ()) -> CatalogDocument:
    """Return the whole catalogue or one table, or of that the rows that selectors ask for (see `listing_filter`).

    Raises UsageError for a table that there is not, and for selectors without a table.
    """
    if table is None:
        if selectors:
            raise UsageError("a selector needs a table", hint="such as `envbuilder catalog list gpus -s 'RTX 50*'`")
        return CatalogDocument(catalog=catalog)
    _known(table)
    rows = listing_filter.kept(table, getattr(catalog, table), selectors)
    kept: dict[str, Any] = {table: rows}
    return CatalogDocument(catalog=Catalog(**kept))


def as_text(document: CatalogDocument, table: str | None, *, sources: bool = False) -> str:
    """Align one table, or say what tables there are; ``sources`` adds below each row where it comes from.

    Raises UsageError for a table that there is not.
    """
    if table is None:
        return "\n".join(f"{name:<14}{len(getattr(document.catalog, name)):>5} rows" for name in TABLES)
    columns = _known(table)
    rows = getattr(document.catalog, table)
    text = aligned([title for title, _ in columns], [[read(row) for _, read in columns] for row in rows])
    if not sources:
        return text
    head, *lines = text.splitlines()
    below = (line for row, first in zip(rows, lines, strict=True) for line in (first, *_origin(row)))
    return "\n".join([head, *below])


def _origin(row: Row) -> Iterator[str]:
    """Say where a row was read, how it was checked, and what else is to be known of it."""
    for source in row.source:
        yield f"    source: {source}"
    yield f"    verified: {row.verified}"
    if row.note:
        yield f"    note: {row.note}"


def _known(table: str) -> Columns:
    if table not in TABLES:
        raise UsageError(f"the catalogue has no table {table!r}", hint="one of: " + ", ".join(TABLES))
    return TABLES[table]
