"""Evaluate a control: its verdict must fail, or warn, with exactly its code; no other check may fail."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

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
    red = tuple(check for check in verdict.checks if check.outcome in _RED)
    codes = _codes(red, Severity.ERROR)
    if control.warned and not red:  # a package without a known wheel is expected if the control locks packages
        expected = {Code.UNKNOWN} if control.lock and control.code is not Code.UNKNOWN else set()
        codes = tuple(code for code in _codes(verdict.checks, Severity.WARNING) if code not in expected)
    wrong = next(chain(_unexplained(verdict, red), _unexpected(control, verdict, red, codes)), "")
    return Evaluation(codes=codes, red=tuple(check.name for check in red), wrong=wrong)


def _codes(checks: Iterable[CheckResult], severity: Severity) -> tuple[Code, ...]:
    found = (finding.code for check in checks for finding in check.findings if finding.severity is severity)
    return tuple(dict.fromkeys(found))


def _unexplained(verdict: Verdict, red: tuple[CheckResult, ...]) -> Iterator[str]:
    """Name checks that failed without a finding above info, and checks that passed with an error.

    A consequence of another check's error is an explanation: it is a warning.
    """
    silent = [check.name for check in red if all(finding.severity is Severity.INFO for finding in check.findings)]
    if silent:
        yield f"failed without a finding: {', '.join(silent)}"
    passed = [check.name for check in verdict.checks if check not in red and _codes((check,), Severity.ERROR)]
    if passed:
        yield f"an error in a check that did not fail: {', '.join(passed)}"


def _unexpected(
    control: Control, verdict: Verdict, red: tuple[CheckResult, ...], codes: tuple[Code, ...]
) -> Iterator[str]:
    code, word, found = control.code, verdict.verdict, ", ".join(codes)
    others = [one for one in codes if one != code]
    if control.warned and red:
        failed = ", ".join(check.name for check in red)
        yield f"{code} must be a warning, and {'became an error' if code in codes else f'{failed} failed'}"
    elif code is None and (codes or word == "FAILED"):
        yield f"a good environment failed: {found}"
    elif code and code not in codes:
        yield f"{code} was not found; the verdict is {word}{f' with {found}' if found else ''}"
    elif code and others:
        yield f"next to {code} also {', '.join(others)}"
    elif code and (word == "FAILED") is control.warned:
        yield f"{code} was found and the verdict is {word}"
    if control.simulate and not verdict.simulated:
        yield "the verdict does not say that the driver was simulated"
