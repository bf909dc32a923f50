"""One cause, one error: what a container shows of a defect that was named from outside is told, not counted again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from envbuilder.finding import Code, Finding, Severity
from envbuilder.verdict import CheckResult


@dataclass(frozen=True)
class _Follows:
    """``effects`` are no news where an error of ``cause`` was found from outside: among these subjects, where named.

    ``by`` is ``file`` where the effect has to name one of the files that the cause is about.
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
_IN_FRONT = frozenset({"WORKDIR", "PYTHONPATH"})

_ROWS: tuple[_Follows, ...] = (
    _Follows(_DIED, Code.FILES_DIFFER),
    _Follows(_DIED, Code.MISSING_LIBRARY),
    _Follows(_DIED, Code.IMAGE_CONFIGURATION),
    _Follows(_START, Code.IMAGE_CONFIGURATION),
    _Follows(_START, Code.FILES_DIFFER, subjects=_IN_FRONT),
    _Follows(frozenset({Code.KERAS_MISMATCH}), Code.IMAGE_CONFIGURATION, subjects=frozenset({"KERAS_BACKEND"})),
    _Follows(_LIBRARY, Code.FILES_DIFFER, by="file"),
    _Follows(_LIBRARY, Code.MISSING_LIBRARY, by="file"),
    _Follows(_LIBRARY, Code.CUDA_MISMATCH, by="file"),
)


def told_once(
    results: Iterable[CheckResult], causes: Iterable[Finding], blamed: Mapping[Code, frozenset[str]]
) -> tuple[CheckResult, ...]:
    """Return the results with each error that only follows from one of ``causes`` as a warning that says so.

    ``blamed`` are the names of the files that each code's causes are about. No outcome changes: what failed has failed.
    """
    errors = [one for one in causes if one.severity is Severity.ERROR]
    return tuple(_told(result, errors, blamed) for result in results)


def _told(result: CheckResult, causes: list[Finding], blamed: Mapping[Code, frozenset[str]]) -> CheckResult:
    if result.outcome == "passed":
        return result
    findings = tuple(_weighed(one, causes, blamed) for one in result.findings)
    return msgspec.structs.replace(result, findings=findings)


def _weighed(effect: Finding, causes: list[Finding], blamed: Mapping[Code, frozenset[str]]) -> Finding:
    cause = next((one for one in causes if one is not effect and _is_cause(one, effect, blamed)), None)
    if effect.severity is not Severity.ERROR or cause is None:
        return effect
    message = f"{effect.message} (follows from {cause.code}: {cause.subject})"
    return msgspec.structs.replace(effect, severity=Severity.WARNING, message=message)


def _is_cause(cause: Finding, effect: Finding, blamed: Mapping[Code, frozenset[str]]) -> bool:
    return any(
        row.cause is cause.code
        and effect.code in row.effects
        and (not row.subjects or cause.subject in row.subjects)
        and (row.by != "file" or effect.subject in blamed.get(row.cause, frozenset()))
        for row in _ROWS
    )
