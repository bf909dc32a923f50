"""Findings: one order of severity for everything that shows them."""

from __future__ import annotations

from envbuilder.finding import SEVERITY_RANK, Code, Finding, Severity, worst_first


def test_errors_come_first_and_equals_keep_their_order() -> None:
    """Errors, then warnings, then what is only worth knowing; sorting is stable."""
    severities = (Severity.INFO, Severity.ERROR, Severity.WARNING, Severity.ERROR)
    given = [
        Finding(code=Code.UNKNOWN, severity=severity, subject=str(place), message="m")
        for place, severity in enumerate(severities)
    ]
    assert [finding.subject for finding in worst_first(given)] == ["1", "3", "2", "0"]
    assert sorted(SEVERITY_RANK, key=SEVERITY_RANK.__getitem__) == list(Severity)
