"""Exit codes: what each says, which of several counts, and the one table from a document to its code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, Protocol


class ExitCode(IntEnum):
    """Every code that a command ends with."""

    DONE = 0
    FAILED = 1
    """A verdict FAILED, incompatible, stale, REJECT."""
    USAGE = 2
    NOTHING_SELECTED = 3
    UNSATISFIABLE = 4
    INFRASTRUCTURE = 5
    BUILD_FAILED = 6
    PUBLISH_FAILED = 7
    NO_CLAIM = 8
    """INCONCLUSIVE, UNDECIDED, or the catalogue makes no claim."""
    BUG = 70
    INTERRUPTED = 130


ORDER = (
    ExitCode.BUG,
    ExitCode.INFRASTRUCTURE,
    ExitCode.PUBLISH_FAILED,
    ExitCode.BUILD_FAILED,
    ExitCode.USAGE,
    ExitCode.UNSATISFIABLE,
    ExitCode.NOTHING_SELECTED,
    ExitCode.FAILED,
    ExitCode.NO_CLAIM,
)
"""Where rows differ, the first of these counts; then any other code that is not 0; only then 0."""


def first(codes: Iterable[int]) -> int:
    """Return the code of several together: a code that is not 0 is never lost. 0 where there are none."""
    there = set(codes) - {ExitCode.DONE}
    return min(there, key=lambda code: (ORDER.index(code) if code in ORDER else len(ORDER), code), default=0)


_VERDICTS = {"PASSED": ExitCode.DONE, "FAILED": ExitCode.FAILED, "INCONCLUSIVE": ExitCode.NO_CLAIM}
_DECISIONS = {
    "ADOPT": ExitCode.DONE,
    "ADOPT_WITH_NOTES": ExitCode.DONE,
    "REJECT": ExitCode.FAILED,
    "UNDECIDED": ExitCode.NO_CLAIM,
}
_ANSWERS = {True: ExitCode.DONE, False: ExitCode.FAILED, None: ExitCode.NO_CLAIM}


def of_verdict(word: str) -> int:
    """Return the code of a verdict's word."""
    return _VERDICTS[word]


class Document(Protocol):
    """What a command prints: a value that names its schema, ``envbuilder/<name>/v1``."""

    @property
    def schema(self) -> str:
        """The name of its schema."""


def of(document: Document) -> int:
    """Return the exit code of the command that answers with this document."""
    return EXITS[document.schema](document)


def _done(_: Document) -> int:
    """Say that what was asked for is there, whatever it says."""
    return ExitCode.DONE


EXITS: Mapping[str, Callable[[Any], int]] = {
    "envbuilder/run/v1": lambda run: first(row.exit_code for row in run.rows),
    "envbuilder/plan/v1": lambda plan: ExitCode.DONE if plan.environments else ExitCode.UNSATISFIABLE,
    "envbuilder/newest/v1": lambda found: (
        ExitCode.DONE
        if any(row.tensorflow for row in found.newest)
        else ExitCode.NO_CLAIM
        if any(row.compatible is None for row in found.newest)
        else ExitCode.UNSATISFIABLE
    ),
    "envbuilder/check/v1": lambda check: _ANSWERS[check.compatible],
    "envbuilder/explain/v1": _done,
    "envbuilder/verdict/v1": lambda verdict: of_verdict(verdict.verdict),
    "envbuilder/controls/v1": lambda controls: _ANSWERS[all(row.right for row in controls.rows)],
    "envbuilder/control-list/v1": _done,
    "envbuilder/fleet/v1": lambda fleet: (
        ExitCode.DONE if fleet.asked == "plan" else first(row.exit_code for row in fleet.rows)
    ),
    "envbuilder/proof/v1": lambda proof: proof.exit_code,
    "envbuilder/publish/v1": lambda publish: first(row.exit_code for row in publish.rows),
    "envbuilder/verify/v1": lambda found: (
        ExitCode.DONE if found.accepted else ExitCode.INFRASTRUCTURE if found.unanswered else ExitCode.PUBLISH_FAILED
    ),
    "envbuilder/upgrade/v1": lambda upgrade: _DECISIONS[upgrade.decision],
    # Skipped versions between the last good and the first bad, or a command that is not stable: nobody can tell.
    "envbuilder/bisect/v1": lambda found: (
        ExitCode.NO_CLAIM if found.result is None or found.result.between or found.result.doubt else ExitCode.DONE
    ),
    "envbuilder/reproduce/v1": lambda reproduction: _ANSWERS[reproduction.answered],
    "envbuilder/doctor/v1": _done,
    "envbuilder/clean/v1": lambda clean: (
        ExitCode.INFRASTRUCTURE if any(image.kept for image in clean.images) else ExitCode.DONE
    ),
    "envbuilder/catalog/v1": _done,
    "envbuilder/base/v1": lambda found: _ANSWERS[not found.refused and not found.disagreements],
    "envbuilder/catalog-verify/v1": lambda found: _ANSWERS[not found.disagreements],
    "envbuilder/catalog-refresh/v1": _done,
    "envbuilder/error/v1": lambda error: error.exit_code,
}
"""The code of every document that a command prints."""
