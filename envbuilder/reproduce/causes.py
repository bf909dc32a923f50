"""What each finding code means as the cause of a complaint (causes.yaml), and the order of causes."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Literal, get_args

import msgspec

from envbuilder.finding import SEVERITY_RANK, Code, Finding, Severity
from envbuilder.reproduce.question import is_since
from envbuilder.reproduce.report.reported import Complaint, Reported
from envbuilder.workspace import packaged_yaml

FixTarget = Literal["versions", "installation", "host", "build", "program", "unknown"]
"""What has to change: versions, an installation step, the host (driver, container options, processor), the
distributor's build, or the user's program.
"""

Area = Literal["host", "packages", "device", "distribution", "build", "libraries", "kernels", "tools", "time", "other"]
_OPENS_AT_USE = "1.14"
"""The first release that imports without CUDA's libraries: it opens them when it looks for a GPU."""

_RANK = {area: float(rank) for rank, area in enumerate(get_args(Area))}


class Cause(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of causes.yaml; the file explains the fields."""

    area: Area = "other"
    fix: FixTarget = "unknown"
    explains: frozenset[Complaint] = frozenset()
    fixed_by: frozenset[str] = frozenset()
    hides: frozenset[Code] = frozenset()
    outranks: Area | None = None
    disproved: Literal["import", "loading"] | None = None
    packages: tuple[str, ...] = ()
    states: Literal["cudnn", "python", "driver"] | None = None
    windows: bool = False
    any_build: bool = False
    no_kernels: bool = False
    no_wheel: bool = False


@cache
def table() -> dict[Code, Cause]:
    return packaged_yaml(resources.files("envbuilder.reproduce") / "causes.yaml", dict[Code, Cause])


def cause_of(code: Code | None) -> Cause:
    return (table().get(code) if code is not None else None) or Cause()


@cache
def codes_without_kernels() -> frozenset[Code]:
    """Return the codes that disqualify a fix: the GPU has no kernels, or waits until they are compiled."""
    return frozenset(code for code, cause in table().items() if cause.no_kernels)


def is_cause(finding: Finding) -> bool:
    """Return True for an error or a warning; remarks and unknown names cause nothing."""
    return finding.severity is not Severity.INFO and finding.code is not Code.UNKNOWN


def as_remark(finding: Finding) -> Finding:
    return msgspec.structs.replace(finding, severity=Severity.INFO)


def explains(code: Code, reported: Reported) -> bool:
    """Return True if a finding can cause the complaint, or if the report states no complaint."""
    cause, complaints = cause_of(code), {*reported.complaints, *(("slow",) if reported.pauses else ())}
    if cause.area == "libraries" and reported.install == "conda":
        return False  # it may be conda's build, which opens the libraries of its own environment
    if not complaints or code is Code.UNKNOWN or not cause.explains.isdisjoint(complaints):
        return True
    return cause.area == "libraries" and "import" in complaints and not is_since(_OPENS_AT_USE, reported)


def by_cause(findings: tuple[Finding, ...], proved: frozenset[Code]) -> tuple[Finding, ...]:
    """Sort findings without duplicates: the cause, its consequences, remarks, then UNKNOWN.

    ``proved`` are the codes that lines of the report prove; they rank before forecasts.
    """
    return tuple(sorted(dict.fromkeys(findings), key=lambda row: _key(row, proved)))


def _key(finding: Finding, proved: frozenset[Code]) -> tuple[bool, bool, float, int, str, str]:
    code, cause = finding.code, cause_of(finding.code)
    rank = _RANK[cause.area]
    if code in proved and cause.any_build:
        rank = min(rank, _RANK["build"] - 0.5)
    elif proved and code not in proved and cause.area == "packages":
        rank = _RANK["time"] - 0.5  # the forecast predicts a failed import, but a line shows another failure
    if Code.SLOW_PHASE in proved and cause.area == "kernels" and "slow" in cause.explains:
        rank = -1  # it runs slowly: compilation at each start explains that
    remark = finding.severity is Severity.INFO
    return remark, code is Code.UNKNOWN, rank, SEVERITY_RANK[finding.severity], finding.subject, finding.message
