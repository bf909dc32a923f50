"""Possible causes of a complaint: what each finding code means (causes.yaml), their order, and forecasts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Literal, get_args

import msgspec

from envbuilder import versions
from envbuilder.compat.check import findings_of
from envbuilder.compat.findings import finding
from envbuilder.finding import SEVERITY_RANK, Code, Finding, Severity, written
from envbuilder.reproduce.grammar import GRAMMAR, old_by, old_release
from envbuilder.reproduce.messages.catalog import MessageMatch, is_title, marked
from envbuilder.reproduce.question import Case, gpus_of, is_since
from envbuilder.reproduce.report.reported import Complaint, Pause, Reported
from envbuilder.reproduce.terms import library_name, opens
from envbuilder.versions import key, names_line, same_major
from envbuilder.workspace import packaged_yaml

FixTarget = Literal["versions", "installation", "host", "build", "program", "unknown"]
"""What has to change: versions, an installation step, the host (driver, container options, processor), the
distributor's build, or the user's program.
"""

Area = Literal["host", "packages", "device", "distribution", "build", "libraries", "kernels", "tools", "time", "other"]
_RANK = {area: float(rank) for rank, area in enumerate(get_args(Area))}


class Cause(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    area: Area = "other"
    fix: FixTarget = "unknown"
    explains: frozenset[Complaint] = frozenset()
    fixed_by: frozenset[str] = frozenset()
    says: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()
    hides: frozenset[Code] = frozenset()
    outranks: Area | None = None
    refuted_by: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    needs_driver: bool = False
    windows: bool = False
    any_build: bool = False
    no_kernels: bool = False
    no_wheel: bool = False


@cache
def table() -> dict[Code, Cause]:
    return packaged_yaml("reproduce/causes.yaml", dict[Code, Cause])


def cause_of(code: Code | None) -> Cause:
    return (table().get(code) if code is not None else None) or Cause()


def codes_without_kernels(*, wait: bool = False) -> frozenset[Code]:
    """Return the codes that disqualify a fix: the GPU has no kernels, or waits until they are compiled."""
    return frozenset(code for code, row in table().items() if row.no_kernels and not (wait and code is Code.PTX_JIT))


def is_cause(finding: Finding) -> bool:
    return finding.severity is not Severity.INFO and finding.code is not Code.UNKNOWN


def as_remark(finding: Finding) -> Finding:
    return msgspec.structs.replace(finding, severity=Severity.INFO)


def explained_by(code: Code | None, case: Case) -> frozenset[Complaint]:
    """List the complaints that a cause explains: what keeps TensorFlow off the GPU does not slow one that is used."""
    cause, used = cause_of(code), case.holds("gpu_used")
    return cause.explains - {"slow"} if used and _RANK[cause.area] <= _RANK["libraries"] else cause.explains


def explains(code: Code, case: Case) -> bool:
    """Return True if a finding can cause the complaint, or if the report states no complaint."""
    cause, complaints = cause_of(code), complaints_of(case.reported)
    pinned = any("==" in row.text for row in case.reported.evidence if row.field == "tensorflow")
    if cause.area == "libraries" and case.reported.install == "conda" and not pinned:
        return False  # it may be conda's build, which opens the libraries of its own environment
    if not complaints or code is Code.UNKNOWN or not explained_by(code, case).isdisjoint(complaints):
        return True
    # From 1.14 on, TensorFlow imports without CUDA's libraries: it opens them when it looks for a GPU.
    return cause.area == "libraries" and "import" in complaints and not is_since("1.14", case.reported)


def by_cause(findings: tuple[Finding, ...], proved: frozenset[Code]) -> tuple[Finding, ...]:
    """Sort findings without duplicates: the cause, what a line proves, its consequences, remarks, then UNKNOWN."""
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


def forecast(case: Case) -> tuple[Finding, ...]:
    """Apply the rules; keep findings that fit the report's system, concern stated values, and agree with its log."""
    reported = case.reported
    if reported.platform == "macos" or reported.arch in GRAMMAR.not_served:
        return ()
    if case.question is None or reported.origin not in {None, "conda", "source"}:
        return by_toolkit(case)  # versions, or the CUDA of another's build, are not known
    found = findings_of(case.question, case.catalog)
    if reported.platform == "windows":
        found = tuple(_for_windows(row, reported) for row in found if cause_of(row.code).windows)
    named = {row.known.code for row in case.messages}  # a message speaks for these forecasts: no fact refutes them
    found = (*_before_catalogue(case), *found)
    kept = tuple(row for row in found if row.code in named or not any(map(case.holds, cause_of(row.code).refuted_by)))
    return kept if any(map(is_cause, kept)) else (*kept, *by_toolkit(case))


def complaints_of(reported: Reported) -> set[Complaint]:
    return {*reported.complaints, *(("slow",) if reported.pauses else ())}


def standing(rows: Iterable[MessageMatch], case: Case) -> Iterator[MessageMatch]:
    """Yield the messages that explain a complaint and that no fact refutes; a printed error is a complaint itself."""
    asked = complaints_of(case.reported)
    stops = any(row.exact and cause_of(row.known.code).area == "packages" for row in case.messages)
    if stops and "invisible" not in asked:
        asked = {"import", "installing"}  # a package that stops the import is a complaint
    return (row for row in rows if _stands(row, case, asked))


def _stands(row: MessageMatch, case: Case, asked: set[Complaint]) -> bool:
    known = row.known
    explained = known.explains or explained_by(known.code, case)
    explained |= {"invisible"} if "ran" in known.marks else set()  # a GPU that fails is often said not to work
    goes_on = "goes_on" in known.marks or known.layer == "symptom"
    if goes_on:
        explained -= {"installing", "import", "building"}
    weak = goes_on or known.prose or "suggests" in known.marks or known.severity is not Severity.ERROR
    weak = weak and not is_title(row)
    unasked = weak and (known.code or known.explains) and asked - {"several"} and explained.isdisjoint(asked)
    opened = (one for one in case.messages if one.signature == "opened_library" and one.line > row.line)
    later = row.values.get("library") in {one.values["library"] for one in opened}
    return not (unasked or later or any(map(case.holds, known.refuted_by)))


def _before_catalogue(case: Case) -> Iterator[Finding]:
    cuda, cudnn, old = case.reported.cuda, case.reported.cudnn, old_release(case.version) and case.old
    named = {"release": case.version, "tag": old.tag, "cuda": old.cuda, "cudnn": old.cudnn} if old is not None else {}
    if old is not None and cuda and not versions.is_prefix(versions.line(cuda), old.cuda):
        yield finding(Code.CUDA_MISMATCH, "before_catalogue", **{**named, "built": old.cuda, "cuda": cuda})
    if old is not None and cudnn and not same_major(cudnn, old.cudnn):
        yield finding(Code.CUDNN_MISMATCH, "before_catalogue", **{**named, "built": old.cudnn, "cudnn": cudnn})


def by_toolkit(case: Case) -> tuple[Finding, ...]:
    """Compare the GPU with the stated CUDA alone, or with the one of a release before the catalogue."""
    reported, catalog = case.reported, case.catalog
    toolkit = catalog.toolkit(reported.cuda) if reported.cuda and names_line(reported.cuda) else None
    old = old_release(case.version) or old_by(cuda=reported.cuda if toolkit is None else None)
    cuda, last = reported.cuda or "", GRAMMAR.old_toolkits.get(reported.cuda or "", "")
    if toolkit is not None:
        cuda, last = toolkit.version, toolkit.last_capability
    elif old is not None:
        cuda, last = old.cuda, old.capability
    rows = filter(None, map(catalog.gpu, gpus_of(reported)))
    capabilities = [*(row.compute_capability for row in rows), *reported.compute_capabilities]
    newest = max(capabilities, key=key, default=None)
    if not last or newest is None or key(newest) <= key(last):
        return ()
    fails = not versions.at_least(cuda, "10.0") and complaints_of(reported) & {"stuck", "breaks", "wrong"}
    silent = fails and not any(row.known.code or row.signature == "machine_restarts" for row in case.messages)
    if silent or not same_major(newest, last) or marked("memory", case.messages):  # own kernels run on the same major
        return (finding(Code.GPU_UNSUPPORTED_BY_CUDA, "toolkit", newest=newest, cuda=cuda, last=last),)
    return ()


def _for_windows(row: Finding, reported: Reported) -> Finding:
    """Report it for DLLs; the rules name Linux files."""
    if row.code is not Code.CUDA_MISMATCH or row.severity is not Severity.ERROR:
        return row
    stated = {"release": reported.tensorflow, "cuda": reported.cuda}
    return written(Code.CUDA_MISMATCH, "dll", row.sources, **stated, requires=row.requires)


def other_builds(case: Case) -> tuple[Finding, ...]:
    origin, complaints = case.reported.origin, set(case.reported.complaints)
    if origin is None:
        return tuple(_never_opened(case))
    of_builds = {"conda": {"invisible", "slow"}, "source": {"invisible", "breaks", "import", "building"}}
    shown = any(row.known.severity is not Severity.INFO for row in case.messages)  # else the line of a crash is missing
    explained = explained_by(Code.OTHER_BUILD, case) - (set() if shown else {"breaks"})
    if complaints and complaints.isdisjoint(explained & of_builds.get(origin, explained)):
        return ()  # the CUDA of such a build explains no other complaint
    rows = (row.text for row in case.reported.evidence if (row.field, row.value) == ("origin", origin))
    return (finding(Code.OTHER_BUILD, origin, found=next(rows, "")[:200]),)


def _never_opened(case: Case) -> Iterator[Finding]:
    """Find a library that the stated release never opens: another TensorFlow printed that log."""
    others = {row.field for row in case.reported.works} | {row.field for row in case.reported.contradictions}
    if (release := case.release) is None or not release.libraries or "tensorflow" in others:
        return
    of_cudnn = {row.line for row in case.messages if row.signature == "cublas_not_loaded"}  # cuDNN's own loader
    for row in case.messages:
        library = "" if row.line in of_cudnn else row.values.get("library", "")
        own = next((one for one in release.libraries if one.startswith(f"lib{library_name(library)}.so")), "")
        if own and not opens(release, library):
            named = {"line": row.line, "library": library, "release": release.version, "opened": own}
            yield finding(Code.OTHER_BUILD, "never_opened", **named)
            return


_COMPILED = frozenset({Code.PTX_JIT, Code.GPU_UNSUPPORTED_BY_CUDA})


def slow_starts(case: Case, known: frozenset[Code]) -> Iterator[Finding]:
    """Yield the causes of a slow start or a stall; ``known`` are the codes of the other causes."""
    reported, pauses = case.reported, case.reported.pauses
    start = next((pause for pause in pauses if any(mark in pause.after for mark in GRAMMAR.starting)), None)
    explained = list(_starting(case, known, start)) if start is not None else []
    yield from explained
    for row in case.messages if Code.GPU_MEMORY in known else ():
        if row.signature == "memory_table" and int(row.values["used"]) > 0.8 * int(row.values["total"]):
            yield finding(Code.GPU_MEMORY, "in_use", used=row.values["used"], total=row.values["total"])
    if {"stuck", "several"} <= set(reported.complaints) and not known - {Code.OTHER_BUILD, Code.UNKNOWN}:
        yield finding(Code.STALLS, "several_gpus")
    if pauses and not explained and not known & {*_COMPILED, Code.XLA_TOOLS_MISSING}:
        yield finding(Code.SLOW_PHASE, "pause", **_about(pauses[0]))


def _about(pause: Pause) -> dict[str, str | int]:
    return {"seconds": f"{pause.seconds:.0f}", "line": pause.line, "after": pause.after[:200]}


def _starting(case: Case, known: frozenset[Code], start: Pause) -> Iterator[Finding]:
    reported = case.reported
    if known & _COMPILED:
        yield finding(Code.SLOW_PHASE, "compiled", **_about(start))
    before_ampere = reported.cuda is not None and versions.major(reported.cuda) in {9, 10}
    ampere = any(versions.at_least(text, "8.0") for text in reported.compute_capabilities)
    told = {Code.PTX_JIT} if reported.tensorflow is None else _COMPILED
    if before_ampere and ampere and not known & told:
        capability = reported.compute_capabilities[0]
        yield finding(Code.PTX_JIT, "start", capability=capability, cuda=reported.cuda, **_about(start))
    if len(reported.gpus) > 1:
        yield finding(Code.SLOW_PHASE, "several_gpus", count=len(reported.gpus))
