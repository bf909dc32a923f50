"""Real threads: what is read, which cause is named, what misleads, and whether the nearest would have fixed it."""

from __future__ import annotations

import accuracy
import msgspec
import pytest
import threads

from envbuilder.catalog.store import load
from envbuilder.finding import Code

THREADS = threads.load()


@pytest.fixture(scope="module")
def figures() -> accuracy.Totals:
    catalog = load()
    return accuracy.totals([accuracy.measure(thread, catalog) for thread in THREADS.values()])


def test_there_are_a_hundred_threads_of_many_places() -> None:
    assert len(THREADS) >= 100
    assert len({thread.url.rsplit("/", 2)[0] for thread in THREADS.values()}) >= 20
    assert all(thread.why.endswith(".") and thread.url.startswith("https://") for thread in THREADS.values())


def test_stated_fields_are_read_and_none_is_invented(figures: accuracy.Totals) -> None:
    assert figures.fields_right >= 97
    assert figures.fields_invented <= 1


def test_causes_are_named_and_answers_do_not_mislead(figures: accuracy.Totals) -> None:
    assert figures.cause_named >= 85
    assert figures.misleading <= 2


def test_the_nearest_would_have_mended_it(figures: accuracy.Totals) -> None:
    assert figures.nearest_wrong <= 3
    assert figures.nearest_mends >= 14


def test_the_measure_can_fail() -> None:
    thread = THREADS["tensorflow-38482"]
    turned = msgspec.structs.replace(thread, fields={"tensorflow": "9.9.9"}, cause=[Code.GLIBC_TOO_OLD], nearest=[])
    row = accuracy.measure(turned, load())
    assert row.wrong
    assert row.invented
    assert (row.cause, row.nearest) == ("wrong", "wrong") or row.claimed
