"""Known log messages of TensorFlow and the libraries below it, and their matches in a transcript."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources
from typing import Literal

import msgspec

from envbuilder.finding import Code, Severity
from envbuilder.reproduce.grammar import GRAMMAR, pattern, phrase
from envbuilder.reproduce.report.reported import Complaint
from envbuilder.reproduce.transcript import LOGGED, Transcript, clean, excerpt
from envbuilder.workspace import packaged_in, packaged_yaml

Needs = Literal["image", "driver", "gpu", "architecture", "host", "other-system"]
"""What a reproduction needs: an image, another driver version (can be simulated), any GPU, a GPU of one architecture, a
host state that no image can create, or a system other than Linux.
"""

Layer = Literal[
    "container", "driver", "loader", "cudnn", "cublas", "architecture", "xla", "python", "install", "cpu", "system",
    "memory", "speed", "distribution", "code", "symptom", "fact", "noise",
]  # fmt: skip

Mark = Literal[
    "follows", "goes_on", "not_found", "opens", "ran", "memory", "suggests", "asks", "answers", "other_vendor",
    "outside", "owns",
]  # fmt: skip
"""What a message says besides its code: it follows from another message; TensorFlow goes on without the GPU; a CUDA
library was not found; it names a library as a release opens it; code ran on the GPU, so its libraries were found;
memory may be short; it has other causes too, so that its line alone proves none; versions are asked for; it is a
question that facts answer; the GPU is of another maker; it is about another software; its line is another program's,
so that no other message is meant by it.
"""

Text = str | tuple[str, ...]
"""A sentence with facts in braces (see terms.py), or several: the first one counts of which every fact is known."""


class LogMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One known message.

    A line must contain one of the ``literals`` (any case) before ``regex`` is tried (``re`` syntax, ASCII, case as
    written). ``versions`` says where it occurs; ``code`` is the finding that it proves (None for facts and noise).
    ``prose`` marks sentences of people rather than programs. ``explains`` are the complaints that it explains, if fewer
    than its code does; ``refuted_by`` are conditions (`Case.holds`) of which one refutes it. ``becomes``
    are the ids under which it counts instead, by a condition. ``samples`` are lines in the form that programs print.
    """

    id: str
    layer: Layer
    severity: Severity
    proof: Needs
    literals: tuple[str, ...]
    regex: str
    cause: Text
    fix: Text = "Nothing to fix."
    versions: str
    samples: tuple[str, ...]
    code: Code | None = None
    marks: frozenset[Mark] = frozenset()
    prose: bool = False
    explains: frozenset[Complaint] = frozenset()
    refuted_by: tuple[str, ...] = ()
    becomes: dict[str, str] = {}
    sources: tuple[str, ...] = ()


class MessageMatch(msgspec.Struct, frozen=True, kw_only=True):
    """A match: ``line`` counts from 1, ``values`` are named parts, ``exact`` is False for the end of a traceback."""

    signature: str
    line: int
    text: str
    values: dict[str, str] = {}
    exact: bool = True

    @property
    def known(self) -> LogMessage:
        return _BY_ID[self.signature]


MOST_PER_SIGNATURE = 8  # matches with different values kept per message: a loader prints one line per library
_FILES = [entry for entry in packaged_in(resources.files(__package__)) if entry.name.endswith(".yaml")]
SIGNATURES = tuple(
    row for file in sorted(_FILES, key=lambda entry: entry.name) for row in packaged_yaml(file, tuple[LogMessage, ...])
)

_BY_ID = {signature.id: signature for signature in SIGNATURES}


def is_title(match: MessageMatch) -> bool:
    return match.text.startswith("# ") or (match.line == 1 and LOGGED.search(match.text) is None)


def marked(mark: Mark, matches: tuple[MessageMatch, ...]) -> tuple[MessageMatch, ...]:
    return tuple(row for row in matches if mark in row.known.marks)


def error_messages(matches: tuple[MessageMatch, ...]) -> tuple[MessageMatch, ...]:
    """Keep messages about errors, without an empty GPU list if another message explains it."""
    wrong = [row for row in matches if row.known.severity is not Severity.INFO and row.known.layer != "code"]
    return tuple([row for row in wrong if row.known.layer != "symptom"] or wrong)


def find(text: Transcript | str) -> tuple[MessageMatch, ...]:
    """List the known messages in the order of their lines, without duplicates, and exceptions that end tracebacks."""
    transcript = clean(text) if isinstance(text, str) else text
    known = tuple(symptom for row in SIGNATURES for symptom in _occurrences(transcript, row))
    owned = {row.line for row in marked("owns", known)}
    known = tuple(
        row for row in known if row.line not in owned or row.known.layer == "fact" or "owns" in row.known.marks
    )
    ends = _ends_of_traces(transcript, known) if len(transcript.lines) <= _MOST_LINES else ()
    return tuple(sorted((*known, *ends), key=lambda row: row.line))


def _occurrences(transcript: Transcript, row: LogMessage) -> list[MessageMatch]:
    numbers = sorted({number for literal in row.literals for number in transcript.numbers(literal.lower(), 64)})
    seen: dict[tuple[tuple[str, str], ...], MessageMatch] = {}
    for number in numbers:
        line = transcript.line(number)
        hit = pattern(row.regex, any_case=True).search(line)
        if hit is None or phrase("source_line").match(line) is not None:
            continue
        values = {name.removesuffix("_2").removesuffix("_3"): value for name, value in hit.groupdict().items() if value}
        key = tuple(sorted(values.items()))
        worse = key in seen and (is_title(seen[key]) or (LOGGED.search(line) and not LOGGED.search(seen[key].text)))
        if key not in seen or (row.code is not None and not row.prose and worse):
            seen[key] = MessageMatch(signature=row.id, line=number, text=excerpt(line, hit), values=values)
        if len(seen) >= MOST_PER_SIGNATURE:
            break
    return list(seen.values())


_MOST_LINES = 4_000
_FRAME = re.compile(r'^\s{0,8}File "(?P<file>[^"\n]{1,300})"|^(?P<cell><ipython-input|Cell In|Input In|-{2,5}> ?[0-9])')
_PACKAGE = re.compile(r"(?:site|dist)-packages[\\/](?P<package>[A-Za-z0-9_]{2,40})\b")
_IMPORTS = re.compile(r"^\s{0,12}(?:-{2,5}> ?[0-9]{1,4} )?(?:import|from) ")
_RAISED = re.compile(r"^\s{0,4}(?:E +)?(?:[a-z_]{1,40}\.){0,6}(?P<kind>[A-Z][A-Za-z]{2,40}Error)\b:?(?P<said>.{0,300})")
_FROM = re.compile(r"cannot import name '\w{1,60}' from '(?P<package>\w{1,40})[.']")
_WIDEST_TRACE = 60  # lines between two frames of a traceback: source code and carets
_LONGEST = 400


def _ends_of_traces(transcript: Transcript, known: tuple[MessageMatch, ...]) -> Iterator[MessageMatch]:
    """Yield a match for each traceback that ends in a package that TensorFlow needs, or in the reporter's program."""
    if not any(mark in transcript.lowered for mark in ("traceback", "-packages", 'file "')):
        return
    explained = {row.line for row in known if row.known.layer != "fact"}
    named, packages, seen, imports = set[str | None](), list[str](), 0, False
    for number, line in enumerate(transcript.lines, start=1):
        frame, place = _FRAME.search(line[:_LONGEST]), _PACKAGE.search(line[:_LONGEST])
        packages = packages if number <= seen + _WIDEST_TRACE else []
        imports = bool(packages) and (imports or _IMPORTS.match(line) is not None)
        if frame is not None or place is not None:
            if place is not None or not packages or not line.startswith("--"):  # an arrow is a line of the frame above
                packages.append("google" if "_pb2.py" in line else place["package"].lower() if place else "program")
            seen = number
            continue
        raised = _RAISED.match(line)
        if raised is None or not packages:
            continue
        imports = imports if packages[-1] != "program" else _IMPORTS.match(transcript.line(number - 1)) is not None
        signature = _end_of(raised, packages, imports=imports)
        told = number in explained or signature in named or phrase("other_end").search(line) is not None
        if signature is not None and not told:
            named.add(signature)
            yield MessageMatch(signature=signature, line=number, text=line.strip()[:_LONGEST], exact=False)
        packages = []


def _end_of(raised: re.Match[str], packages: list[str], *, imports: bool) -> str | None:
    last, asked = packages[-1], _FROM.search(raised["said"])
    if last in GRAMMAR.traces and any(name.startswith(("tensorflow", "keras")) for name in packages):
        return GRAMMAR.traces[last]
    if asked is not None and asked["package"].lower() == last:
        return "two_versions_of_one_package"
    if imports or "program" not in packages or phrase("of_versions").search(raised["said"]):
        return None
    inside = "tensorflow" if last.startswith(("tensorflow", "keras")) else "another_package"
    return GRAMMAR.traces.get(raised["kind"]) if last == "program" else f"raised_in_{inside}"
