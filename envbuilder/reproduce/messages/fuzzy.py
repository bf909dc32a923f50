"""Matches of messages that were retyped, partly translated or cut."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from itertools import accumulate

from envbuilder.finding import Severity
from envbuilder.reproduce.messages.catalog import SIGNATURES, LogMessage, MessageMatch, find, get
from envbuilder.reproduce.transcript import Transcript

_MOST_LINES = 4_000
_MOST_LOOKED_AT = 120
_FEWEST_WORDS = 4
_ENOUGH = 0.8
"""The required share of a message's words, each exact or with one or two wrong letters."""

_TROUBLE = re.compile(
    r"could ?n[o']t|cannot|can ?not|can't|fail|not f[ou]{1,2}nd|insuf|mismat|unsup|unable|not match|doesn't|err|no such"
)
_OF_OURS = re.compile(r"cuda|cudnn|cublas|nvidia|gpu|lib\w{2,20}\.so|\.dll|tensor|numpy|protobuf|glibc|ptx|xla|driver")
"""Words about a failure: a line needs one of them, because ordinary sentences contain the other words."""

_OF_NAMES = re.compile(r"has no attribute|cannot import name|no module named|pywrap_")
"""Python's own sentences, which do not depend on the missing name: these names have to match exactly."""

_FILE = re.compile(r"\blib[a-z]{2,20}|\b[a-z0-9_]{3,20}\.dll")
_WORD = re.compile(r"[a-z]{4,}")
_SHORTEST, _WIDEST = 25, 400


def find_all(transcript: Transcript) -> tuple[MessageMatch, ...]:
    """List the known messages of a text: exact matches, then fuzzy ones (``exact`` is False)."""
    exact = find(transcript)
    if len(transcript.lines) > _MOST_LINES:
        return exact
    wrapped = _wrapped(transcript, {row.signature for row in exact})
    known = (*exact, *wrapped)
    known = (*known, *traceback_matches(transcript, known))
    return tuple(sorted((*known, *_misspelt(transcript, known)), key=lambda row: row.line))


def _wrapped(transcript: Transcript, names: set[str]) -> tuple[MessageMatch, ...]:
    pairs = [f"{line} {below.lstrip()}" for line, below in zip(transcript.lines, transcript.lines[1:], strict=False)]
    starts = (0, *accumulate(len(line) + 1 for line in pairs[:-1])) if pairs else (0,)
    joined = Transcript(tuple(pairs) or ("",), "\n".join(pairs).lower(), starts)
    seen = {row.signature: row for row in reversed(find(joined)) if row.signature not in names}
    return tuple(
        row for row in seen.values() if get(row.signature).severity is Severity.ERROR and not get(row.signature).prose
    )


@cache
def _cores() -> tuple[tuple[LogMessage, tuple[str, ...]], ...]:
    """Take the fixed words of the first sample of each message about a failure."""
    rows = (row for row in SIGNATURES if row.severity is Severity.ERROR and row.code is not None and not row.prose)
    rows = (row for row in rows if _OF_NAMES.search(" ".join(row.literals)) is None)
    found = ((row, re.search(row.regex, row.samples[0], re.ASCII)) for row in rows)
    cores = ((row, tuple(dict.fromkeys(_WORD.findall(hit[0].lower())))) for row, hit in found if hit is not None)
    return tuple((row, words) for row, words in cores if len(words) >= _FEWEST_WORDS)


def _misspelt(transcript: Transcript, known: tuple[MessageMatch, ...]) -> Iterator[MessageMatch]:
    names, lines = {row.signature for row in known}, {row.line for row in known}
    looked = 0
    for number, line in enumerate(transcript.lines, start=1):
        lowered = line.lower()
        if number in lines or not _SHORTEST <= len(line) <= _WIDEST or _TROUBLE.search(lowered) is None:
            continue
        if _OF_OURS.search(lowered) is None:
            continue
        looked += 1
        if looked > _MOST_LOOKED_AT:
            return
        best = _nearest(lowered)
        if best is not None and best.id not in names:
            names.add(best.id)
            yield MessageMatch(signature=best.id, line=number, text=line.strip()[:_WIDEST], exact=False)


def _holds_names(row: LogMessage, line: str) -> bool:
    """Return True if a line contains the file of a message (exact or nearly), or if the message names no file."""
    names = [name for text in row.literals for name in _FILE.findall(text) if not name.startswith("librar")]
    return not names or any(get_close_matches(name, _FILE.findall(line), 1, 0.93) for name in names)


def _nearest(line: str) -> LogMessage | None:
    """Return the longest message of which a line contains enough words, one of them exactly.

    A message defined by an identifier (``xla_gpu``) does not match by common words.
    """
    words = set(_WORD.findall(line))
    best: tuple[int, LogMessage] | None = None
    for row, core in _cores():
        if all("_" in name for name in row.literals) and not any(name in line for name in row.literals):
            continue
        if not _holds_names(row, line):
            continue
        same = [word for word in core if word in words]
        if len(same) * 2 < len(core):
            continue
        close = [word for word in core if word not in words and get_close_matches(word, words, 1, 0.8)]
        held = len(same) + len(close)
        if held >= _FEWEST_WORDS and held >= _ENOUGH * len(core) and (best is None or held > best[0]):
            best = held, row
    return best[1] if best is not None else None


_FRAME = re.compile(
    r"(?:site|dist)-packages[\\/](?P<package>[A-Za-z0-9_]{2,40})(?:[\\/](?P<below>[A-Za-z0-9_]{2,40}))?[^\n]{0,200}\.(?:py|so|pyd)\b"
)
_RAISED = re.compile(
    r"^\s{0,4}(?:E +)?(?P<kind>(?:Import|ModuleNotFound|Attribute|Type|System|Key|Runtime|Value)Error)\b:?"
)
_NAMES_OTHER = re.compile(r"DLL load failed|No module named|\.so\b|\.dll\b|GLIBC|undefined symbol", re.IGNORECASE)
_STOPPED_IN = {
    "google": "stopped_in_protobuf", "numpy": "stopped_in_numpy", "h5py": "stopped_in_h5py",
}  # fmt: skip
_WIDEST_TRACE = 60
"""Lines between two frames of a traceback: source code and carets."""

_LONGEST = 400


def traceback_matches(transcript: Transcript, known: tuple[MessageMatch, ...]) -> Iterator[MessageMatch]:
    """Yield a fuzzy match for each traceback through TensorFlow that ends in another package's files.

    A traceback whose last line is a known message is skipped.
    """
    if "-packages" not in transcript.lowered:
        return
    explained = {row.line for row in known}
    through, package, seen = False, "", -_WIDEST_TRACE
    named: set[str] = set()
    for number, line in enumerate(transcript.lines, start=1):
        frame = _FRAME.search(line[:_LONGEST])
        if number > seen + _WIDEST_TRACE:
            through, package = False, ""
        if frame is not None:
            package, seen = "google" if "_pb2.py" in line else frame["package"].lower(), number
            through = through or package.startswith(("tensorflow", "keras"))
            continue
        raised = _RAISED.match(line)
        if raised is None or not package:
            continue
        signature = _STOPPED_IN.get(package)
        told = number in explained or _NAMES_OTHER.search(line) is not None
        if through and signature is not None and signature not in named and not told:
            named.add(signature)
            yield MessageMatch(signature=signature, line=number, text=line.strip()[:_LONGEST], exact=False)
        through, package = False, ""
    if (
        through
        and package == "google"
        and seen > len(transcript.lines) - _NEAR_THE_END
        and not named
        and not any(line >= seen for line in explained)
    ):
        text = transcript.line(seen).strip()[:_LONGEST]  # the trace is cut before its last line
        yield MessageMatch(signature="stopped_in_protobuf", line=seen, text=text, exact=False)


_NEAR_THE_END = 6
