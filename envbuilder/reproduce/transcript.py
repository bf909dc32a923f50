"""Read a report's text and clean it line by line; line numbers stay unchanged."""

from __future__ import annotations

import html
import io
import re
import sys
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, islice
from pathlib import Path
from typing import BinaryIO

from envbuilder.errors import InputError, Problem, UsageError
from envbuilder.reproduce.grammar import GRAMMAR, pattern
from envbuilder.support import decoding

LONGEST_LINE = 4_000  # characters read per line: longer lines are minified files or binary data, never statements

_LONG = re.compile(rf"([^\n]{{{LONGEST_LINE}}})[^\n]+")
_ENTITY = re.compile(r"&(?:#[0-9]{1,5}|[a-z]{2,6});")
_MISREAD = re.compile(r"(?<![\w.])(?=[0-9lIO.]*[0-9])(|\w{1,12}\.so\.)([0-9lIO]{1,4}(?:\.[0-9lIO]{1,4}){1,3})(?![\w.])")
_SUSPECT = re.compile(r"(?<=[0-9.])[lIO](?=[0-9.\s]|$)|\b[lIO](?=[0-9]{0,2}\.[0-9])")
_CONTINUED = re.compile(r"(?m)^(?:[^\n]{0,1000} \\\n){1,40}[^\n]*")
_MISREAD_MODEL = re.compile(r"\b([RG]TX ?)([1-9][0-9O]{3})\b")
_LARGEST_SCAN = 1 << 20
_DIGITS = str.maketrans("lIO", "110")  # letters that character recognition writes in place of digits
LOGGED = re.compile(r"\.(?:cc|py|h):[0-9]{1,5}\]")  # the place in the source that a log line begins with
_FOREIGN = re.compile("|".join(GRAMMAR.translations))


@dataclass(frozen=True)
class Transcript:
    """A cleaned text: ``lines``, counted from 1, and ``lowered``, its lower-case copy for searching."""

    lines: tuple[str, ...]
    lowered: str
    starts: tuple[int, ...]

    def line(self, number: int) -> str:
        return self.lines[number - 1]

    def numbers(self, needle: str, most: int = 200) -> Iterator[int]:
        """Yield the numbers of the first ``most`` lines that contain ``needle`` (lower case)."""
        at = self.lowered.find(needle)
        while at >= 0 and most > 0:
            number = bisect_right(self.starts, at)
            yield number
            most -= 1
            if number >= len(self.starts):
                return
            at = self.lowered.find(needle, self.starts[number])

    def matching(self, pattern: re.Pattern[str], most: int) -> Iterator[int]:
        """Yield the numbers of the first ``most`` lines in which a pattern over the lower-case text begins."""
        for match in islice(pattern.finditer(self.lowered), most):
            yield bisect_right(self.starts, match.start())


_LONGEST_EXCERPT = 400


def excerpt(line: str, hit: re.Match[str]) -> str:
    start = 0 if hit.end() <= _LONGEST_EXCERPT else max(0, hit.start() - 40)
    return line[start : start + _LONGEST_EXCERPT].strip()


def clean(text: str) -> Transcript:
    """Remove colours, quotation marks, entities, typography and line continuations; the number of lines stays."""
    text = text.replace("\r\n", "\n").replace("\r", " ").replace("\0", " ").replace("`", " ")
    if not text.isascii():
        text = _FOREIGN.sub(lambda match: GRAMMAR.translations[match[0]], text)
    text = _LONG.sub(r"\1", text)
    for mark, steps in GRAMMAR.cleaning.items():
        for found, replacement in steps if mark in text else ():
            text = pattern(found).sub(replacement, text)
    if " \\\n" in text:  # a command over several lines: on its first one, the others stay empty
        text = _CONTINUED.sub(lambda row: row[0].replace("\\\n", "")[:LONGEST_LINE] + "\n" * row[0].count("\n"), text)
    if len(text) < _LARGEST_SCAN and _SUSPECT.search(text) is not None:
        for misread in (_MISREAD, _MISREAD_MODEL):
            text = misread.sub(lambda match: match[1] + match[2].translate(_DIGITS), text)
    text = _ENTITY.sub(_entity, text) if "&" in text else text
    lines = text.split("\n")
    starts = [0, *accumulate(len(line) + 1 for line in lines[:-1])]
    return Transcript(tuple(lines), text.lower(), tuple(starts))


def _entity(match: re.Match[str]) -> str:
    """Decode one entity; line breaks, and letters with a longer lower case, become a space."""
    decoded = html.unescape(match[0])
    return " " if decoded in {"\n", "\r", "\0", "\u0130"} else decoded


LARGEST = 1 << 20  # characters of a report that are read in full; issue trackers allow far less
MOST = 512 << 20  # read limit in characters: larger than any log, because a device has no end

_HEAD, _TAIL, _MIDDLE = 1_500, 1_500, 6_000  # lines kept of a larger report: first, last, relevant ones between

_ALIKE = 12  # lines kept of those that differ only in numbers
_MOST_SHAPES = 100_000
_LONGEST = 8_192
_SAMPLE = 4_096
_NUMBERS = {ord(digit): None for digit in "0123456789"}


def read_report(report: str) -> str:
    """Read a report from a file, or from standard input for ``-``. Raises InputError if it cannot be read."""
    try:
        if report == "-":
            return read_text(sys.stdin.buffer)
        with decoding.unblocked(Path(report)) as stream:
            return read_text(decoding.awaited(stream, decoding.READ_S))
    except (OSError, decoding.DamagedError) as error:
        reason = getattr(error, "strerror", "") or str(error)
        raise InputError((Problem(report, 0, "", reason),), hint="give a file, or - for standard input") from error


def read_text(stream: BinaryIO) -> str:
    buffered = io.BufferedReader(stream) if not isinstance(stream, io.BufferedReader) else stream  # type: ignore[type-var]
    encoding = encoding_of(buffered.peek(_SAMPLE)[:_SAMPLE])
    with io.TextIOWrapper(buffered, encoding=encoding, errors="replace", newline="\n") as text:
        return shortened(_lines(text))


def encoding_of(sample: bytes) -> str:
    """Detect an encoding by its byte order mark, or by the zero bytes of ASCII in UTF-16; default UTF-8."""
    if marked := decoding.marked(sample):
        return marked
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    most = len(sample) // 4
    return "utf-16-le" if odd > most >= even else "utf-16-be" if even > most >= odd else "utf-8"


def shortened(lines: Iterable[str]) -> str:
    """Join lines. Beyond `LARGEST` characters, omitted lines become empty, so that line numbers stay."""
    whole: list[str] = []
    size = 0
    rest = iter(lines)
    for line in rest:
        whole.append(line)
        size += len(line) + 1
        if size > LARGEST:
            return "\n".join(_excerpt([*whole], rest))
    return "\n".join(whole)


def _excerpt(read: list[str], rest: Iterator[str]) -> list[str]:
    """Keep the first and last lines, and relevant lines between them, each form of line a few times."""
    kept = read[:_HEAD]
    tail: deque[tuple[int, str]] = deque(maxlen=_TAIL)
    shapes: defaultdict[str, int] = defaultdict(int)
    middle = 0
    for place, line in enumerate((row for part in (read[_HEAD:], rest) for row in part), start=len(kept)):
        tail.append((place, line))
        kept.append("")
        shape = line[:160].translate(_NUMBERS)
        if len(shapes) < _MOST_SHAPES:
            shapes[shape] += 1
        if shapes.get(shape, 0) > _ALIKE or middle >= _MIDDLE:
            continue
        lowered = line[:400].lower()
        if any(word in lowered for word in GRAMMAR.of_environments):
            kept[-1] = line
            middle += 1
    for place, line in tail:
        kept[place] = line
    return kept


def _lines(text: io.TextIOWrapper) -> Iterator[str]:
    """Yield lines without line ends, long ones cut. Raises UsageError for an endless text."""
    left = MOST
    while line := text.readline(_LONGEST):
        yield line.rstrip("\n")
        left -= len(line)
        while line and line[-1] != "\n" and left > 0:
            line = text.readline(_LONGEST)
            left -= len(line)
        if left <= 0:
            raise UsageError(f"the report is larger than {MOST >> 20} MB", hint="cut it to the part around the message")
