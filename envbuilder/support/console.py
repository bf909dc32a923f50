"""Progress on standard error, and tables of results as plain text."""

from __future__ import annotations

import io
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

from envbuilder.errors import InfrastructureError
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
    """Align rows under headers with two spaces between columns; the last column is not padded.

    On a terminal that is too narrow, cells of several words are folded. If that is not enough, the longest column of
    single words, such as ids, gets lines of its own: an id is never folded if it fits the terminal.
    """
    every = [list(headers), *[[cell and terminal_text.line(cell) for cell in row] for row in rows]]
    terminal = _terminal_width()
    blocks = [[line] for line in _aligned(every)] if terminal is None else _fitted(every, terminal)
    return "\n".join(line for block in blocks for line in block)


def _terminal_width() -> int | None:
    """Return the width of the terminal on standard output; None if it is a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _fitted(rows: list[list[str]], terminal: int) -> list[list[str]]:
    """Return the lines of each row."""
    lines = _aligned(rows)
    if max(map(len, lines)) <= terminal:
        return [[line] for line in lines]
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    long = [at for at, column in enumerate(columns) if widths[at] > _FOLDED and any(" " in cell for cell in column)]
    left = terminal - 2 * (len(widths) - 1) - sum(width for at, width in enumerate(widths) if at not in long)
    if long and left >= _FOLDED * len(long):
        return _folded(rows, [left // len(long) if at in long else width for at, width in enumerate(widths)])
    own = max((at for at in range(len(widths)) if at not in long), key=widths.__getitem__, default=None)
    if own is None or len(widths) == 1:
        return _folded(rows, [max(1, terminal // len(widths) - 2)] * len(widths))
    rest = _fitted([[*row[:own], *row[own + 1 :]] for row in rows], terminal - 2)
    return [[row[own], *(f"  {line}" for line in block)] for row, block in zip(rows, rest, strict=True)]


_FOLDED = 20
"""Characters up to which a column of several words is not folded."""


def _folded(rows: list[list[str]], widths: list[int]) -> list[list[str]]:
    from rich.console import Console as RichConsole  # noqa: PLC0415 - only a narrow terminal pays for rich
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = RichConsole(width=sum(widths) + 2 * len(widths), file=io.StringIO(), color_system=None)
    blocks = []
    for row in rows:
        made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
        for width in widths:
            made.add_column(overflow="fold", width=width)
        made.add_row(*map(Text, row))
        with console.capture() as captured:
            console.print(made)
        blocks.append([line.rstrip() for line in captured.get().splitlines()])
    return blocks


def describe(step: BuildEvent) -> str:
    text = step.text.strip().splitlines()[-1] if step.kind == "log" and step.text.strip() else step.name
    return terminal_text.line(text)[:_WIDTH]


def warn(text: str) -> None:
    _print(f"warning: {text}")


@contextmanager
def warning(text: str) -> Iterator[None]:
    """Turn an InfrastructureError of a step that may fail into a warning."""
    try:
        yield
    except InfrastructureError as error:
        warn(f"{text}: {error.message}")


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
