"""A finding: one statement about an environment, under a stable code that every command shares."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from envbuilder.finding.codes import Code

__all__ = ["SEVERITY_RANK", "Code", "Finding", "Severity", "compatible", "worst_first"]


class Severity(StrEnum):
    """How much a finding matters: an error makes an environment incompatible."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


SEVERITY_RANK = {severity: rank for rank, severity in enumerate(Severity)}
"""Where a severity stands: findings are shown most serious first, in the order of the enumeration."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What was found about ``subject``: what is required, what is there instead, and what mends it.

    ``fix`` is one sentence that a person can follow; ``sources`` are the places that ``message`` rests on.
    """

    code: Code
    severity: Severity
    subject: str
    message: str
    requires: str = ""
    found: str = ""
    fix: str = ""
    sources: tuple[str, ...] = ()


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings by severity, the most serious first; those of one severity keep their order."""
    return tuple(sorted(findings, key=lambda finding: SEVERITY_RANK[finding.severity]))


def compatible(findings: tuple[Finding, ...]) -> bool | None:
    """Judge findings: False where one is an error, None where the catalogue is silent, True otherwise."""
    if any(f.severity is Severity.ERROR for f in findings):
        return False
    if any(f.code is Code.UNKNOWN for f in findings):
        return None
    return True
