"""Tables of results as plain text."""

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import zip_longest

from envbuilder.support import terminal_text


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], below: Sequence[Iterable[str]] = ()) -> str:
    """Align rows under headers with two spaces between columns; the last column is not padded.

    ``below`` are further lines for each row.

    On a terminal that is too narrow, cells are folded between words. If that is not enough, the column with the longest
    word, such as an id, gets lines of its own, or the first of two: no word is cut.
    """
    every = [list(headers), *[[cell and terminal_text.line(cell) for cell in row] for row in rows]]
    terminal = _terminal_width()
    if terminal is not None:
        blocks = _fitted(every, terminal)
    else:
        widths = [max(map(len, column)) for column in zip(*every, strict=True)]
        blocks = [["  ".join(map(str.ljust, row, widths)).rstrip()] for row in every]
    for block, lines in zip(blocks[1:], below, strict=False):
        block.extend(lines)
    return "\n".join(line for block in blocks for line in block)


def folded(text: str, indent: str = "", rest: str | None = None, *, most: int | None = None) -> str:
    """Fold a sentence at ``most`` characters and at the terminal's width; no word is cut.

    ``rest`` indents its further lines: two more than the first if that is indented.
    """
    width = min(filter(None, (most, _terminal_width())), default=None)
    if width is None:
        return indent + text
    further = indent and f"{indent}  " if rest is None else rest
    return _wrapper(width=width, initial_indent=indent, subsequent_indent=further).fill(text)


def command(title: str, line: str) -> str:
    """Return a command after its title; a terminal that is too narrow gets several lines that are one when pasted."""
    terminal, indent = _terminal_width(), " " * len(title)
    if terminal is None or len(title + line) <= terminal:
        return title + line
    # A quoted word is not folded: a NUL stands for its spaces.
    quoted = re.sub(r"'[^']*'|\"[^\"]*\"", lambda found: found[0].replace(" ", "\0"), line)
    lines = _wrapper(width=max(1, terminal - len(title) - 2)).wrap(quoted)
    return title + f" \\\n{indent}".join(lines).replace("\0", " ")


_wrapper = partial(textwrap.TextWrapper, break_long_words=False, break_on_hyphens=False)


def _terminal_width() -> int | None:
    """Return the width of the terminal on standard output; None if it is a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None


def _fitted(rows: list[list[str]], terminal: int) -> list[list[str]]:
    """Return the lines of each row."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    words = [max((len(word) for cell in column for word in cell.split()), default=0) for column in columns]
    least = [max(word, min(width, _FOLDED)) for word, width in zip(words, widths, strict=True)]
    spaces = 2 * (len(widths) - 1)
    if sum(least) + spaces > terminal:
        if len(widths) > 1 and (max(words) > _FOLDED or sum(words) + spaces > terminal):
            own = words.index(max(words)) if len(widths) > 2 else 0  # noqa: PLR2004 - of two, the first is a title
            rest = _fitted([[*row[:own], *row[own + 1 :]] for row in rows], terminal - 2)
            firsts = (_wrapper(width=terminal).wrap(row[own]) or [""] for row in rows)
            below = ([f"  {line}".rstrip() for line in block] for block in rest)
            return [first + block for first, block in zip(firsts, below, strict=True)]
        least = words
    while sum(widths) + spaces > terminal and widths != least:
        widths[max((at for at in range(len(widths)) if widths[at] > least[at]), key=widths.__getitem__)] -= 1
    return [_folded(row, widths) for row in rows]


_FOLDED = 20
"""Characters up to which a column is not folded, except if it has no longer word and there is no more space."""


def _folded(row: list[str], widths: list[int]) -> list[str]:
    cells = [_wrapper(width=width or 1).wrap(cell) for cell, width in zip(row, widths, strict=True)]
    lines = zip_longest(*cells, fillvalue="")
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines] or [""]
