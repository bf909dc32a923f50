"""`make shipped`: its table, and what it finds to do."""

from __future__ import annotations

import msgspec
import pytest
import shipped

from envbuilder.catalog.store import load
from envbuilder.choice import choose
from envbuilder.image import lockfile
from envbuilder.workspace import Workspace

LOCK = "numpy==2.1.3\n"
ROW = shipped.Row(
    environment="tf2.21.0-py311-cu12.5-cudnn9.3-bookworm",
    verdict="INCONCLUSIVE",
    level="cpu",
    size="5.26",
    findings="-",
    date="2026-11-21",
    lock=shipped.short(lockfile.digest(LOCK)),
    suite="db2f35bb87d73b0b",
)
NAME = ROW.environment


def changed(**fields: str):
    return msgspec.structs.replace(ROW, **fields)


def test_a_page_reads_back_as_it_was_written() -> None:
    """Rows come back by environment, in the matrix's order; what no longer ships has no line."""
    other = changed(environment="tf2.15.1-py39-cpu-bullseye", verdict="PASSED", findings="MISSING_LIBRARY PTX_JIT")
    gone = changed(environment="tf2.0.0-py37-cpu-buster")
    rows = {one.environment: one for one in (ROW, other, gone)}
    page = shipped.render(rows, (other.environment, NAME))
    assert shipped.parse(page) == {other.environment: other, NAME: ROW}
    assert list(shipped.parse(page)) == [other.environment, NAME]
    assert shipped.parse(shipped.HEAD) == {}


@pytest.mark.parametrize(
    ("rows", "due"),
    [
        ({}, True),
        ({NAME: ROW}, False),
        ({NAME: changed(suite="another", date="2025-01-01", size="9.99")}, False),
        ({NAME: changed(verdict="PASSED", level="multi-gpu")}, False),
        ({NAME: changed(lock="0123456789abcdef")}, True),
        ({NAME: changed(verdict="FAILED")}, True),
        ({NAME: changed(level="load")}, True),
    ],
)
def test_what_has_no_good_row_of_its_lock_is_due(rows: dict[str, shipped.Row], *, due: bool) -> None:
    """Another suite asks for nothing; another lock, no row, a failure, and less than level cpu do."""
    assert shipped.stale(rows, {NAME: LOCK}) == ((NAME,) if due else ())


def test_an_environment_without_a_lock_is_due() -> None:
    """No committed lock is no lock that a row could be of."""
    assert shipped.stale({NAME: ROW}, {NAME: ""}) == (NAME,)


def test_everything_that_ships_has_a_verdict_of_its_lock() -> None:
    """No shipped environment is FAILED or without a row of its present lock (mend: `make shipped`); CPU images pass."""
    choice = choose(shipped.MATRIX, (), Workspace(shipped.ROOT), load())
    rows = shipped.parse(shipped.PAGE.read_text())
    assert shipped.stale(rows, shipped.locks(choice, Workspace(shipped.ROOT))) == ()
    assert set(rows) == {one.id for one in choice.environments}
    assert all(rows[one.id].verdict == "PASSED" for one in choice.environments if one.flavor == "cpu")
