"""Quantities that are outcomes: the verdict, checks, the user's tests, models that one side saved for the other."""

from __future__ import annotations

from collections.abc import Sequence

from envbuilder.upgrade import outcomes
from envbuilder.upgrade.figures import Figures, Sides, count, not_asked, unknown
from envbuilder.upgrade.upgrade_document import OutcomeChange


def verdict(sides: Sides) -> Figures:
    """Read the new side's verdict."""
    match sides.new.verdict:
        case "PASSED":
            return Figures(0, 0, "PASSED")
        case "FAILED":
            return Figures(1, 1, "FAILED", sides.new.reasons)
        case "INCONCLUSIVE":
            return Figures(None, None, "INCONCLUSIVE", sides.new.reasons)
        case None:
            return unknown("not validated")


def checks(sides: Sides) -> Figures:
    """Count the checks that newly fail."""
    changes = sides.differences.checks
    return unknown("one side has no verdict") if changes is None else count(_failures(changes))


def _failures(changes: Sequence[OutcomeChange]) -> list[str]:
    rows = outcomes.newly_failed(changes)
    return [f"{_change(c)}: {c.message}{c.again and ' (' + c.again + ')'}" for c in rows]


def _change(change: OutcomeChange) -> str:
    return f"{change.name}: {change.old or 'absent'} → {change.new or 'absent'}"


def newly_failing_tests(sides: Sides) -> Figures:
    """Count the user's tests that newly fail; a suite of which nothing passed on the old side can say nothing."""
    changes, counted = sides.differences.tests, sides.differences.tests_counted
    total = sides.differences.tests_run
    if total is None:
        return not_asked("no --suite given")
    if changes is None or not total:
        return unknown("no test gave an answer")
    failed = _failures(changes)
    both = f", {counted.passed_both} of {total} pass on both" if counted else ""
    if failed:
        return Figures(len(failed), len(failed), f"{len(failed)} of {total} tests{both}", tuple(failed))
    if counted is not None and not counted.passed_old:
        return Figures(None, None, f"none of {total} passed on the old side", counted.failed_before)
    if counted is not None and not counted.ended:
        return Figures(None, None, f"the run did not come to its end{both}", counted.failed_before)
    return Figures(0, 0, f"none of {total}{both}")


def failed_before(sides: Sides) -> Figures:
    """Count the user's tests that did not run and pass on the old side: nothing can be concluded from them."""
    counted = sides.differences.tests_counted
    if counted is None:
        return not_asked("no --suite given") if sides.differences.tests_run is None else unknown("nothing was counted")
    return count(counted.failed_before, nothing=f"none of {counted.total}")


def flaky(sides: Sides) -> Figures:
    """Count the user's tests that fail now and then, as running them again showed."""
    changes = sides.differences.tests
    if changes is None:
        return not_asked("no --suite given")
    return count([f"{_change(c)}: {c.again}: {c.message}" for c in changes if c.flaky])


def models(sides: Sides, saved_by: str) -> Figures:
    """Count the formats that one side saved and the other does not load, or predicts otherwise from."""
    rows = sides.differences.models
    if rows is None:
        return unknown("not exchanged")
    own = [row for row in rows if row.saved_by == saved_by]
    return count([f"{row.name}: {row.wrong}" for row in own if row.wrong], nothing=f"none of {len(own)} formats")
