"""Evaluate results: from the outcome of every check to a verdict, a level and reasons."""

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from envbuilder import verdict
from envbuilder.environment import Flavor
from envbuilder.finding import Code, Finding, Severity, worst_first
from envbuilder.matrix import Budgets
from envbuilder.probes.suite.installed import normalise
from envbuilder.validation.image_context import CheckOutput, found
from envbuilder.verdict import CheckLevel, CheckResult, Level, Measurement, Outcome, Word, is_passed
from envbuilder.workspace import packaged_yaml

_BUDGETS = packaged_yaml("validation/budgets.yaml", dict[str, tuple[CheckLevel, str]])  # The file explains them


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    verdict: Word
    level: Level
    requires: tuple[CheckLevel, ...]
    findings: tuple[Finding, ...]
    reasons: tuple[str, ...]


def judge(results: tuple[CheckResult, ...], *, flavor: Flavor, gpus: int = 0, simulated: bool = False) -> Judgement:
    """Evaluate the results of all checks.

    FAILED if a required check failed, crashed or ran out of time; PASSED only if every required check passed and
    nothing was simulated; else INCONCLUSIVE. A level without checks is not passed.
    """
    requires = verdict.required_levels(flavor, gpus)
    reasons = [_reason(result) for result in results if result.level in requires and not is_passed(result)]
    levels = {result.level for result in results}
    reasons += [f"no check of the {level} level ran" for level in requires if level not in levels]
    if simulated:
        reasons.append("the driver was simulated: nothing was computed on a GPU")
    findings: dict[tuple[Code, str, str], Finding] = {}
    for finding in (finding for result in results for finding in result.findings):
        findings.setdefault((finding.code, finding.subject, finding.message), finding)
    return Judgement(
        verdict=verdict.word_of(results, requires, simulated=simulated),
        level=verdict.level_of(results, simulated=simulated),
        requires=requires,
        findings=worst_first(findings.values()),
        reasons=tuple(reasons),
    )


def _reason(result: CheckResult) -> str:
    if result.outcome == "skipped":
        return f"{result.level}: {result.name} was not run: {result.observed}"
    errors = [one for one in result.findings if one.severity is Severity.ERROR] or result.findings
    what = "; ".join(f"{finding.code}: {finding.message}" for finding in errors) or result.observed
    return f"{result.level}: {result.name} {result.outcome}: {what}"


def budget_results(results: Iterable[CheckResult], budgets: Budgets, size: int) -> Iterator[CheckResult]:
    """Compare measurements, and the image's ``size`` in bytes, with budgets; without a measurement one is skipped."""
    measured = {"size": size / 1e9}
    for name, one in (pair for result in results for pair in result.measurements.items()):
        measured[name] = max(one.value, measured.get(name, 0.0))
    for row, (level, words) in _BUDGETS.items():
        (name, _, unit), bound = row.rpartition("_"), getattr(budgets, row)
        if bound is None:
            continue
        value = measured.get(name)
        outcome: Outcome = "skipped" if value is None else "passed" if value <= bound else "failed"
        exceeded = found("over_budget", name=row, value=f"{value or 0:.3g}", words=words, bound=f"{bound:g}")
        yield CheckResult(
            name=f"budget-{name.replace('_', '-')}",
            level=level,
            outcome=outcome,
            expected=f"at most {bound:g} {words}",
            observed="not measured" if value is None else f"{value:.3g} {words}",
            findings=(exceeded,) if outcome == "failed" else (),
            measurements={} if value is None else {row: Measurement(value, "GB" if unit == "gb" else unit)},
        )


class _Consequence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    causes: frozenset[Code]
    effects: frozenset[Code]
    subjects: frozenset[str] = frozenset()
    same_file: bool = False
    traced: bool = False


def mark_consequences(results: Iterable[CheckResult], causes: CheckOutput) -> tuple[CheckResult, ...]:
    """Return the results with each error that only follows from a cause as a warning that says so.

    If a traceback names packages, the cause is the one that it names deepest, and none of a package that it does not
    name. Without any error, a setting that may do what a probe shows becomes an error itself. No outcome improves.
    """
    results = tuple(results)
    effects = [one for x in results for one in x.findings if one.severity is Severity.ERROR and x.outcome != "passed"]
    errors = [one for one in causes.findings if one.severity is Severity.ERROR]
    suspects = [one for one in causes.findings if not errors and one.subject in causes.follow]
    raised = {
        one: msgspec.structs.replace(one, severity=Severity.ERROR)
        for one in suspects
        if any(_is_cause(one, effect, causes) for effect in effects)
    }
    marked, errors = [], [*errors, *raised.values()]
    for one in results:
        if any(finding in raised for finding in one.findings):
            findings = tuple(raised.get(finding, finding) for finding in one.findings)
            marked.append(msgspec.structs.replace(one, outcome="failed", findings=findings))
        elif one.outcome == "passed" or any(finding in errors for finding in one.findings):
            marked.append(one)
        else:
            named = _traced(f"{one.log}\n{one.observed}", errors, causes)
            findings = tuple(_as_consequence(finding, errors, causes, named) for finding in one.findings)
            marked.append(msgspec.structs.replace(one, findings=findings))
    return tuple(marked)


def _traced(text: str, errors: list[Finding], causes: CheckOutput) -> list[str]:
    """Return what packages tracebacks name, of each first those in its message, then those of its deepest frames."""
    named, bare = list[str](), {one.subject: one.subject for one in errors}
    for block in text.split("Traceback (most recent call last):"):
        words = re.findall(r"[A-Za-z_][\w.]*", " ".join(re.findall(r"(?m)^\w[\w.]*: (.+)$", block)))
        frames = re.findall(r'(?m)^ +File "[^"]+-packages/([^"]+)\.py", line', block)
        for parts in (re.split("[./]", word) for word in (*words, *reversed(frames))):
            own = (causes.owners.get(".".join(parts[:depth])) for depth in (3, 2, 1))
            named.append(next(filter(None, own), bare.get(normalise(parts[0]), "")))
    return list(dict.fromkeys(filter(None, named)))


def _as_consequence(effect: Finding, errors: list[Finding], causes: CheckOutput, named: list[str]) -> Finding:
    others = {*causes.owners.values()} - {*named} if named else set()
    left = [one for one in errors if one.subject not in others and _is_cause(one, effect, causes, named)]
    cause = min(left, key=lambda one: [*named, one.subject].index(one.subject), default=None)
    if effect.severity is not Severity.ERROR or cause is None:
        return effect
    message = f"{effect.message} (follows from {cause.code}: {cause.subject})"
    return msgspec.structs.replace(effect, severity=Severity.WARNING, message=message, fix="")  # the cause has one


def _is_cause(cause: Finding, effect: Finding, causes: CheckOutput, named: Sequence[str] = ()) -> bool:
    if effect.code in causes.follow.get(cause.subject, ()):
        return True
    return cause.severity is Severity.ERROR and any(
        cause.code in row.causes
        and effect.code in row.effects
        and (not row.subjects or cause.subject in row.subjects)
        and (not row.same_file or effect.subject in causes.blamed)
        and (not row.traced or cause.subject in named)
        for row in packaged_yaml("validation/consequences.yaml", tuple[_Consequence, ...])
    )
