"""Tables fit a terminal and keep every id in one piece; a pipe gets each row on one line."""

from __future__ import annotations

import click
import pytest

from envbuilder.cli import output
from envbuilder.support import console

HEADERS = ("verdict", "size", "work", "image", "error")
IMAGE = "envbuilder/tensorflow:tf2.20.0-py311-cpu-bookworm"
ERROR = "the package index does not answer: connection refused by the proxy"
ROWS = [("PASSED", "1.06 GB", "built, validated", IMAGE, ""), ("ERROR", "-", "-", f"{IMAGE}-x", ERROR)]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_table_fits_the_terminal_and_loses_nothing(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "_terminal_width", lambda: width)
    text = console.table(HEADERS, ROWS)
    assert max(map(len, text.splitlines())) <= width
    assert {IMAGE, f"{IMAGE}-x", "PASSED", "1.06"} <= set(text.split())
    assert set(ERROR.split()) <= set(text.split())


def test_table_of_a_pipe_has_one_line_for_each_row() -> None:
    assert len(console.table(HEADERS, ROWS).splitlines()) == 3


@pytest.mark.parametrize("no_color", [False, True])
def test_verdicts_have_a_colour_on_a_terminal(no_color: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    printed: list[str] = []
    monkeypatch.setattr(click, "echo", printed.append)
    output._print("PASSED  x\nthe word FAILED in a text\n")
    assert ("\x1b[32m" in printed[0], "\x1b[31m" in printed[0]) == (not no_color, False)
