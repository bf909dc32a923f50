"""The exit code of every document that a command prints."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from envbuilder.errors import ExitCode, most_severe, verdict_exit_code

_DECISIONS = {
    "ADOPT": ExitCode.DONE,
    "ADOPT_WITH_NOTES": ExitCode.DONE,
    "REJECT": ExitCode.FAILED,
    "UNDECIDED": ExitCode.NO_CLAIM,
}
_ANSWERS = {True: ExitCode.DONE, False: ExitCode.FAILED, None: ExitCode.NO_CLAIM}


class Document(Protocol):
    """A document that a command prints. Its schema is ``envbuilder/<name>/v1``."""

    @property
    def schema(self) -> str:
        """Return the name of the schema."""


def of(document: Document) -> int:
    """Return the exit code of the command that answers with this document."""
    return EXIT_CODES[document.schema](document)


EXIT_CODES: Mapping[str, Callable[[Any], int]] = {
    "envbuilder/run/v1": lambda run: most_severe(row.exit_code for row in run.rows),
    "envbuilder/plan/v1": lambda plan: ExitCode.DONE if plan.environments else ExitCode.UNSATISFIABLE,
    "envbuilder/newest/v1": lambda found: (
        ExitCode.DONE
        if any(row.tensorflow for row in found.newest)
        else ExitCode.NO_CLAIM
        if any(row.compatible is None for row in found.newest)
        else ExitCode.UNSATISFIABLE
    ),
    "envbuilder/choose/v1": lambda chosen: _ANSWERS[chosen.compatible],
    "envbuilder/check/v1": lambda check: _ANSWERS[check.compatible],
    "envbuilder/explain/v1": lambda _: ExitCode.DONE,
    "envbuilder/verdict/v1": lambda verdict: verdict_exit_code(verdict.verdict),
    "envbuilder/controls/v1": lambda controls: _ANSWERS[all(row.right for row in controls.rows)],
    "envbuilder/control-list/v1": lambda _: ExitCode.DONE,
    "envbuilder/fleet/v1": lambda fleet: (
        ExitCode.DONE if fleet.asked == "plan" else most_severe(row.exit_code for row in fleet.rows)
    ),
    "envbuilder/proof/v1": lambda proof: proof.exit_code,
    "envbuilder/publish/v1": lambda publish: most_severe(row.exit_code for row in publish.rows),
    "envbuilder/verify/v1": lambda found: (
        ExitCode.DONE if found.accepted else ExitCode.INFRASTRUCTURE if found.unanswered else ExitCode.PUBLISH_FAILED
    ),
    "envbuilder/upgrade/v1": lambda upgrade: _DECISIONS[upgrade.decision],
    # Unknown: skipped versions between the last good and the first bad one, or a command that is not stable.
    "envbuilder/bisect/v1": lambda found: (
        ExitCode.NO_CLAIM if found.result is None or found.result.between or found.result.doubt else ExitCode.DONE
    ),
    "envbuilder/reproduce/v1": lambda reproduction: _ANSWERS[reproduction.answered],
    "envbuilder/diagnose/v1": lambda found: _ANSWERS[found.compatible],
    "envbuilder/doctor/v1": lambda found: ExitCode.INFRASTRUCTURE if found.engine is None else ExitCode.DONE,
    "envbuilder/clean/v1": lambda clean: (
        ExitCode.INFRASTRUCTURE if any(image.kept for image in clean.images) else ExitCode.DONE
    ),
    "envbuilder/catalog/v1": lambda _: ExitCode.DONE,
    "envbuilder/compatibility/v1": lambda _: ExitCode.DONE,
    "envbuilder/base/v1": lambda found: _ANSWERS[not found.refused and not found.disagreements],
    "envbuilder/catalog-verify/v1": lambda found: _ANSWERS[not found.disagreements],
    "envbuilder/catalog-refresh/v1": lambda _: ExitCode.DONE,
    "envbuilder/error/v1": lambda error: error.exit_code,
}
