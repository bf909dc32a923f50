"""The context of a field: which machine and setup, the complaint, and the time."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import Literal, get_args

from envbuilder.reproduce.grammar import GRAMMAR, expression, phrase
from envbuilder.reproduce.report.reported import Complaint, Pause
from envbuilder.reproduce.transcript import LOGGED, Transcript

_ADDRESS = re.compile(r"https?://\S+")
_MOST_LINES = 40


def without_addresses(line: str) -> str:
    """Replace the addresses of a line by spaces; positions stay."""
    return line if "://" not in line else _ADDRESS.sub(lambda match: " " * len(match[0]), line)


Side = Literal["fails", "works", "wanted"]
"""The setup that a mention describes: failing, working, or a requirement."""


def setup_of(line: str, start: int, end: int, *, said: bool = True) -> Side:
    aside = next((one for one in phrase("aside").finditer(line) if one.start() < start and end < one.end()), None)
    around = line if aside is None else f"{line[: aside.start()]}{' ' * len(aside[0])}{line[aside.end() :]}"
    if (said and any(_says_it_works(clause(text, start, end)) for text in (line, around))) or is_way_out(line, start):
        return "works"
    demands = phrase("demands").search(line, _begin(line, start), start) or phrase("bound").match(line, end)
    return "wanted" if said and demands is not None else "fails"


def is_way_out(line: str, start: int) -> bool:
    return phrase("after").search(line, _begin(line, start), start) is not None


def _begin(line: str, start: int) -> int:
    return max((match.end() for match in phrase("break").finditer(line, 0, start)), default=0)


def _says_it_works(text: str) -> bool:
    works = None if phrase("asked").match(text) else phrase("works").search(text)
    return works is not None and not phrase("not").search(text[max(0, works.start() - 24) : works.start()])


def clause(line: str, start: int, end: int) -> str:
    after = phrase("break").search(line, end)
    return line[_begin(line, start) : after.start() if after else len(line)]


def other_setup_lines(transcript: Transcript) -> frozenset[int]:
    """List the lines below "It works with:", and the installing ones below "We fixed it by:", up to a blank line."""
    found: set[int] = set()
    for number in sorted({n for needle in GRAMMAR.mentions["works"] for n in transcript.numbers(needle, 40)}):
        line = transcript.line(number).rstrip()
        mended = is_way_out(line, len(line.rstrip(".:")))
        if not mended and (not line.endswith(":") or "nvidia-smi" in line or not _says_it_works(line)):
            continue
        begun = False
        for below in range(number + 1, min(number + _MOST_LINES, len(transcript.lines)) + 1):
            blank = not transcript.line(below).strip()
            if blank and begun:
                break
            begun = begun or not blank
            if not mended or " install " in transcript.line(below):
                found.add(below)
    return frozenset(found)


_TOP = 8
_LONGEST_TITLE = 200


def title_line(transcript: Transcript) -> int:
    """Return the line of the title: a heading near the top or the first text line, if a blank line follows; else 0."""
    text = [number for number, line in enumerate(transcript.lines[:_TOP], start=1) if line.strip()]
    first = next((number for number in text if transcript.line(number).startswith("# ")), next(iter(text), 0))
    if not first or len(transcript.line(first)) > _LONGEST_TITLE or first + 1 >= len(transcript.lines):
        return 0
    return 0 if transcript.line(first + 1).strip() else first


_SAID: dict[Complaint, re.Pattern[str]] = {
    kind: re.compile(expression("|".join(GRAMMAR.complaints[kind]))) for kind in get_args(Complaint)
}
_LONGEST = 600


def complaints(transcript: Transcript, *, everywhere: bool = False) -> tuple[Complaint, ...]:
    """List the complaints of a title, else of the text, in the order of their kinds; `several` counts everywhere."""
    title = 0 if everywhere else title_line(transcript)
    of_text = _said("\n".join(dict.fromkeys(_sentences(transcript.lowered.split("\n")))))
    said = _said("\n".join(_sentences([transcript.line(title).lower()] if title else []))) - {"several"}
    said = said | (of_text & {"several"}) if said else of_text
    if phrase("imports_it").search(transcript.lowered) and phrase("raised").search(transcript.lowered):
        said.add("import")
    return tuple(kind for kind in _SAID if kind in said)


def _said(text: str) -> set[Complaint]:
    return {kind for kind, pattern in _SAID.items() if pattern.search(text)}


def _sentences(lines: list[str]) -> Iterator[str]:
    for line in lines:
        if line and LOGGED.search(line) is None and phrase("checkbox").match(line) is None:
            yield line[:_LONGEST]


SHORTEST = 15.0  # the shortest reported pause, in seconds, between two log lines: users ask about much longer ones
LONGEST = 3_600.0  # a longer gap, in seconds, lies between two runs
_MOST_TIMED_LINES = 3_000
_MOST_PAUSES = 12
_STAMP = re.compile(
    r"(?m)^ {0,4}(?:(?P<local>[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?): [iwef] "
    r"|[iwef][0-9]{4} [0-9:]{4,8}:(?P<epoch>[0-9]{10}\.[0-9]{1,6})\s)",
    re.ASCII,
)


def pauses(transcript: Transcript) -> tuple[Pause, ...]:
    """List the gaps between consecutive log lines, longest first, separately for both clocks."""
    found: list[Pause] = []
    last: dict[bool, tuple[float, int]] = {}
    for stamp in islice(_STAMP.finditer(transcript.lowered), _MOST_TIMED_LINES):
        number = bisect_right(transcript.starts, stamp.start())
        line, now, local = transcript.line(number), _seconds(stamp), stamp["epoch"] is None
        if now is None:
            continue
        then, before = last.get(local, (now, number))
        omitted = number > before + 3 and not any(transcript.lines[before : before + 3])
        if SHORTEST <= now - then < LONGEST and not omitted:
            after, own = transcript.line(before).strip()[:300], line.strip()[:300]
            found.append(Pause(line=before, seconds=round(now - then, 3), after=after, before=own))
        last[local] = (now, number)
    return tuple(sorted(found, key=lambda pause: -pause.seconds)[:_MOST_PAUSES])


def _seconds(stamp: re.Match[str]) -> float | None:
    """Return the time of a stamp; None for an impossible one, such as that of a 13th month."""
    with suppress(ValueError):
        return float(stamp["epoch"] or datetime.fromisoformat(f"{stamp['local']}+00:00").timestamp())
    return None
