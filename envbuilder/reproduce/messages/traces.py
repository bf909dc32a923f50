"""Every message of a report: those of one line, those that were wrapped, and the exceptions that end tracebacks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate

from envbuilder.finding import Severity
from envbuilder.reproduce.messages.catalog import MessageMatch, find, get
from envbuilder.reproduce.transcript import Transcript

_MOST_LINES = 4_000
_FRAME = re.compile(r'^\s{0,8}File "(?P<file>[^"\n]{1,300})"|^(?P<cell><ipython-input|Cell In|Input In|-{2,5}> ?[0-9])')
_PACKAGE = re.compile(r"(?:site|dist)-packages[\\/](?P<package>[A-Za-z0-9_]{2,40})\b")
_IMPORTS = re.compile(r"^\s{0,12}(?:-{2,5}> ?[0-9]{1,4} )?(?:import|from) ")
_RAISED = re.compile(
    r"^\s{0,4}(?:E +)?(?:[a-z_]{1,40}\.){0,6}(?P<kind>[A-Z][A-Za-z]{2,40}Error)\b:?(?P<said>[^\n]{0,300})"
)
_NAMES_OTHER = re.compile(r"DLL load failed|No module named|\.so\b|\.dll\b|GLIBC|undefined symbol", re.IGNORECASE)
_STOPPED_IN = {
    "google": "stopped_in_protobuf", "numpy": "stopped_in_numpy", "h5py": "stopped_in_h5py",
}  # fmt: skip
_OWN = frozenset({
    "AssertionError", "AttributeError", "FileNotFoundError", "IndexError", "InvalidArgumentError", "KeyError",
    "NameError", "NotImplementedError", "TypeError", "UnboundLocalError", "ValueError", "ZeroDivisionError",
})  # fmt: skip
"""Exceptions of a program; those about a module, a device or an option of another release have other reasons."""

_OF_VERSIONS = re.compile(
    r"module '|'module'|cuda|cudnn|cublas|gpu|driver|library|device|numpy|protobuf|keyword argument|memory"
    r"|deseriali[sz]e|attribute '_|version",
    re.IGNORECASE,
)
_WIDEST_TRACE = 60
"""Lines between two frames of a traceback: source code and carets."""

_NEAR_THE_END = 6
_LONGEST = 400


def find_all(transcript: Transcript) -> tuple[MessageMatch, ...]:
    """List the known messages of a text in the order of its lines."""
    exact = find(transcript)
    if len(transcript.lines) > _MOST_LINES:
        return exact
    known = (*exact, *_wrapped(transcript, {row.signature for row in exact}))
    return tuple(sorted((*known, *_ends_of_traces(transcript, known)), key=lambda row: row.line))


def _wrapped(transcript: Transcript, names: set[str]) -> tuple[MessageMatch, ...]:
    """Find the errors of programs that a terminal broke into two lines."""
    pairs = [f"{line} {below.lstrip()}" for line, below in zip(transcript.lines, transcript.lines[1:], strict=False)]
    starts = (0, *accumulate(len(line) + 1 for line in pairs[:-1])) if pairs else (0,)
    joined = Transcript(tuple(pairs) or ("",), "\n".join(pairs).lower(), starts)
    seen = {row.signature: row for row in reversed(find(joined)) if row.signature not in names}
    rows = ((row, get(row.signature)) for row in seen.values())
    return tuple(row for row, message in rows if message.severity is Severity.ERROR and not message.prose)


def _ends_of_traces(transcript: Transcript, known: tuple[MessageMatch, ...]) -> Iterator[MessageMatch]:
    """Yield a match for each traceback whose last line is no known message.

    It stopped in the files of a package that TensorFlow needs, or in the reporter's own program. A traceback that was
    cut inside protobuf counts too.
    """
    if "traceback" not in transcript.lowered and "-packages" not in transcript.lowered:
        return
    explained = {row.line for row in known}
    named: set[str] = set()
    imports, package, packages, seen = False, "", set[str](), -_WIDEST_TRACE
    for number, line in enumerate(transcript.lines, start=1):
        frame, place = _FRAME.search(line[:_LONGEST]), _PACKAGE.search(line[:_LONGEST])
        if number > seen + _WIDEST_TRACE:
            imports, package, packages = False, "", set()
        imports = imports or _IMPORTS.match(line) is not None
        if frame is not None or place is not None:
            package = "google" if "_pb2.py" in line else place["package"].lower() if place is not None else "program"
            packages.add(package)
            seen = number
            continue
        raised = _RAISED.match(line)
        if raised is None or not package:
            continue
        signature = _end_of(raised, package, packages, imports=imports)
        told = number in explained or _NAMES_OTHER.search(line) is not None
        if signature is not None and signature not in named and not told:
            named.add(signature)
            yield _inexact(signature, number, line)
        imports, package, packages = False, "", set()
    through = any(name.startswith(("tensorflow", "keras")) for name in packages)
    at_the_end = package == "google" and seen > len(transcript.lines) - _NEAR_THE_END
    if through and at_the_end and not named and not any(line >= seen for line in explained):
        yield _inexact("stopped_in_protobuf", seen, transcript.line(seen))


def _end_of(raised: re.Match[str], package: str, packages: set[str], *, imports: bool) -> str | None:
    if package in _STOPPED_IN and any(name.startswith(("tensorflow", "keras")) for name in packages):
        return _STOPPED_IN[package]
    own = raised["kind"] in _OWN and _OF_VERSIONS.search(raised["said"]) is None
    return "own_exception" if own and not imports and "program" in packages else None


def _inexact(signature: str, number: int, line: str) -> MessageMatch:
    return MessageMatch(signature=signature, line=number, text=line.strip()[:_LONGEST], exact=False)
