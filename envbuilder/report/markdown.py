"""Markdown for the summary page of a CI job or a pull request: the table first, then what to do about the rest."""

from __future__ import annotations

from envbuilder.finding import Finding, worst_first
from envbuilder.report.report_data import name_of
from envbuilder.support import terminal_text
from envbuilder.verdict import Verdict

_SIGN = {"PASSED": "✅", "FAILED": "❌", "INCONCLUSIVE": "❔"}


def markdown(verdicts: tuple[Verdict, ...]) -> str:
    """Write verdicts as a summary: a row an environment, and the findings of those that did not pass."""
    words = [verdict.verdict for verdict in verdicts]
    counts = ", ".join(f"{words.count(word)} {word}" for word in _SIGN if word in words) or "no verdicts"
    lines = [f"### envbuilder: {counts}", "", "| environment | verdict | level | driver | size | checks |"]
    lines += ["| --- | --- | --- | --- | ---: | --- |", *map(_row, verdicts), ""]
    for verdict in verdicts:
        lines += _details(verdict)
    return "\n".join(lines).rstrip() + "\n"


def _row(verdict: Verdict) -> str:
    simulated = " (simulated)" if verdict.simulated else ""
    outcomes = [check.outcome for check in verdict.checks]
    counts = ", ".join(f"{outcomes.count(word)} {word}" for word in dict.fromkeys(outcomes))
    cells = (
        terminal_text.markdown(name_of(verdict)),
        f"{_SIGN[verdict.verdict]} {verdict.verdict}{simulated}",
        verdict.level,
        terminal_text.markdown(verdict.host.driver or "none"),
        f"{verdict.image.size / 1e9:.2f} GB" if verdict.image.size else "-",
        counts or "none",
    )
    return f"| {' | '.join(cells)} |"


def _details(verdict: Verdict) -> list[str]:
    if verdict.verdict == "PASSED" and not verdict.findings:
        return []
    lines = [f"<details><summary>{terminal_text.markdown(name_of(verdict))}: {verdict.verdict}</summary>", ""]
    lines += [f"- {terminal_text.markdown(reason)}" for reason in verdict.reasons]
    lines += [_finding(finding) for finding in worst_first(verdict.findings)]
    return [*lines, "", "</details>", ""]


def _finding(finding: Finding) -> str:
    fix = f" **Fix:** {terminal_text.markdown(finding.fix)}" if finding.fix else ""
    code, message = terminal_text.markdown(finding.code), terminal_text.markdown(finding.message)
    return f"- **{code}** ({finding.severity}): {message}{fix}"
