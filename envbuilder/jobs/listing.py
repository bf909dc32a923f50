"""Show the catalogue's tables to a person, or as one document."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import Facts, Row, TensorflowRelease
from envbuilder.console import table as aligned
from envbuilder.errors import UsageError


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
    """Return the row type of each table, in the order of `Facts`."""
    return {name: get_args(kind)[0] for name, kind in get_type_hints(Facts).items()}


TABLES: dict[str, Columns] = {name: _CHOSEN.get(name) or own_columns(kind) for name, kind in _kinds().items()}
"""The columns of each table, in the order in which they are shown."""


def list_catalog(catalog: Catalog, table: str | None) -> CatalogDocument:
    """Return the whole catalogue or one table. Raises UsageError for a table that there is not."""
    if table is None:
        return CatalogDocument(catalog=catalog)
    _known(table)
    return CatalogDocument(catalog=Catalog(**{table: getattr(catalog, table)}))


def as_text(document: CatalogDocument, table: str | None) -> str:
    """Align one table, or say what tables there are. Raises UsageError for a table that there is not."""
    if table is None:
        return "\n".join(f"{name:<14}{len(getattr(document.catalog, name)):>5} rows" for name in TABLES)
    columns = _known(table)
    rows = [[read(row) for _, read in columns] for row in getattr(document.catalog, table)]
    return aligned([title for title, _ in columns], rows)


def _known(table: str) -> Columns:
    if table not in TABLES:
        raise UsageError(f"the catalogue has no table {table!r}", hint="one of: " + ", ".join(TABLES))
    return TABLES[table]
