"""Text as people paste it, cleaned line by line, so that a line number still points into what they pasted."""

from __future__ import annotations

import html
import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

LONGEST_LINE = 4_000
"""Characters of a line that are looked at: longer ones are minified files or binary, never a version statement."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]{0,20}[ -/]?[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\-_])")
_QUOTES = re.compile(r"^(?:\s{0,3}>\s?){1,6}")
_NUMBERED = re.compile(r"^\s{0,8}([0-9]{1,6})(?:\s?[|:\u2502]\s?|\t|\s{2,4})(?=\S)", re.ASCII)
_ELEMENT = re.compile(r'^\s{1,16}("(?:[^"\\]|\\.){0,3900}"),?\s{0,4}$')
_TYPOGRAPHY = str.maketrans(
    {
        "\u00a0": " ", "\u2003": " ", "\u3000": " ", "\ufeff": "", "\u200b": "", "\u200c": "", "\u200d": "",
        "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\uff0c": ",", "\uff1a": ":", "\uff1b": ";",
        "\uff08": "(", "\uff09": ")", "\uff1d": "=", "\u3001": ",", "\u0130": "I", "`": " ", "\r": " ", "\0": " ",
    }
)  # fmt: skip
"""Punctuation that keyboards and word processors put in place of ASCII's; digits and letters are left alone."""


@dataclass(frozen=True)
class Transcript:
    """A cleaned text: ``lines`` by number from 1, and ``lowered``, the same in lower case for searching."""

    lines: tuple[str, ...]
    lowered: str
    starts: tuple[int, ...]

    def line(self, number: int) -> str:
        """Return one line, counted from 1."""
        return self.lines[number - 1]

    def numbers(self, needle: str, most: int = 200) -> Iterator[int]:
        """Yield the numbers of at most ``most`` lines that hold ``needle`` (in lower case), first lines first."""
        at = self.lowered.find(needle)
        while at >= 0 and most > 0:
            number = bisect_right(self.starts, at)
            yield number
            most -= 1
            if number >= len(self.starts):
                return
            at = self.lowered.find(needle, self.starts[number])

    def matching(self, pattern: re.Pattern[str], most: int) -> Iterator[int]:
        """Yield the numbers of the lines where a pattern (over the lower-case text) begins, at most ``most``."""
        for match in islice(pattern.finditer(self.lowered), most):
            yield bisect_right(self.starts, match.start())


def clean(text: str) -> Transcript:
    """Strip colours, quotation marks, line numbers, entities and typography; the number of lines stays as it was."""
    text = text.replace("\r\n", "\n")
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    raw = text.translate(_TYPOGRAPHY).split("\n")
    lines = _unnumbered([_unquoted(line[:LONGEST_LINE]) for line in raw])
    lowered = "\n".join(lines).lower()
    starts = [0]
    for line in lines[:-1]:
        starts.append(starts[-1] + len(line) + 1)
    return Transcript(tuple(lines), lowered, tuple(starts))


def _unquoted(line: str) -> str:
    if ">" in line:
        line = _QUOTES.sub("", line)
    if line.endswith(('"', '",')) and line.startswith(" ") and (element := _ELEMENT.match(line)) is not None:
        line = _decoded(element[1])
    if "&" in line:
        line = html.unescape(line).replace("\n", " ").replace("\r", " ").replace("\u0130", "I")
    return line


def _decoded(element: str) -> str:
    """Unwrap a line that is one string of a JSON list, so that a log in a document reads like a log."""
    try:
        text = json.loads(element)
    except ValueError:
        return element
    return " ".join(text.splitlines()) if isinstance(text, str) else element


def _unnumbered(lines: list[str]) -> list[str]:
    """Take line numbers away where they count up: a number alone may be a value."""
    found = [_NUMBERED.match(line) for line in lines]
    counts = [int(match[1]) if match else -9 for match in found]
    for index, match in enumerate(found):
        if match is None:
            continue
        before = counts[index - 1] if index else -9
        after = counts[index + 1] if index + 1 < len(counts) else -9
        if counts[index] in (before + 1, after - 1):
            lines[index] = lines[index][match.end() :]
    return lines
