"""Rows are put into files that people wrote: what was there stays, and no row stands twice."""

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from envbuilder.catalog import store
from envbuilder.refresh.rows_file import as_yaml, put

CATALOG = store.load()
TABLES = {"cuda": "cuda.yaml", "cudnn": "cudnn.yaml", "cudnn_wheels": "cudnn.yaml", "tensorflow": "tensorflow.yaml"}


@pytest.mark.parametrize("table", TABLES)
def test_row_takes_the_place_of_the_one_that_it_renews(table: str) -> None:
    text = store.path_of(TABLES[table]).read_text(encoding="utf-8")
    before = store.parse(((TABLES[table], text.encode()),))
    rows = getattr(before, table)
    renewed = msgspec.structs.replace(rows[1], verified="2030-01-01 by a test", note="renewed")
    changed = put(text, table, renewed)
    after = store.parse(((TABLES[table], changed.encode()),))
    assert getattr(after, table) == (rows[0], renewed, *rows[2:])
    for name in before.__struct_fields__:
        assert name == table or getattr(after, name) == getattr(before, name)
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        line for line in changed.splitlines() if line.startswith("#")
    ]


@pytest.mark.parametrize("table", TABLES)
def test_new_row_has_the_place_of_its_version_and_the_style_of_its_table(table: str) -> None:
    text = store.path_of(TABLES[table]).read_text(encoding="utf-8")
    rows = getattr(store.parse(((TABLES[table], text.encode()),)), table)
    name = "package" if table == "cudnn_wheels" else "version"
    new = msgspec.structs.replace(rows[-1], **{name: "99.9"})
    after = store.parse(((TABLES[table], put(text, table, new).encode()),))
    assert getattr(after, table) == (*rows, new)
    assert put(text, table, rows[1]) == put(text, table, rows[-1]) == text
    if name == "version":
        assert put(text.replace(as_yaml(rows[-2:-1]), ""), table, rows[-2]) == text
    if table == "cudnn_wheels":
        assert "\n# The first releases that wheels without an upper bound cannot load.\npackage_releases:" in put(
            text, table, new
        )


def test_file_that_is_not_there_is_begun() -> None:
    row = CATALOG.tensorflow[0]
    assert store.parse((("new.yaml", put("", "tensorflow", row).encode()),)).tensorflow == (row,)


@given(st.text() | st.sampled_from(["no", "a: b", "a:", "a ", "it's", "1.0", "[a", "a #b", "-", "null", "a,b"]))
def test_every_text_is_read_as_it_was(text: str) -> None:
    row = msgspec.structs.replace(CATALOG.tensorflow[0], note=text, requires=(text, text))
    assert yaml.safe_load(as_yaml([row]))[0].get("note", "") == text
    assert yaml.safe_load(as_yaml([row]))[0]["requires"] == [text, text]
