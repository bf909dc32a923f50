"""Which side a statement is about: the one that fails, or one that works (another machine, before, another version)."""

from __future__ import annotations

import re
from typing import Literal

from envbuilder.reproduce.transcript import Transcript

_WORKS = re.compile(
    r"(?:works? (?:fine|well|perfectly|great|for me|as expected|as intended|on|with|in|again|under|just|now|too)"
    r"|\bworks\b(?=[.,;:)]|$)|worked|no problems?\b|working (?:fine|well|on|with)|without (?:issue|problem|error)"
    r"|is working|r[au]ns? (?:fine|well)|is fine\b|\bis (?:the )?ok\b|are fine|\bloads on\b|went (?:fine|well))",
    re.IGNORECASE,
)
_DEMANDS = re.compile(
    r"(?:\brequires?\b(?! a lot)|\bneeds\b|download and install|compatible with|\bsupports\b|recommend)",
    re.IGNORECASE,
)
_AFTER = re.compile(
    r"\b(?:down-?grad(?:e|ed|ing)|(?:went|going|go|roll(?:ed|ing)?|revert(?:ed|ing)?|switch(?:ed|ing)?) (?:back|down))"
    r"(?:(?!\.\s)[^\n;]){0,80}\bto(?: (?:tensorflow|tf|cuda|cudnn|python|version|the|v))*\s*\Z",
    re.IGNORECASE,
)
"""Before a version that somebody went back to, because the other one failed."""

_BOUND = re.compile(
    r"\s{0,2}(?:(?:or|and) (?:earlier|later|newer|older|above|below|higher|lower)\b"
    r"|(?:to|through|until|till|up to) v?[0-9]{1,2}\.[0-9])",
    re.IGNORECASE,
)
"""Behind a version that is one end of a range: none of the versions in it is the one that was meant."""

_BREAK = re.compile(
    r"(?<=[^0-9\s])[.!?](?=\s|$)|;|,\s|\s(?:but|while|whereas|however|although|though)\s|\)\s|\s\(", re.IGNORECASE
)
_ADDRESS = re.compile(r"https?://\S+")
_NOT = re.compile(r"\b(?:not|n't|never|no longer|neither|stopped|fails?)\b|n't\b", re.IGNORECASE)
_MOST_LINES = 40


def without_addresses(line: str) -> str:
    """Blank out the addresses of a line; what stands elsewhere in it keeps its place."""
    if "://" not in line:
        return line
    return _ADDRESS.sub(lambda match: " " * len(match[0]), line)


Side = Literal["fails", "works", "wanted"]
"""What a mention is about: the side that fails, one that works, or what something asks for."""


def side_of(line: str, start: int, end: int) -> Side:
    """Tell what the clause around a mention says of it."""
    around = clause(line, start, end)
    before = max((match.end() for match in _BREAK.finditer(line, 0, start)), default=0)
    works = _WORKS.search(around)
    if works is not None and not _NOT.search(around[max(0, works.start() - 24) : works.start()]):
        return "works"
    if _AFTER.search(line, before, start) is not None:
        return "works"
    wanted = _DEMANDS.search(line, before, start) is not None or _BOUND.match(line, end) is not None
    return "wanted" if wanted else "fails"


def elsewhere(line: str, start: int, end: int) -> bool:
    """Tell whether the clause around a mention says that it works there, or what something asks for."""
    return side_of(line, start, end) != "fails"


def clause(line: str, start: int, end: int) -> str:
    """Return the part of a sentence that a mention stands in."""
    before = max((match.end() for match in _BREAK.finditer(line, 0, start)), default=0)
    after = _BREAK.search(line, end)
    return line[before : after.start() if after else len(line)]


def other_sides(transcript: Transcript) -> frozenset[int]:
    """List the lines of blocks below a sentence like "It works for me with:", each up to the next blank line."""
    found: set[int] = set()
    for number in sorted({n for needle in ("works", "worked", "working") for n in transcript.numbers(needle, 40)}):
        line = transcript.line(number).rstrip()
        works = _WORKS.search(line)
        if not line.endswith(":") or works is None or _NOT.search(line[max(0, works.start() - 24) : works.start()]):
            continue
        begun = False
        for below in range(number + 1, min(number + _MOST_LINES, len(transcript.lines)) + 1):
            blank = not transcript.line(below).strip()
            if blank and begun:
                break
            begun = begun or not blank
            found.add(below)
    return frozenset(found)


_LONGEST_TITLE = 200


def title_line(transcript: Transcript) -> int:
    """Return the line of the title: the first with words, where a blank one parts it from the text; 0 where none is."""
    first = next((number for number, line in enumerate(transcript.lines, start=1) if line.strip()), 0)
    if not first or len(transcript.line(first)) > _LONGEST_TITLE or first + 1 >= len(transcript.lines):
        return 0
    return 0 if transcript.line(first + 1).strip() else first


_UPDATE = re.compile(r"^\W{0,4}(?:update[d]?|edit(?:ed)?|upd)\b[ 0-9./:-]{0,24}(?::|$)", re.IGNORECASE)
_SHOWS = re.compile(r"\b(?:error|warning|message|output|log)s?\b[^.\n]{0,60}:\s*$", re.IGNORECASE)


def present(transcript: Transcript) -> frozenset[int]:
    """List the lines of an update that says how it is now and goes on to show what is printed.

    What is said to work there is no other side: it is what printed the lines that are asked about.
    """
    found: set[int] = set()
    for start in sorted({n for needle in ("update", "edit", "upd") for n in transcript.numbers(needle, 10)}):
        if not _UPDATE.match(transcript.line(start)):
            continue
        end = min(start + _MOST_LINES, len(transcript.lines))
        shown = next((n for n in range(start, end + 1) if _SHOWS.search(transcript.line(n)[:1_500])), None)
        found |= set(range(start, shown + 1)) if shown is not None else set()
    return frozenset(found)
