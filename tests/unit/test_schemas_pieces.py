"""A long document is written part by part and means the same."""

from __future__ import annotations

import json

import msgspec
import pytest

from envbuilder.catalog.store import load
from envbuilder.jobs.listing import list_catalog
from envbuilder.schemas import MANY, as_json, json_pieces


class Row(msgspec.Struct, frozen=True):
    """A row with what JSON has to escape."""

    name: str
    nothing: int | None = None


class Many(msgspec.Struct, frozen=True, kw_only=True):
    """A document with lists of any length."""

    schema: str = "envbuilder/many/v1"
    before: tuple[Row, ...] = ()
    rows: tuple[Row, ...]
    after: dict[str, int] = {}


@pytest.mark.parametrize("number", [0, 1, MANY, MANY + 1, 4 * MANY, 9001])
def test_parts_mean_what_the_whole_means(number: int) -> None:
    """Whatever the length, the parts are the document; a short one is written as ever, byte for byte."""
    names = ('a "b"\n', "\x1b[31m\x9b", "é\u2028", "::set-output")
    rows = tuple(Row(names[one % 4] + str(one)) for one in range(number))
    document = Many(before=rows[:3], rows=rows, after={"x": 1})
    text = "".join(json_pieces(document))
    assert json.loads(text) == json.loads(as_json(document))
    assert (text == as_json(document)) is (number <= MANY)
    assert not {"\x1b", "\x9b", "\u2028"} & set(text)
    if number > MANY:
        assert len(text.splitlines()) < number + 30


def test_the_catalogue_is_written_as_ever() -> None:
    """A document that exists is the same text as before, whole."""
    document = list_catalog(load(), "drivers")
    assert "".join(json_pieces(document)) == as_json(document)
