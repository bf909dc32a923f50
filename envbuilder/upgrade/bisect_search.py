"""The search as pure functions: from the answers so far to the next version, or to the result."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Literal

import msgspec

Outcome = Literal["good", "bad", "other", "unbuildable", "unstable"]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one version.

    ``other`` fails, but differently from the bad end; ``unbuildable`` has no image; ``unstable`` ends differently in
    different runs. ``reason`` is the normalised last line of its output, or why there is no image; ``line`` the
    original. Of ``runs`` runs ``failed`` failed.
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
        """Why this version is undecided, as text."""
        match self.outcome:
            case "unbuildable":
                return f"cannot be built: {self.reason}"
            case "unstable":
                return f"failed {self.failed} of {self.runs} runs: {self.line}"
            case _:
                return f"fails differently (exit code {self.exit_code}): {self.line}"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The last good version, the first bad version, and the undecided ones between them.

    ``doubt`` says why the result may be wrong (a bound ended differently in a further run), or is ''.
    """

    last_good: str
    first_bad: str
    between: tuple[str, ...] = ()
    doubt: str = ""


class InvalidEnds(msgspec.Struct, frozen=True, kw_only=True):
    """Why a search is impossible: an end contradicts its name."""

    candidate: str
    why: str


class NextCandidate(msgspec.Struct, frozen=True, kw_only=True):
    candidate: str


def advance(candidates: Sequence[str], answers: Sequence[Answer]) -> NextCandidate | Result | InvalidEnds:
    """Return the next version or the result; only the answers matter, so an interrupted search can continue.

    ``candidates`` (at least two) lead from the good end to the bad end. Both ends run first. A version that is
    unbuildable, or fails for another reason than the bad end, moves neither bound: its neighbours follow.
    """
    known = {answer.candidate: answer for answer in answers}
    for end, wanted in ((0, "good"), (-1, "bad")):
        answer = known.get(candidates[end])
        if answer is None:
            return NextCandidate(candidate=candidates[end])
        if answer.outcome != wanted:
            return InvalidEnds(candidate=answer.candidate, why=_why(answer, wanted))
    low, high = _bounds(candidates, known)
    open_places = [place for place in range(low + 1, high) if candidates[place] not in known]
    if not open_places:
        return Result(last_good=candidates[low], first_bad=candidates[high], between=tuple(candidates[low + 1 : high]))
    middle = (low + high) / 2
    return NextCandidate(candidate=candidates[min(open_places, key=lambda place: (abs(place - middle), place))])


def _bounds(candidates: Sequence[str], known: dict[str, Answer]) -> tuple[int, int]:
    """Return the positions of the last good version and of the first bad one after it."""
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
    """Turn a run into an answer: bad only with the exit code and the last line of the bad end."""
    if not exit_code:
        return Answer(candidate=candidate, outcome="good")
    reason = normalised(line)
    same = bad_end is not None and (bad_end.exit_code, bad_end.reason) == (exit_code, reason)
    outcome: Outcome = "bad" if is_bad_end or same else "other"
    return Answer(candidate=candidate, outcome=outcome, exit_code=exit_code, reason=reason, line=line)


def together(answers: Sequence[Answer]) -> Answer:
    """Combine several runs of one version: the common answer, or ``unstable``."""
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
    """Remove numbers, addresses, folders and suggestions: they differ between versions and runs."""
    for pattern, text in _NORMAL:
        line = pattern.sub(text, line)
    return " ".join(line.split())[:300]


def most_images(candidates: int) -> int:
    """Return the maximum number of images of a search without skipped versions: ``ceil(log2 n) + 2``."""
    return math.ceil(math.log2(candidates)) + 2
