"""Known log messages of TensorFlow and the libraries below it, and their matches in a transcript."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Literal

import msgspec
import yaml

from envbuilder.finding import Code, Severity
from envbuilder.reproduce.transcript import Transcript, clean
from envbuilder.support import decoding
from envbuilder.workspace import packaged, packaged_in

Proof = Literal["image", "driver", "gpu", "architecture", "host", "other-system"]
"""What it takes to see it again: an image alone, a driver of another age (which can be simulated), any GPU, a GPU of
one architecture, a state of the host that no image brings about, or a system that is not Linux."""

Layer = Literal[
    "container", "driver", "loader", "cudnn", "cublas", "architecture", "xla", "python", "install", "cpu", "system",
    "memory", "speed", "distribution", "symptom", "fact", "noise",
]  # fmt: skip


class Signature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One known message.

    ``literals`` are texts of which a line must hold one (any case) before ``regex`` is tried on it (``re`` syntax,
    ASCII, case as written). ``versions`` says where it occurs; ``code`` is the finding that it is evidence of (None
    for facts and noise). ``prose`` is true of what people write, which no program printed. ``samples`` are lines of
    ours in the form that the program prints.
    """

    id: str
    layer: Layer
    severity: Severity
    proof: Proof
    literals: tuple[str, ...]
    regex: str
    cause: str
    fix: str
    versions: str
    samples: tuple[str, ...]
    code: Code | None = None
    prose: bool = False
    sources: tuple[str, ...] = ()


class Symptom(msgspec.Struct, frozen=True, kw_only=True):
    """A signature seen in a text: ``line`` counts from 1, ``values`` are what the message names (a library, say).

    ``exact`` is false where the line only resembles the message: misspelt, or cut.
    """

    signature: str
    line: int
    text: str
    values: dict[str, str] = {}
    exact: bool = True


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
