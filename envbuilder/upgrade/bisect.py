"""Run a bisection: build versions, run the command, and store every answer immediately."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, assert_never

import msgspec

from envbuilder.environment import Combination
from envbuilder.errors import UsageError
from envbuilder.support import terminal_text
from envbuilder.upgrade.bisect_search import (
    Answer,
    InvalidEnds,
    NextCandidate,
    Result,
    advance,
    judged,
    most_images,
    together,
)
from envbuilder.workspace import content_key, read_document, remove, write_document

Axis = Literal["tensorflow", "cuda", "cudnn"]


class BisectParameters(msgspec.Struct, frozen=True, kw_only=True):
    """The search parameters: axis, versions from good to bad, the fixed combination, and the command.

    ``files`` is the digest of the suite folder, ``lock`` that of the good end's committed lock ('' for none), ``gpus``
    the GPUs of the containers; each version runs ``repeat`` times.
    """

    axis: Axis
    candidates: tuple[str, ...]
    row: Combination
    command: tuple[str, ...]
    files: str = ""
    lock: str = ""
    gpus: str = "auto"
    repeat: int = 1


class BisectDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A search and its result (None while it runs); both the stored file and the command's answer."""

    schema: str = "envbuilder/bisect/v1"
    asked: BisectParameters
    answers: tuple[Answer, ...] = ()
    result: Result | None = None
    images: int = 0
    most_images: int = 0


@dataclass(frozen=True)
class CommandResult:
    """The exit code of the command in one version's image, and its last line."""

    exit_code: int
    line: str


@dataclass(frozen=True)
class Unbuildable:
    """The reason why a version has no image."""

    why: str


class CandidateRunner(Protocol):
    """Run the command with one version. Raises InfrastructureError if the engine fails: that decides nothing."""

    def __call__(self, candidate: str) -> CommandResult | Unbuildable: ...


def path_of(asked: BisectParameters, folder: Path) -> Path:
    """Return the file for a search's answers, by the digest of its parameters."""
    return folder / f"{content_key({'asked': msgspec.json.encode(asked)})[7:23]}.json"


def bisect(
    asked: BisectParameters, trial: CandidateRunner, folder: Path, say: Callable[[str], None], *, confirm: int = 0
) -> BisectDocument:
    """Search until there is a result; answers of an interrupted search are reused.

    Both bounds run ``confirm`` times more; if one ends differently then, the result is in doubt.

    Raises UsageError if an end contradicts its name.
    """
    path = path_of(asked, folder)
    document = read_document(path, BisectDocument) or BisectDocument(
        asked=asked, most_images=most_images(len(asked.candidates))
    )
    if document.answers:
        say(f"continuing with {len(document.answers)} answers from {path}")
    while True:
        step = advance(asked.candidates, document.answers)
        match step:
            case Result():
                if document.result is not None:
                    return document  # confirmed before
                doubt = _doubt(step, document, trial, confirm)
                document = msgspec.structs.replace(document, result=msgspec.structs.replace(step, doubt=doubt))
                write_document(path, document)
                return document
            case InvalidEnds():
                remove(path)
                raise UsageError(
                    f"{step.candidate}: {step.why}", hint="choose ends that differ in the command's success"
                )
            case NextCandidate():
                answer = _run_candidate(step.candidate, document, trial)
                say(f"{answer.candidate}: {answer.outcome}{': ' + answer.line if answer.line else ''}")
                document = _with(document, answer)
                write_document(path, document)
            case _:
                assert_never(step)


def _run_candidate(candidate: str, document: BisectDocument, trial: CandidateRunner) -> Answer:
    """Run one version the requested number of times; one without an image is not tried again."""
    answers: list[Answer] = []
    while len(answers) < document.asked.repeat:
        answers.append(_once(candidate, document, trial))
        if answers[-1].outcome == "unbuildable":
            return answers[-1]
    return together(answers)


def _once(candidate: str, document: BisectDocument, trial: CandidateRunner) -> Answer:
    ran = trial(candidate)
    if isinstance(ran, Unbuildable):
        return Answer(candidate=candidate, outcome="unbuildable", reason=ran.why)
    bad = document.asked.candidates[-1]
    known = next((answer for answer in document.answers if answer.candidate == bad), None)
    return judged(candidate, known, is_bad_end=candidate == bad, exit_code=ran.exit_code, line=ran.line)


def _doubt(result: Result, document: BisectDocument, trial: CandidateRunner, confirm: int) -> str:
    """Run both bounds again; return those with another result, or ''."""
    for candidate, wanted in ((result.last_good, "good"), (result.first_bad, "bad")):
        found = [_once(candidate, document, trial).outcome for _ in range(confirm)]
        others = sum(outcome != wanted for outcome in found)
        if others:
            return f"{candidate} was {wanted}, but not in {others} of {confirm} further runs (--repeat N)"
    return ""


def _with(document: BisectDocument, answer: Answer) -> BisectDocument:
    return msgspec.structs.replace(
        document,
        answers=(*document.answers, answer),
        images=document.images + (answer.outcome != "unbuildable"),
    )


def as_text(document: BisectDocument) -> str:
    """Write a search as text: the answers in the order of versions, and the result."""
    known = {answer.candidate: answer for answer in document.answers}
    lines = [_line(name, known.get(name)) for name in document.asked.candidates]
    result = document.result
    if result is not None:
        lines.append("")
        lines.append(f"last good {result.last_good}, first bad {result.first_bad}: {known[result.first_bad].line}")
        if result.doubt:
            lines.append(f"IN DOUBT, the command is not stable: {result.doubt}")
        if result.between:
            lines.append("undecided between them:")
            lines += [
                f"  {name}: {known[name].skipped_for if name in known else 'not tried'}" for name in result.between
            ]
        lines.append(f"{document.images} images (at most {document.most_images} if no version is skipped)")
    return "\n".join(lines)


def _line(name: str, answer: Answer | None) -> str:
    if answer is None:
        return f"  {name}"
    why = answer.reason if answer.outcome == "unbuildable" else answer.line
    why = answer.skipped_for if answer.outcome == "unstable" else why
    return f"  {name}  {answer.outcome}" + (f": {why}" if answer.outcome != "good" and why else "")


def as_markdown(document: BisectDocument) -> str:
    """Write a search for an issue or a pull request."""
    command = terminal_text.code(" ".join(document.asked.command))
    return f"### Bisection over {document.asked.axis}\n\n{command}\n\n```\n{as_text(document)}\n```\n"


def ordered(candidates: Sequence[str], good: str, bad: str, key: Callable[[str], object]) -> tuple[str, ...]:
    """Return the versions from the good end to the bad end, both included, in either direction.

    Raises UsageError if they are the same.
    """
    if key(good) == key(bad):
        raise UsageError(f"{good} and {bad} are the same version", hint="give two ends")
    every = {key(name): name for name in (*candidates, good, bad)}
    low, high = sorted((key(good), key(bad)))  # type: ignore[type-var]
    inside = [every[place] for place in sorted(every) if low <= place <= high]  # type: ignore[type-var, operator]
    return tuple(inside if key(good) == low else reversed(inside))
