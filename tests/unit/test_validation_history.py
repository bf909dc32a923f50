"""The history of verdicts: nothing is lost, nothing is changed, several processes may write."""

from __future__ import annotations

import multiprocessing
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from factories import digest, failed_verdict, gpu_verdict, inconclusive_verdict, verdict
from hypothesis import given
from hypothesis import strategies as st

from envbuilder.errors import InfrastructureError, UsageError
from envbuilder.validation.verdict_store import History, moment

ALL = (verdict(), failed_verdict(finished="2026-11-20T11:00:00+02:00"), gpu_verdict(), inconclusive_verdict())


def test_what_is_added_comes_back_whole_and_in_order(tmp_path) -> None:
    """Every verdict comes back as it was, by the time at which it ended, whatever zone wrote it."""
    history = History(tmp_path / "sub" / "history.sqlite3")
    assert history.since() == ()
    assert history.add(ALL) == len(ALL)
    found = history.since()
    assert all(one in found for one in ALL)
    assert len(found) == len(ALL)
    assert found[0].finished == "2026-11-20T11:00:00+02:00"


def test_adding_again_changes_nothing(tmp_path) -> None:
    """A verdict is kept once, however often it is handed in."""
    history = History(tmp_path / "h")
    assert [history.add(ALL), history.add(ALL), history.add(())] == [len(ALL), 0, 0]
    assert len(history.since()) == len(ALL)


def test_since_is_a_bound_that_counts_itself(tmp_path) -> None:
    """A verdict that ended at the very time asked for is in the answer."""
    history = History(tmp_path / "h")
    history.add([verdict()])
    at = datetime(2026, 11, 20, 10, 3, tzinfo=UTC)
    assert len(history.since(at)) == 1
    assert history.since(at + timedelta(seconds=1)) == ()


@pytest.mark.parametrize("statement", ["DELETE FROM verdicts", "UPDATE verdicts SET verdict = 'PASSED'"])
def test_the_file_itself_refuses_changes(tmp_path, statement) -> None:
    """Not even another program can delete or change a row without first dropping the triggers."""
    path = tmp_path / "h"
    History(path).add([failed_verdict()])
    with sqlite3.connect(path) as connection, pytest.raises(sqlite3.Error, match="append-only"):
        connection.execute(statement)
    assert History(path).since() == (failed_verdict(),)


def _write(path: Path, writer: int) -> None:
    for number in range(20):
        History(path).add([verdict(suite=digest(f"{writer}/{number}"))])


def test_several_processes_write_at_once(tmp_path) -> None:
    """Four processes that begin on a file that is not there yet lose nothing."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_write, args=(tmp_path / "h", writer)) for writer in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    assert len(History(tmp_path / "h").since()) == 80


def test_a_foreign_or_newer_file_is_refused(tmp_path) -> None:
    """What is no history of ours is left alone and named."""
    (tmp_path / "text").write_text("not a database, but long enough to look at" * 10)
    with pytest.raises(InfrastructureError, match="text"):
        History(tmp_path / "text").since()
    with sqlite3.connect(tmp_path / "newer") as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(UsageError, match="newer"):
        History(tmp_path / "newer").since()


def test_a_verdict_of_another_version_is_counted_not_shown(tmp_path) -> None:
    """A document that this version cannot read breaks nothing, stays in the file, and is counted."""
    history = History(tmp_path / "h")
    history.add([verdict()])
    with sqlite3.connect(history.path) as connection:
        row = (
            "key",
            "env",
            "",
            "MAYBE",
            "cpu",
            0,
            "2027-01-01T00:00:00.000000Z",
            b'{"schema": "envbuilder/verdict/v9"}',
        )
        connection.execute("INSERT INTO verdicts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    assert history.since() == (verdict(),)
    assert history.count() == 2
    assert history.count(datetime(2026, 12, 1, tzinfo=UTC)) == 1
    assert History(tmp_path / "none").count() == 0


@given(st.text(max_size=20))
def test_any_text_is_a_time_or_a_usage_error(text) -> None:
    """`--since` never fails in another way, and never gives a time without a zone."""
    try:
        assert moment(text, datetime(2026, 11, 20, tzinfo=UTC)).tzinfo is not None
    except UsageError:
        return


def test_since_reads_dates_and_ages() -> None:
    """A date is its midnight in UTC, an age is counted back from now."""
    now = datetime(2026, 11, 20, 12, tzinfo=UTC)
    assert moment("2026-11-01", now) == datetime(2026, 11, 1, tzinfo=UTC)
    assert moment("30d", now) == now - timedelta(days=30)
