"""Pauses in a pasted log: where the reporter waited, and what the program said last."""

from __future__ import annotations

import re
from datetime import datetime

from envbuilder.reproduce.report.reported import Pause
from envbuilder.reproduce.transcript import Transcript

SHORTEST = 15.0
"""Seconds between two lines of a start-up log from which on a pause is told: users begin to ask well above it."""

_MOST_LINES = 3_000
_MOST_PAUSES = 12
_ISO = re.compile(
    r"^\s{0,4}([0-9]{4}-[0-9]{2}-[0-9]{2}) ([0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?): [IWEF] ", re.ASCII
)
_EPOCH = re.compile(r"^\s{0,4}[IWEF][0-9]{4} [0-9:]{4,8}:([0-9]{10}\.[0-9]{1,6})\s", re.ASCII)


def pauses(transcript: Transcript) -> tuple[Pause, ...]:
    """List the gaps between a log's consecutive lines, longest first; each of its two clocks by itself."""
    found: list[Pause] = []
    last: dict[bool, tuple[float, int]] = {}
    for number in sorted({*transcript.matching(_ANY, _MOST_LINES)}):
        line = transcript.line(number)
        now, local = _seconds(line), line.lstrip()[:1].isdigit()
        if now is None:
            continue
        then, before = last.get(local, (now, number))
        if SHORTEST <= now - then < 86_400:  # noqa: PLR2004 - a day: another run
            after = transcript.line(before)
            found.append(
                Pause(line=before, seconds=round(now - then, 3), after=after.strip()[:300], before=line.strip()[:300])
            )
        last[local] = (now, number)
    return tuple(sorted(found, key=lambda pause: -pause.seconds)[:_MOST_PAUSES])


_ANY = re.compile(
    r"(?m)^ {0,4}(?:[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:|[iwef][0-9]{4} [0-9:]{4,8}:[0-9]{10}\.)", re.ASCII
)


def _seconds(line: str) -> float | None:
    epoch = _EPOCH.match(line)
    if epoch is not None:
        return float(epoch[1])
    iso = _ISO.match(line)
    if iso is None:
        return None
    try:
        return datetime.fromisoformat(f"{iso[1]}T{iso[2]}+00:00").timestamp()
    except ValueError:
        return None
