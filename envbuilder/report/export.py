"""Verdicts in the formats of other tools: JUnit XML, Markdown for summaries, metrics for Prometheus."""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from xml.etree import ElementTree as ET

from envbuilder.compat.selectors import select
from envbuilder.errors import InputError, NothingSelectedError, Problem, UsageError
from envbuilder.finding import worst_first
from envbuilder.report.metrics import prometheus
from envbuilder.report.report_data import STRANGE, name_of, readable
from envbuilder.support import decoding, terminal_text
from envbuilder.validation.verdict_store import History, read_verdict, users_verdict
from envbuilder.verdict import CheckResult, Verdict
from envbuilder.workspace import Workspace


def export_verdicts(
    form: str,
    workspace: Workspace,
    files: Sequence[Path] = (),
    store: Path | None = None,
    since: datetime | None = None,
    selectors: Sequence[str] = (),
) -> str:
    """Write verdicts of files, else of a history (``store``, ``since``), else the newest in ``out/``.

    A record that cannot be read is INCONCLUSIVE. Raises InputError for a file that is not a verdict,
    NothingSelectedError if there is no verdict.
    """
    unread: tuple[Verdict, ...] = ()
    if files and (store or since):
        raise UsageError("--store and --since choose verdicts of a history", hint="leave them out, or the files")
    if files:
        verdicts = _from_files(files)
    elif store is None and since is None:
        damaged: dict[Path, str] = {}
        verdicts = tuple(readable(workspace.verdicts(), read_verdict, damaged).values())
        unread = tuple(_unread(path.parent.name, why) for path, why in damaged.items())
    else:
        verdicts, strange = History(store or workspace.history).read(since)
        unread = tuple(_unread(f"record {name}", STRANGE) for name in strange)
    if selectors:
        environments = tuple(one.environment for one in verdicts if one.environment is not None)
        chosen = {one.id for one in select(environments, tuple(selectors))}
        verdicts = tuple(one for one in verdicts if name_of(one) in chosen)
    if not verdicts + unread:
        raise NothingSelectedError("there is no verdict to export", hint="envbuilder run, or name a verdict.json")
    return FORMATS[form](verdicts + unread)


def _unread(name: str, why: str) -> Verdict:
    """Return a verdict in place of a record that cannot be read: nothing is known about its image."""
    known: dict[str, object] = dict.fromkeys(("started", "finished"), "1970-01-01T00:00:00+00:00")
    known |= {"image": {"id": "", "reference": name}, "reasons": [f"the record cannot be read: {why}"], "host": {}}
    known |= {"checks": [{"name": "record", "tier": "static", "outcome": "error", "observed": why}], "requires": []}
    known |= {"environment": None, "engine": {"name": "", "version": ""}, "lock": "", "suite": "", "simulated": False}
    return decoding.converted({**known, "verdict": "INCONCLUSIVE", "level": "none"}, Verdict)


def _from_files(files: Sequence[Path]) -> tuple[Verdict, ...]:
    found, problems = list[Verdict](), list[Problem]()
    for path in files:
        try:
            if (verdict := users_verdict(path)) not in found:  # a run counts once
                found.append(verdict)
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(tuple(problems), hint="envbuilder run writes out/<id>/verdict.json")
    return tuple(found)


def junit(verdicts: tuple[Verdict, ...]) -> str:
    """Write a suite for each environment, a case for each check. Skipped and error are neither passed nor failed."""
    root = ET.Element("testsuites", name="envbuilder")
    root.extend(map(_suite, verdicts))
    for total in ("tests", "failures", "errors"):
        root.set(total, str(sum(int(suite.get(total, "0")) for suite in root)))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suite(verdict: Verdict) -> ET.Element:
    checks = verdict.checks
    if verdict.verdict != "PASSED" and {check.outcome for check in checks} <= {"passed"}:  # no suite of it is green
        checks += (CheckResult(name="verdict", level="static", outcome="error", observed="; ".join(verdict.reasons)),)
    outcomes = [check.outcome for check in checks]
    suite = ET.Element(
        "testsuite",
        name=terminal_text.line(name_of(verdict)),
        tests=str(len(outcomes)),
        failures=str(outcomes.count("failed")),
        errors=str(outcomes.count("error") + outcomes.count("timeout")),
        skipped=str(outcomes.count("skipped")),
        time=f"{sum(check.duration_s for check in checks):.3f}",
        timestamp=terminal_text.line(verdict.started[:19]),
    )
    properties = {
        "verdict": verdict.verdict,
        "level": verdict.level,
        "simulated": str(verdict.simulated).lower(),
        "image": verdict.image.id,
        "digest": verdict.image.digest or "",
        "lock": verdict.lock,
        "suite": verdict.suite,
        "driver": verdict.host.driver or "",
        "gpus": ", ".join(gpu.name for gpu in verdict.host.gpus),
    }
    parent = ET.SubElement(suite, "properties")
    for name, value in properties.items():
        ET.SubElement(parent, "property", name=name, value=terminal_text.line(value))
    suite.extend(map(_case, checks))
    return suite


_TAGS = {"failed": "failure", "error": "error", "timeout": "error", "skipped": "skipped"}


def _case(check: CheckResult) -> ET.Element:
    name = terminal_text.line(check.name)
    case = ET.Element("testcase", name=name, classname=check.level, time=f"{check.duration_s:.3f}")
    if check.outcome != "passed":
        element = ET.SubElement(case, _TAGS[check.outcome], message=terminal_text.line(check.observed))
        if check.outcome != "skipped":
            codes = ", ".join(finding.code for finding in check.findings)
            element.set("type", terminal_text.line(codes) or check.outcome)
            lines = [f"expected: {check.expected}", f"observed: {check.observed}"]
            for finding in check.findings:
                lines += [f"{finding.code}: {finding.message}", *([f"fix: {finding.fix}"] if finding.fix else [])]
            element.text = "\n".join(map(terminal_text.line, lines))
    if check.log:
        ET.SubElement(case, "system-out").text = terminal_text.text(check.log)
    return case


_SIGN = {"PASSED": "✅", "FAILED": "❌", "INCONCLUSIVE": "❔"}


def markdown(verdicts: tuple[Verdict, ...]) -> str:
    """Write a summary for a CI job: a row for each environment, then the findings of those that did not pass."""
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
    for one in worst_first(verdict.findings):
        code, message, fix = map(terminal_text.markdown, (one.code, one.message, one.fix))
        lines.append(f"- **{code}** ({one.severity}): {message}{f' **Fix:** {fix}' if fix else ''}")
    return [*lines, "", "</details>", ""]


FORMATS: dict[str, Callable[[tuple[Verdict, ...]], str]] = {
    "junit": junit,
    "markdown": markdown,
    "prometheus": prometheus,
}
