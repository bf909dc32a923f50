"""Evaluate a control: its verdict must fail, or warn, with exactly its code; no other check may fail."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from envbuilder.controls.control import Control
from envbuilder.finding import Code, Severity
from envbuilder.verdict import CheckResult, Verdict

_RED = ("failed", "error", "timeout")


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a control: the codes, the failed checks, and what is wrong ('' if it is as expected)."""

    codes: tuple[Code, ...]
    red: tuple[str, ...]
    wrong: str = ""


def evaluate(control: Control, verdict: Verdict) -> Evaluation:
    """Compare a verdict with the result that the control must have."""
    red = tuple(check for check in verdict.checks if check.outcome in _RED)
    codes = _distinct(code for check in red for code in _codes(check, Severity.ERROR))
    wrong = _unexplained(verdict, red) or (_too_severe(control, red, codes) if control.warned else "")
    if not wrong and control.warned:
        codes = _warnings(control, verdict)
    wrong = wrong or _unexpected(control, verdict, codes)
    if not wrong and control.simulate and not verdict.simulated:
        wrong = "the verdict does not say that the driver was simulated"
    return Evaluation(codes=codes, red=tuple(check.name for check in red), wrong=wrong)


def _distinct(codes: Iterable[Code]) -> tuple[Code, ...]:
    return tuple(dict.fromkeys(codes))


def _codes(check: CheckResult, severity: Severity) -> tuple[Code, ...]:
    return tuple(finding.code for finding in check.findings if finding.severity is severity)


def _warnings(control: Control, verdict: Verdict) -> tuple[Code, ...]:
    """Return the codes of the warnings. A package without a known wheel is expected if the control adds packages."""
    found = _distinct(code for check in verdict.checks for code in _codes(check, Severity.WARNING))
    expected = {Code.UNKNOWN} if control.changes_lock and control.code is not Code.UNKNOWN else set()
    return tuple(code for code in found if code not in expected)


def _unexplained(verdict: Verdict, red: tuple[CheckResult, ...]) -> str:
    """Name checks that failed without a finding above info, and checks that passed with an error.

    A consequence of another check's error is an explanation: it is a warning.
    """
    silent = [check.name for check in red if all(finding.severity is Severity.INFO for finding in check.findings)]
    if silent:
        return f"failed without a finding: {', '.join(silent)}"
    passed = [check.name for check in verdict.checks if check not in red and _codes(check, Severity.ERROR)]
    return f"an error in a check that did not fail: {', '.join(passed)}" if passed else ""


def _too_severe(control: Control, red: tuple[CheckResult, ...], codes: tuple[Code, ...]) -> str:
    if control.code in codes:
        return f"{control.code} must be a warning, and became an error"
    return f"{control.code} must be a warning, and {', '.join(check.name for check in red)} failed" if red else ""


def _unexpected(control: Control, verdict: Verdict, codes: tuple[Code, ...]) -> str:
    if control.code is None:
        failed = codes or verdict.verdict == "FAILED"
        return f"a good environment failed: {', '.join(codes)}" if failed else ""
    if control.code not in codes:
        found = f" with {', '.join(codes)}" if codes else ""
        return f"{control.code} was not found; the verdict is {verdict.verdict}{found}"
    others = [code for code in codes if code != control.code]
    if others:
        return f"next to {control.code} also {', '.join(others)}"
    right = (verdict.verdict == "FAILED") is not control.warned
    return "" if right else f"{control.code} was found and the verdict is {verdict.verdict}"
