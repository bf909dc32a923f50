"""Progress goes to standard error, in lines where there is no terminal; tables are plain text."""

from __future__ import annotations

import pytest

from envbuilder.engine.port import Step
from envbuilder.support.console import Console, describe, table


def test_progress_is_on_standard_error_and_says_each_thing_once(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console()
    with console.live(), console.task("env") as task:
        for text in ("one", "one", "two"):
            task.update(text)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "env: one\nenv: two\n"


def test_columns_line_up() -> None:
    assert table(("a", "b"), (("long", "x"), ("s", ""))) == "a     b\nlong  x\ns"


def test_log_step_shows_its_last_line() -> None:
    assert describe(Step("log", "RUN x", "one\n two  \n")) == "two"
    assert describe(Step("started", "RUN   x")) == "RUN x"
