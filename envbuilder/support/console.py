"""Progress on standard error, and tables of results as plain text."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

from envbuilder.support import terminal_text

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_WIDTH = 100
_QUIET_S = 30.0
"""Without a terminal, a running task is printed again after this many seconds."""


class Task(Protocol):
    """One line of progress."""

    def update(self, text: str) -> None:
        """Replace the text of the task."""


class BuildEvent(Protocol):
    """An event of a build: a step that starts, or a line of its output."""

    @property
    def kind(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def text(self) -> str: ...


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Align rows under headers with two spaces between columns; the last column is not padded."""
    every = [list(headers), *[[cell and terminal_text.line(cell) for cell in row] for row in rows]]
    widths = [max(len(row[index]) for row in every) for index in range(len(headers))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in every)
    return "\n".join(lines)


def describe(step: BuildEvent) -> str:
    text = step.text.strip().splitlines()[-1] if step.kind == "log" and step.text.strip() else step.name
    return terminal_text.line(text)[:_WIDTH]


def warn(text: str) -> None:
    _print(f"warning: {text}")


def _print(text: str) -> None:
    # Standard error may be closed, or on a full disk; the answer is on standard output.
    with suppress(OSError, ValueError):
        if sys.stderr is not None:
            print(terminal_text.text(text), file=sys.stderr, flush=True)  # noqa: T201 - this is the console


class Console:
    """Progress on standard error: one live line per task on a terminal, one line per change elsewhere."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: Progress | None = None

    def say(self, text: str) -> None:
        """Print one line of progress."""
        with self._lock:
            if self._live is not None:
                self._live.console.print(terminal_text.text(text), highlight=False, markup=False)
            else:
                _print(text)

    @contextmanager
    def live(self) -> Iterator[None]:
        """Show live lines during the block, if standard error is a terminal."""
        if sys.stderr is None or not sys.stderr.isatty():
            yield
            return
        from rich.console import Console as RichConsole  # noqa: PLC0415 - only a terminal pays for rich
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

        columns = (
            SpinnerColumn(),
            TextColumn("{task.fields[name]}"),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
        )
        with Progress(*columns, console=RichConsole(stderr=True), transient=True) as progress:
            self._live = progress
            try:
                yield
            finally:
                self._live = None

    @contextmanager
    def task(self, name: str) -> Iterator[Task]:
        """Show a task during the block."""
        if self._live is None:
            yield _Lines(name, self.say)
            return
        number = self._live.add_task("", name=name, total=None)
        try:
            yield _Live(self._live, number)
        finally:
            self._live.remove_task(number)


def steps(task: Task) -> Callable[[BuildEvent], None]:
    """Return a function that shows a build's steps as the text of a task, without their output."""

    def show(step: BuildEvent) -> None:
        if step.kind != "log":
            task.update(describe(step))

    return show


class _Live:
    def __init__(self, progress: Progress, number: TaskID) -> None:
        self._progress, self._number = progress, number

    def update(self, text: str) -> None:
        self._progress.update(self._number, description=terminal_text.line(text).replace("[", r"\["))


class _Lines:
    def __init__(self, name: str, say: Callable[[str], None]) -> None:
        self._name, self._say, self._last, self._said = name, say, "", 0.0

    def update(self, text: str) -> None:
        """Print the text if it changed, or if nothing was printed for a while."""
        now = time.monotonic()
        if text != self._last or now - self._said > _QUIET_S:
            self._say(f"{self._name}: {terminal_text.line(text)}")
            self._last, self._said = text, now
