"""Judge a control: its verdict must fail, or warn, with exactly the one code, and nothing else may be red."""

from __future__ import annotations

import msgspec

from envbuilder.controls.control import Control
from envbuilder.finding import Code, Severity
from envbuilder.verdict import CheckResult, Verdict, Word

_RED = ("failed", "error", "timeout")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a control: the codes found, the checks that were red, and why it is not right ('' where it is)."""

    codes: tuple[Code, ...]
    red: tuple[str, ...]
    wrong: str = ""


def answer(control: Control, verdict: Verdict) -> Answer:
    """Hold a verdict against what the control must lead to."""
    red = tuple(check for check in verdict.checks if check.outcome in _RED)
    codes = tuple(dict.fromkeys(code for check in red for code in _codes(check)))
    wrong = _without_reason(control, verdict, red) or _louder(control, red, codes)
    if not wrong and control.warned:
        codes = _warned(control, verdict)
        wrong = _only_warned(control, verdict.verdict, codes)
    elif not wrong:
        wrong = _otherwise(control, verdict.verdict, codes)
    if not wrong and control.simulate and not verdict.simulated:
        wrong = "the verdict does not say that the driver was simulated"
    return Answer(codes=codes, red=tuple(check.name for check in red), wrong=wrong)


def _codes(check: CheckResult) -> tuple[Code, ...]:
    return tuple(finding.code for finding in check.findings if finding.severity is Severity.ERROR)


def _warned(control: Control, verdict: Verdict) -> tuple[Code, ...]:
    """Name the codes of the warnings; that a package's wheel is unknown is no news where the control brings it."""
    found = (one.code for check in verdict.checks for one in check.findings if one.severity is Severity.WARNING)
    own = frozenset({Code.UNKNOWN} if control.changes_lock and control.code is not Code.UNKNOWN else ())
    return tuple(code for code in dict.fromkeys(found) if code not in own)


def _only_warned(control: Control, word: Word, codes: tuple[Code, ...]) -> str:
    if control.code not in codes:
        return f"{control.code} was not found; the verdict is {word}" + (f" with {', '.join(codes)}" if codes else "")
    others = [code for code in codes if code != control.code]
    if others:
        return f"beside {control.code} also {', '.join(others)}"
    return f"{control.code} is a warning, and the verdict is {word}" if word == "FAILED" else ""


def _without_reason(control: Control, verdict: Verdict, red: tuple[CheckResult, ...]) -> str:
    """Name what is red for no stated reason, or was found as an error by a check that passed.

    What follows from an error that another check has named is a reason, and stands there as a warning.
    """
    silent = [check.name for check in red if all(finding.severity is Severity.INFO for finding in check.findings)]
    if silent:
        return f"red without a finding: {', '.join(silent)}"
    loud = [check.name for check in verdict.checks if check not in red and _codes(check)]
    return f"{control.name}: an error in a check that is not red: {', '.join(loud)}" if loud else ""


def _louder(control: Control, red: tuple[CheckResult, ...], codes: tuple[Code, ...]) -> str:
    """Say that something is red where only a warning may be: the control's own code too would be louder than it is."""
    if not control.warned or not red:
        return ""
    if control.code in codes:
        return f"{control.code} is to be a warning, and became an error"
    return f"{control.code} is to be a warning, and {', '.join(check.name for check in red)} is red"


def _otherwise(control: Control, word: Word, codes: tuple[Code, ...]) -> str:
    if control.code is None:
        return f"a good environment is red: {', '.join(codes)}" if codes or word == "FAILED" else ""
    if control.code not in codes:
        return f"{control.code} was not found; the verdict is {word}" + (f" with {', '.join(codes)}" if codes else "")
    others = [code for code in codes if code != control.code]
    if others:
        return f"beside {control.code} also {', '.join(others)}"
    return "" if word == "FAILED" else f"{control.code} was found and the verdict is {word}"
