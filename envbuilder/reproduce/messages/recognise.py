"""Find known messages in a text: a literal first, then a bounded regular expression on that line alone."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

import yaml

from envbuilder.reproduce.messages.message import Signature, Symptom
from envbuilder.reproduce.transcript import Transcript, clean
from envbuilder.support import decoding
from envbuilder.workspace import packaged, packaged_in

MOST_PER_SIGNATURE = 8
"""Symptoms kept of one signature with different values: a loader prints one line a library, never hundreds."""

_LONGEST_TEXT = 400
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def shipped_rows(file: Traversable) -> tuple[object, ...]:
    """Read the rows of a data file that ships with this package, as they stand; `decoding.converted` makes structs."""
    return tuple(yaml.load(packaged(file), Loader=_LOADER))  # noqa: S506 - a safe loader, and our own file


@cache
def _load() -> tuple[Signature, ...]:
    """Read the data files beside this module, in the order of their names, then of their rows."""
    folder = resources.files(__package__)
    files = sorted(
        (entry for entry in packaged_in(folder) if entry.name.endswith(".yaml")), key=lambda entry: entry.name
    )
    return decoding.converted(tuple(row for file in files for row in shipped_rows(file)), tuple[Signature, ...])


SIGNATURES = _load()
"""Every known message, in the order in which the data files hold them."""

_BY_ID = {signature.id: signature for signature in SIGNATURES}


@cache
def _compiled() -> tuple[tuple[Signature, tuple[str, ...], re.Pattern[str]], ...]:
    return tuple(
        (row, tuple(literal.lower() for literal in row.literals), re.compile(row.regex, re.ASCII)) for row in SIGNATURES
    )


def get(identity: str) -> Signature:
    """Return the signature of that id. Raises KeyError where there is none."""
    return _BY_ID[identity]


def match(text: str) -> tuple[Symptom, ...]:
    """List the known messages in a text in the order of its lines, each distinct message once."""
    return find(clean(text))


def find(transcript: Transcript) -> tuple[Symptom, ...]:
    """List the known messages in a cleaned text in the order of its lines, each distinct message once."""
    found = [symptom for row in _compiled() for symptom in _occurrences(transcript, *row)]
    return tuple(sorted(found, key=lambda symptom: symptom.line))


def _occurrences(
    transcript: Transcript, row: Signature, literals: tuple[str, ...], pattern: re.Pattern[str]
) -> list[Symptom]:
    numbers = sorted({number for literal in literals for number in transcript.numbers(literal, 64)})
    seen: dict[tuple[tuple[str, str], ...], Symptom] = {}
    for number in numbers:
        line = transcript.line(number)
        hit = pattern.search(line)
        if hit is None:
            continue
        values = {name: value for name, value in hit.groupdict().items() if value}
        key = tuple(sorted(values.items()))
        if key not in seen:
            seen[key] = Symptom(signature=row.id, line=number, text=_excerpt(line, hit), values=values)
        if len(seen) >= MOST_PER_SIGNATURE:
            break
    return list(seen.values())


def _excerpt(line: str, hit: re.Match[str]) -> str:
    """Return the line, or where it is long the part of it around the message."""
    start = 0 if hit.end() <= _LONGEST_TEXT else max(0, hit.start() - 40)
    return line[start : start + _LONGEST_TEXT].strip()
