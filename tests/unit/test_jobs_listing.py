"""Each table of the catalogue can be shown with its sources, and a row is found by its names (see golden/catalog)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import examples

from envbuilder.catalog.store import load
from envbuilder.jobs.listing import TABLES, as_text, list_catalog, names_of

CATALOG = load()


@pytest.mark.parametrize("table", TABLES)
def test_every_table_can_be_shown_with_its_sources(table: str) -> None:
    document = list_catalog(CATALOG, table)
    plain, whole = as_text(document, table), as_text(document, table, sources=True)
    rows = getattr(CATALOG, table)
    assert [line for line in whole.splitlines() if not line.startswith("    ")] == plain.splitlines()
    assert whole.count("\n    source: ") == sum(len(row.source) for row in rows)
    assert whole.count("\n    verified: ") == len(rows)


@examples(25)
@given(data=st.data())
def test_row_is_found_by_each_of_its_names(data: st.DataObject) -> None:
    row = data.draw(st.sampled_from(CATALOG.gpus))
    name = data.draw(st.sampled_from(list(names_of(row))))
    assert row in list_catalog(CATALOG, "gpus", (name.upper().replace("[", "[[]"),)).catalog.gpus
