"""JUnit XML, as test reporters of CI systems read it: a suite an environment, a case a check."""

from __future__ import annotations

from typing import assert_never
from xml.etree import ElementTree as ET

from envbuilder.report.report_data import name_of
from envbuilder.support import terminal_text
from envbuilder.verdict import CheckResult, Verdict


def junit(verdicts: tuple[Verdict, ...]) -> str:
    """Write verdicts as JUnit XML. Skipped, error and timeout stay apart from passed and failed."""
    root = ET.Element("testsuites", name="envbuilder")
    for verdict in verdicts:
        root.append(_suite(verdict))
    for total in ("tests", "failures", "errors"):
        root.set(total, str(sum(int(suite.get(total, "0")) for suite in root)))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suite(verdict: Verdict) -> ET.Element:
    outcomes = [check.outcome for check in verdict.checks]
    suite = ET.Element(
        "testsuite",
        name=terminal_text.line(name_of(verdict)),
        tests=str(len(outcomes)),
        failures=str(outcomes.count("failed")),
        errors=str(outcomes.count("error") + outcomes.count("timeout")),
        skipped=str(outcomes.count("skipped")),
        time=f"{sum(check.duration_s for check in verdict.checks):.3f}",
        timestamp=terminal_text.line(verdict.started[:19]),
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in _properties(verdict):
        ET.SubElement(properties, "property", name=name, value=terminal_text.line(value))
    for check in verdict.checks:
        suite.append(_case(check))
    return suite


def _properties(verdict: Verdict) -> tuple[tuple[str, str], ...]:
    return (
        ("verdict", verdict.verdict),
        ("level", verdict.level),
        ("simulated", str(verdict.simulated).lower()),
        ("image", verdict.image.id),
        ("digest", verdict.image.digest or ""),
        ("lock", verdict.lock),
        ("suite", verdict.suite),
        ("driver", verdict.host.driver or ""),
        ("gpus", ", ".join(gpu.name for gpu in verdict.host.gpus)),
    )


def _case(check: CheckResult) -> ET.Element:
    case = ET.Element(
        "testcase", name=terminal_text.line(check.name), classname=check.level, time=f"{check.duration_s:.3f}"
    )
    match check.outcome:
        case "passed":
            pass
        case "skipped":
            ET.SubElement(case, "skipped", message=terminal_text.line(check.observed))
        case "failed":
            _problem(case, "failure", check)
        case "error" | "timeout":
            _problem(case, "error", check)
        case _ as never:
            assert_never(never)
    if check.log:
        ET.SubElement(case, "system-out").text = terminal_text.text(check.log)
    return case


def _problem(case: ET.Element, tag: str, check: CheckResult) -> None:
    codes = ", ".join(finding.code for finding in check.findings)
    kind, message = terminal_text.line(codes) or check.outcome, terminal_text.line(check.observed)
    element = ET.SubElement(case, tag, type=kind, message=message)
    lines = [f"expected: {check.expected}", f"observed: {check.observed}"]
    for finding in check.findings:
        lines += [f"{finding.code}: {finding.message}", *([f"fix: {finding.fix}"] if finding.fix else [])]
    element.text = "\n".join(map(terminal_text.line, lines))
