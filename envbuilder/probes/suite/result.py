"""The shape of a check's result: outcome, expectation, observation, findings and measurements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Dict, List, Union

Facts = Dict[str, Any]
"""The facts of the plan, as JSON. Python 3.7 evaluates these aliases, so they are of ``typing``."""
Order = Dict[str, Any]
"""One check of the plan, or one group of checks."""
Finding = Dict[str, str]
Measurement = Dict[str, Union[float, str]]
Phase = Dict[str, List[float]]
Answer = Dict[str, Any]
"""Outcome, expected, observed, findings, measurements, phases, data of a check."""


def passed(expected: str = "", observed: str = "", **more: Any) -> Answer:
    return _answer("passed", expected, observed, more)


def failed(expected: str = "", observed: str = "", **more: Any) -> Answer:
    return _answer("failed", expected, observed, more)


def skipped(reason: str, **more: Any) -> Answer:
    """Return a skipped result with its reason; it is never a success."""
    return _answer("skipped", more.pop("expected", ""), reason, more)


def judged(findings: Sequence[Finding], expected: str = "", observed: str = "", **more: Any) -> Answer:
    wrong = any(found["severity"] == "error" for found in findings)
    return _answer("failed" if wrong else "passed", expected, observed, dict(more, findings=findings))


def finding(
    code: str,
    subject: object,
    message: object,
    requires: object = "",
    found: object = "",
    fix: object = "",
    severity: str = "error",
) -> Finding:
    return {
        "code": code,
        "severity": severity,
        "subject": str(subject)[:300],
        "message": str(message)[:2000],
        "requires": str(requires)[:500],
        "found": str(found)[:2000],
        "fix": str(fix)[:500],
    }


def measure(value: float, unit: str) -> Measurement:
    """Return a quantity with its unit: an SI symbol, ``B``, or ``1`` for counts and ratios."""
    return {"value": float(value), "unit": unit}


def phase(cold: Iterable[float] = (), warm: Iterable[float] = ()) -> Phase:
    """Return the samples of one phase of start-up, in seconds, each from a fresh process."""
    return {"cold_s": [float(value) for value in cold], "warm_s": [float(value) for value in warm]}


def _answer(outcome: str, expected: str, observed: str, more: Mapping[str, Any]) -> Answer:
    return {
        "outcome": outcome,
        "expected": str(expected)[:4000],
        "observed": str(observed)[:4000],
        "findings": list(more.get("findings", ())),
        "measurements": dict(more.get("measurements", {})),
        "phases": dict(more.get("phases", {})),
        "data": more.get("data"),
    }
