"""A table of the catalogue is filtered by what people know of a row, and says where each row comes from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import examples

from envbuilder.catalog.store import load
from envbuilder.errors import NothingSelectedError, UsageError
from envbuilder.jobs.listing import TABLES, as_text, list_catalog, names_of

CATALOG = load()


@pytest.mark.parametrize(
    ("table", "selectors", "names"),
    [
        (
            "gpus",
            ("RTX 5090*",),
            ["GeForce RTX 5090", "GeForce RTX 5090 Laptop GPU", "GeForce RTX 5090 D", "GeForce RTX 5090 D v2"],
        ),
        ("gpus", ("compute_capability=10.0",), ["B200", "B100", "GB200"]),
        ("gpus", ("DGX SPARK", "a30"), ["GB10", "A30"]),
        ("gpus", ("brand=jetson", "architecture=no such thing*"), None),
        ("drivers", ("537",), None),
        ("drivers", ("windows=537",), ["535"]),
        ("drivers", ("535",), ["535"]),
        ("cuda", ("13.*",), ["13.0", "13.1", "13.2", "13.3", "13.4", "13.5"]),
        ("cuda", ("driver=",), ["13.5"]),
        ("tensorflow", ("reviewed=no",), ["2.22.0rc0", "2.22.0rc0"]),
        ("tensorflow", ("tensorflow-gpu==2.11*",), ["2.11.0"]),
        ("tensorflow", ("gpu=yes", "2.99*"), None),
    ],
)
def test_rows_are_selected_by_name_and_by_field(
    table: str, selectors: tuple[str, ...], names: list[str] | None
) -> None:
    """A glob means what a row is called, field=value any field; a selector that matches nothing is an error."""
    if names is None:
        with pytest.raises(NothingSelectedError, match="no row of"):
            list_catalog(CATALOG, table, selectors)
        return
    rows = getattr(list_catalog(CATALOG, table, selectors).catalog, table)
    assert sorted(next(iter(names_of(row))) if table == "gpus" else _own(row) for row in rows) == sorted(names)


def _own(row: object) -> str:
    return str(getattr(row, "version", None) or getattr(row, "branch", ""))


@pytest.mark.parametrize("table", TABLES)
def test_every_table_can_be_shown_with_its_sources(table: str) -> None:
    """Below each row stand its sources and how it was checked, and nothing else is lost."""
    document = list_catalog(CATALOG, table)
    plain, whole = as_text(document, table), as_text(document, table, sources=True)
    rows = getattr(CATALOG, table)
    assert [line for line in whole.splitlines() if not line.startswith("    ")] == plain.splitlines()
    assert whole.count("\n    source: ") == sum(len(row.source) for row in rows)
    assert whole.count("\n    verified: ") == len(rows)


@examples(25)
@given(data=st.data())
def test_a_row_is_found_by_each_of_its_names(data: st.DataObject) -> None:
    """Whatever a GPU is called leads to its row, whatever the case."""
    row = data.draw(st.sampled_from(CATALOG.gpus))
    name = data.draw(st.sampled_from(list(names_of(row))))
    assert row in list_catalog(CATALOG, "gpus", (name.upper().replace("[", "[[]"),)).catalog.gpus


def test_what_cannot_be_asked() -> None:
    """A field that the rows do not have, and a selector without a table, are usage errors that name what there is."""
    with pytest.raises(UsageError, match="no field 'colour'"):
        list_catalog(CATALOG, "gpus", ("colour=green",))
    with pytest.raises(UsageError, match="needs a table"):
        list_catalog(CATALOG, None, ("A100",))
