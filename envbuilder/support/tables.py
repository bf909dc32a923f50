"""Tables of results as plain text."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from itertools import zip_longest

from envbuilder.support import terminal_text


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
    blocks = []
    for row in rows:
        cells = [textwrap.wrap(cell, width, break_on_hyphens=False) for cell, width in zip(row, widths, strict=True)]
        lines = zip_longest(*cells, fillvalue="")
        blocks.append(["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines] or [""])
    return blocks
