"""The search itself, pure: from the answers so far to the next question, or to the result."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Literal

import msgspec

Outcome = Literal["good", "bad", "other", "unbuildable", "unstable"]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What one version answered.

    ``other`` fails, but not as the bad end does; ``unbuildable`` came to no image; ``unstable`` does not end alike each
    time. ``reason`` is the normalised last line that it printed, or why there is no image; ``line`` the line as it was.
    Of ``runs`` runs ``failed`` failed.
    """

    candidate: str
    outcome: Outcome
    exit_code: int = 0
    reason: str = ""
    line: str = ""
    runs: int = 1
    failed: int = 0

    @property
    def skipped_for(self) -> str:
        """Why this version decides nothing, for people."""
        match self.outcome:
            case "unbuildable":
                return f"cannot be built: {self.reason}"
            case "unstable":
                return f"failed {self.failed} of {self.runs} runs: {self.line}"
            case _:
                return f"fails otherwise (exit code {self.exit_code}): {self.line}"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Where it begins: the last version known good, the first known bad, and those between that nobody can tell.

    ``doubt`` says why the answer may be wrong: a bound ended otherwise when it was run again; '' for none.
    """

    last_good: str
    first_bad: str
    between: tuple[str, ...] = ()
    doubt: str = ""


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is nothing to search: an end does not answer as it was said to."""

    candidate: str
    why: str


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """The version to try next."""

    candidate: str


def advance(candidates: Sequence[str], answers: Sequence[Answer]) -> Ask | Result | Refused:
    """Say what comes next; a function of the answers alone, so that an interrupted search goes on where it stopped.

    ``candidates`` run from the good end to the bad end, at least two. Both ends are asked first. A version that is
    unbuildable, or fails for another reason than the bad end, moves neither bound: its neighbours are asked instead.
    """
    known = {answer.candidate: answer for answer in answers}
    for end, wanted in ((0, "good"), (-1, "bad")):
        answer = known.get(candidates[end])
        if answer is None:
            return Ask(candidate=candidates[end])
        if answer.outcome != wanted:
            return Refused(candidate=answer.candidate, why=_why(answer, wanted))
    low, high = _bounds(candidates, known)
    open_places = [place for place in range(low + 1, high) if candidates[place] not in known]
    if not open_places:
        return Result(last_good=candidates[low], first_bad=candidates[high], between=tuple(candidates[low + 1 : high]))
    middle = (low + high) / 2
    return Ask(candidate=candidates[min(open_places, key=lambda place: (abs(place - middle), place))])


def _bounds(candidates: Sequence[str], known: dict[str, Answer]) -> tuple[int, int]:
    """Return the places of the last good version and of the first bad one after it."""
    outcomes = [known[name].outcome if name in known else None for name in candidates]
    high = min(place for place, outcome in enumerate(outcomes) if outcome == "bad")
    low = max(place for place, outcome in enumerate(outcomes) if outcome == "good" and place < high)
    return low, high


def _why(answer: Answer, wanted: str) -> str:
    match answer.outcome:
        case "good":
            return "said to be bad, but the command succeeds there"
        case "unbuildable":
            return f"cannot be built: {answer.reason}"
        case "unstable":
            return f"said to be {wanted}, but the command is not stable there: {answer.skipped_for}"
        case "bad" | "other":
            return f"said to be {wanted}, but the command fails there (exit code {answer.exit_code}): {answer.line}"


def judged(candidate: str, bad_end: Answer | None, *, is_bad_end: bool, exit_code: int, line: str) -> Answer:
    """Turn a run into an answer: bad only where it fails as the bad end does (same exit code, same last line)."""
    if not exit_code:
        return Answer(candidate=candidate, outcome="good")
    reason = normalised(line)
    same = bad_end is not None and (bad_end.exit_code, bad_end.reason) == (exit_code, reason)
    outcome: Outcome = "bad" if is_bad_end or same else "other"
    return Answer(candidate=candidate, outcome=outcome, exit_code=exit_code, reason=reason, line=line)


def together(answers: Sequence[Answer]) -> Answer:
    """Return the answer of several runs of one version: that of the first where all are alike, else ``unstable``."""
    first = answers[0]
    failed = sum(answer.exit_code != 0 for answer in answers)
    counted = {"runs": len(answers), "failed": failed}
    if all(answer.outcome == first.outcome for answer in answers):
        return msgspec.structs.replace(first, **counted)
    said = next(answer for answer in answers if answer.exit_code)
    return msgspec.structs.replace(said, outcome="unstable", **counted)


_NORMAL = (
    (re.compile(r"\. Did you mean:.*$"), ""),
    (re.compile(r"0x[0-9a-fA-F]+"), "0x…"),
    (re.compile(r"(?:/[\w.@+-]+)+/"), "…/"),
    (re.compile(r"\d+(?:\.\d+)+"), "N"),
    (re.compile(r"\d+"), "N"),
)


def normalised(line: str) -> str:
    """Take out of a line what differs between versions or runs: numbers, addresses, folders, suggestions."""
    for pattern, text in _NORMAL:
        line = pattern.sub(text, line)
    return " ".join(line.split())[:300]


def most_images(candidates: int) -> int:
    """Return how many images a search needs at the most where nothing is skipped: ``ceil(log2 n) + 2``."""
    return math.ceil(math.log2(candidates)) + 2
