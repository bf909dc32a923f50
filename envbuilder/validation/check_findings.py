"""Findings of the checks on the host, with the texts of check_findings.yaml, and the output of a check."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from envbuilder.finding import Code, Finding, Severity
from envbuilder.support import terminal_text
from envbuilder.validation.image_context import CheckOutput, ImageContext
from envbuilder.verdict import Measurement
from envbuilder.workspace import packaged_yaml


class _Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    code: Code
    subject: str
    message: str
    severity: Severity = Severity.ERROR
    requires: str = ""
    found: str = ""
    fix: str = ""


@cache
def texts() -> dict[str, _Text]:
    return packaged_yaml(resources.files("envbuilder.validation") / "check_findings.yaml", dict[str, _Text])


def found(name: str, severity: Severity | None = None, /, **fields: object) -> Finding:
    """Write a finding, every text on one line, so that an image's text starts no line of a report."""
    text = texts()[name]
    parts = ("subject", "message", "requires", "found", "fix")
    lines: dict[str, Any] = {part: terminal_text.line(getattr(text, part).format_map(fields)) for part in parts}
    return Finding(code=text.code, severity=severity or text.severity, **lines)


def output(findings: Iterable[Finding], expected: str, observed: str, **counts: int) -> CheckOutput:
    told = tuple(findings)
    measured = tuple((name, Measurement(count, "1")) for name, count in counts.items())
    return CheckOutput(told, expected, "; ".join(one.message for one in told) or observed, measured)


def unread(subject: ImageContext, check: str) -> CheckOutput:
    """Return the output of a check if a bound of the image's budget is reached: the check ``files`` reports it."""
    why = f"the image cannot be checked: {subject.files.budget.reached}"
    findings = (found("unread", subject.severity, why=why),) if check == "files" else ()
    return CheckOutput(findings, "files that can be read", why, undecided=why)
