"""One cause, one error: what a container shows of a defect that was named from outside is told, not counted again."""

from __future__ import annotations

from collections.abc import Iterable
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
_KERAS = frozenset({"KERAS_BACKEND", "TF_USE_LEGACY_KERAS", "keras.json"})
_BUILD_NOTE = frozenset({"build_info.py"})
_IN_FRONT = frozenset({"WORKDIR", "PYTHONPATH", "python"})

_ROWS: tuple[_Follows, ...] = (
    _Follows(_DIED, Code.FILES_DIFFER),
    _Follows(_DIED, Code.MISSING_LIBRARY),
    _Follows(_DIED, Code.IMAGE_CONFIGURATION),
    _Follows(_DIED, Code.USER_START),
    _Follows(_LIBRARY, Code.USER_START, by="file"),
    _Follows(_START, Code.IMAGE_CONFIGURATION),
    _Follows(_START, Code.FILES_DIFFER, subjects=_IN_FRONT),
    _Follows(frozenset({Code.KERAS_MISMATCH}), Code.IMAGE_CONFIGURATION, subjects=_KERAS),
    _Follows(_LIBRARY, Code.FILES_DIFFER, by="file"),
    _Follows(_LIBRARY, Code.MISSING_LIBRARY, by="file"),
    _Follows(_LIBRARY, Code.CUDA_MISMATCH, by="file"),
    _Follows(frozenset({Code.NOT_A_GPU_BUILD}), Code.IMAGE_CLAIM, subjects=_BUILD_NOTE),
    _Follows(_LIBRARY, Code.NOT_A_GPU_BUILD),
    _Follows(frozenset({Code.DRIVER_TOO_OLD}), Code.STUB_LIBCUDA),
)


@dataclass(frozen=True)
class Causes:
    """The errors that were named from outside, and the names of all files that they are about."""

    errors: tuple[Finding, ...] = ()
    files: frozenset[str] = frozenset()


def told_once(results: Iterable[CheckResult], causes: Causes) -> tuple[CheckResult, ...]:
    """Return the results with each error that only follows from one of the causes as a warning that says so.

    No outcome changes: what failed has failed. A cause's own result is left as it is.
    """
    return tuple(_told(result, causes) for result in results)


def _told(result: CheckResult, causes: Causes) -> CheckResult:
    if result.outcome == "passed" or any(one in causes.errors for one in result.findings):
        return result
    return msgspec.structs.replace(result, findings=tuple(_weighed(one, causes) for one in result.findings))


def _weighed(effect: Finding, causes: Causes) -> Finding:
    cause = next((one for one in causes.errors if _is_cause(one, effect, causes.files)), None)
    if effect.severity is not Severity.ERROR or cause is None:
        return effect
    message = f"{effect.message} (follows from {cause.code}: {cause.subject})"
    return msgspec.structs.replace(effect, severity=Severity.WARNING, message=message)


def _is_cause(cause: Finding, effect: Finding, files: frozenset[str]) -> bool:
    return any(
        row.cause is cause.code
        and effect.code in row.effects
        and (not row.subjects or cause.subject in row.subjects)
        and (row.by != "file" or effect.subject in files)
        for row in _ROWS
    )
