"""Evaluate results: from the outcome of every check to a verdict, a level and reasons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, assert_never

import msgspec

from envbuilder.environment import Flavor
from envbuilder.finding import Code, Finding, Severity, worst_first
from envbuilder.matrix import Budgets
from envbuilder.verdict import (
    CheckLevel,
    CheckResult,
    Level,
    Measurement,
    Outcome,
    Word,
    is_passed,
    level_of,
    required_levels,
    word_of,
)

GIGABYTE = 1_000_000_000


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The evaluation of all results; ``reasons`` has a sentence for each check that prevents PASSED."""

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
    requires = required_levels(flavor, gpus)
    required = [result for result in results if result.level in requires]
    reasons = [_reason(result) for result in required if not is_passed(result)]
    reasons += [f"no check of the {level} level ran" for level in requires if not _of(required, level)]
    if simulated:
        reasons.append("the driver was simulated: nothing was computed on a GPU")
    word = word_of(results, requires, simulated=simulated)
    level = level_of(results, simulated=simulated)
    findings = _distinct(finding for result in results for finding in result.findings)
    return Judgement(verdict=word, level=level, requires=requires, findings=findings, reasons=tuple(reasons))


def _reason(result: CheckResult) -> str:
    what = "; ".join(f"{finding.code}: {finding.message}" for finding in result.findings) or result.observed
    match result.outcome:
        case "skipped":
            return f"{result.level}: {result.name} was not run: {result.observed}"
        case "failed" | "error" | "timeout" | "passed":
            return f"{result.level}: {result.name} {result.outcome}: {what}"
        case _:
            assert_never(result.outcome)


def _of(results: Iterable[CheckResult], level: CheckLevel) -> list[CheckResult]:
    return [result for result in results if result.level == level]


def _distinct(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    first: dict[tuple[Code, str, str], Finding] = {}
    for finding in findings:
        first.setdefault((finding.code, finding.subject, finding.message), finding)
    return worst_first(first.values())


class _Bound(NamedTuple):
    """A field of `Budgets`, its check, level, unit and words; ``measurement`` '' is the size of the image."""

    field: str
    check: str
    measurement: str
    level: CheckLevel
    unit: str
    words: str


_BOUNDS: tuple[_Bound, ...] = (
    _Bound("size_gb", "budget-size", "", "static", "GB", "gigabytes of image"),
    _Bound("import_s", "budget-import", "import", "cpu", "s", "seconds to import"),
    _Bound("first_op_s", "budget-first-op", "first_op", "cpu", "s", "seconds to the first operation"),
    _Bound("context_s", "budget-context", "context", "gpu", "s", "seconds to a GPU context"),
)


def budget_results(results: tuple[CheckResult, ...], budgets: Budgets, size: int | None) -> tuple[CheckResult, ...]:
    """Compare measurements with the matrix's budgets: one more result for each budget.

    ``size`` is the image's in bytes, None without an image. A budget without its measurement is skipped.
    """
    measured: dict[str, float] = {}
    for result in results:
        for name, value in result.measurements.items():
            measured[name] = max(value.value, measured.get(name, 0.0))
    made = []
    for row in _BOUNDS:
        bound = getattr(budgets, row.field)
        if bound is not None and row.measurement:
            made.append(_budget(row, measured.get(row.measurement), bound))
        elif bound is not None and size is not None:
            made.append(_budget(row, size / GIGABYTE, bound))
    return tuple(made)


def _budget(row: _Bound, value: float | None, bound: float) -> CheckResult:
    expected = f"at most {bound:g} {row.words}"
    if value is None:
        return CheckResult(
            name=row.check, level=row.level, outcome="skipped", expected=expected, observed="not measured"
        )
    outcome: Outcome = "passed" if value <= bound else "failed"
    return CheckResult(
        name=row.check,
        level=row.level,
        outcome=outcome,
        expected=expected,
        observed=f"{value:.3g} {row.words}",
        findings=() if value <= bound else (_exceeded(row.field, value, bound, row.words),),
        measurements={row.field: Measurement(value, row.unit)},
    )


def _exceeded(name: str, value: float, bound: float, words: str) -> Finding:
    return Finding(
        code=Code.BUDGET_EXCEEDED,
        severity=Severity.ERROR,
        subject=name,
        message=f"{value:.3g} {words} exceed the matrix's budget of {bound:g}",
        requires=f"{bound:g}",
        found=f"{value:.3g}",
        fix="find the cause in the timeline or the layers, or raise the budget in the matrix with a reason",
    )


@dataclass(frozen=True)
class _Consequence:
    """Errors ``effects`` follow from an error ``cause`` of the host's checks, if it has one of these ``subjects``.

    If ``by`` is ``file``, the effect must name one of the files of the cause.
    """

    effects: frozenset[Code]
    cause: Code
    subjects: frozenset[str] = frozenset()
    by: Literal["", "file"] = ""


_DIED = frozenset({Code.PROBE_CRASHED})
_LIBRARY = frozenset(
    {Code.MISSING_LIBRARY, Code.LIBRARY_PATH, Code.CUDA_MISMATCH, Code.CUDNN_MISMATCH, Code.XLA_TOOLS_MISSING}
)
_START = frozenset({Code.USER_START})
_BUILD_NOTE = frozenset({"build_info.py"})
_IN_FRONT = frozenset({"WORKDIR", "PYTHONPATH", "python"})

_ROWS: tuple[_Consequence, ...] = (
    _Consequence(_DIED, Code.FILES_DIFFER),
    _Consequence(_DIED, Code.MISSING_LIBRARY),
    _Consequence(_DIED, Code.IMAGE_CONFIGURATION),
    _Consequence(_DIED, Code.USER_START),
    _Consequence(_LIBRARY, Code.USER_START, by="file"),
    _Consequence(_START, Code.IMAGE_CONFIGURATION),
    _Consequence(_START, Code.FILES_DIFFER, subjects=_IN_FRONT),
    _Consequence(_LIBRARY, Code.FILES_DIFFER, by="file"),
    _Consequence(_LIBRARY, Code.MISSING_LIBRARY, by="file"),
    _Consequence(_LIBRARY, Code.CUDA_MISMATCH, by="file"),
    _Consequence(frozenset({Code.NOT_A_GPU_BUILD}), Code.IMAGE_CLAIM, subjects=_BUILD_NOTE),
    _Consequence(_LIBRARY, Code.NOT_A_GPU_BUILD),
    _Consequence(frozenset({Code.DRIVER_TOO_OLD}), Code.STUB_LIBCUDA),
)


@dataclass(frozen=True)
class Causes:
    """Errors found by the host's checks, and the names of all files that they are about.

    ``suspects`` are their other findings about settings, ``follow`` the codes that follow from a setting, by its name.
    """

    errors: tuple[Finding, ...] = ()
    files: frozenset[str] = frozenset()
    suspects: tuple[Finding, ...] = ()
    follow: Mapping[str, frozenset[Code]] = field(default_factory=dict)


def mark_consequences(results: Iterable[CheckResult], causes: Causes) -> tuple[CheckResult, ...]:
    """Return the results with each error that only follows from a cause as a warning that says so.

    Without any such error, a setting that may do what a probe shows becomes an error itself. No outcome improves.
    """
    results = tuple(results)
    effects = [one for x in results for one in x.findings if one.severity is Severity.ERROR and x.outcome != "passed"]
    proved = [one for one in causes.suspects if any(_is_cause(one, effect, causes) for effect in effects)]
    raised = {} if causes.errors else {one: msgspec.structs.replace(one, severity=Severity.ERROR) for one in proved}
    causes = replace(causes, errors=(*causes.errors, *raised.values()))
    return tuple(_with_consequences(_raised(result, raised), causes) for result in results)


def _raised(result: CheckResult, raised: Mapping[Finding, Finding]) -> CheckResult:
    if not raised.keys() & set(result.findings):
        return result
    findings = tuple(raised.get(one, one) for one in result.findings)
    return msgspec.structs.replace(result, outcome="failed", findings=findings)


def _with_consequences(result: CheckResult, causes: Causes) -> CheckResult:
    if result.outcome == "passed" or any(one in causes.errors for one in result.findings):
        return result
    return msgspec.structs.replace(result, findings=tuple(_as_consequence(one, causes) for one in result.findings))


def _as_consequence(effect: Finding, causes: Causes) -> Finding:
    cause = next((one for one in causes.errors if _is_cause(one, effect, causes)), None)
    if effect.severity is not Severity.ERROR or cause is None:
        return effect
    message = f"{effect.message} (follows from {cause.code}: {cause.subject})"
    return msgspec.structs.replace(effect, severity=Severity.WARNING, message=message)


def _is_cause(cause: Finding, effect: Finding, causes: Causes) -> bool:
    if cause.subject in causes.follow and effect.code in causes.follow[cause.subject]:
        return True
    return cause.severity is Severity.ERROR and any(
        row.cause is cause.code
        and effect.code in row.effects
        and (not row.subjects or cause.subject in row.subjects)
        and (row.by != "file" or effect.subject in causes.files)
        for row in _ROWS
    )
