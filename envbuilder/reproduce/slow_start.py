"""Causes of slow starts and stalls, from a report's pauses, GPUs, variables and messages."""

from __future__ import annotations

from collections.abc import Iterator

from envbuilder import versions
from envbuilder.compat.findings import finding
from envbuilder.finding import Code, Finding
from envbuilder.reproduce.messages.catalog import marked
from envbuilder.reproduce.question import Case
from envbuilder.reproduce.report.reported import Pause

_BEFORE_AMPERE = (9, 10)
"""CUDA majors without support for Ampere and later GPUs."""

_AMPERE = "8.0"

LARGE_CACHE = 2 << 30
"""Kernel cache size in bytes that holds TensorFlow's compiled kernels, as users report (NVIDIA's limit is 4 GiB)."""

_STARTING = (
    "libcudart", "libcuda", "Adding visible gpu devices", "Found device", "Created", "gpu_device.cc", "cuda_driver",
)  # fmt: skip
_COMPILED = frozenset({Code.PTX_JIT, Code.GPU_UNSUPPORTED_BY_CUDA})
"""Codes of kernels that are compiled at first use."""


def slow_starts(case: Case, known: frozenset[Code]) -> Iterator[Finding]:
    """Yield the causes of a slow start or a stall; ``known`` are the codes of the other causes."""
    pauses = case.reported.pauses
    start = next((pause for pause in pauses if any(mark in pause.after for mark in _STARTING)), None)
    explained = list(_starting(case, known, start)) if start is not None else []
    yield from explained
    yield from _cache(case, start, known)
    yield from _waiting(case, known)
    if pauses and not explained and not known & {*_COMPILED, Code.XLA_TOOLS_MISSING}:
        yield finding(Code.SLOW_PHASE, "pause", **_about(pauses[0]))


def _about(pause: Pause) -> dict[str, str | int]:
    return {"seconds": f"{pause.seconds:.0f}", "line": pause.line, "after": pause.after[:200]}


def _starting(case: Case, known: frozenset[Code], start: Pause) -> Iterator[Finding]:
    """Explain the longest pause within TensorFlow's start."""
    reported = case.reported
    if known & _COMPILED:
        yield finding(Code.SLOW_PHASE, "compiled", **_about(start))
    old = reported.cuda is not None and versions.major(reported.cuda) in _BEFORE_AMPERE
    new = any(versions.at_least(text, _AMPERE) for text in reported.compute_capabilities)
    told = {Code.PTX_JIT} if reported.tensorflow is None else _COMPILED
    if old and new and not known & told:
        capability = reported.compute_capabilities[0]
        yield finding(Code.PTX_JIT, "start", capability=capability, cuda=reported.cuda, **_about(start))
    if len(reported.gpus) > 1:
        yield finding(Code.SLOW_PHASE, "several_gpus", count=len(reported.gpus))


def _cache(case: Case, start: Pause | None, known: frozenset[Code]) -> Iterator[Finding]:
    text = case.reported.environment.get("CUDA_CACHE_MAXSIZE", "")
    disabled = case.reported.environment.get("CUDA_CACHE_DISABLE") == "1"
    compiled = Code.PTX_JIT in known or (start is not None and Code.GPU_UNSUPPORTED_BY_CUDA in known)
    large = text.isascii() and text.isdigit() and int(text) >= LARGE_CACHE
    if compiled and (disabled or not large):
        what = "the kernel cache is switched off" if disabled else f"CUDA_CACHE_MAXSIZE is {text or 'not set'}"
        yield finding(Code.SLOW_PHASE, "cache", what=what)


def _is_full(values: dict[str, str]) -> bool:
    return int(values["used"]) > 0.8 * int(values["total"])


def _waiting(case: Case, known: frozenset[Code]) -> Iterator[Finding]:
    """Explain waits for memory, for other GPUs, and for XLA without its tools."""
    reported = case.reported
    grows = reported.environment.get("TF_FORCE_GPU_ALLOW_GROWTH", "").lower() == "true"
    for row in case.messages:
        if row.signature == "memory_table" and Code.GPU_MEMORY in known and _is_full(row.values):
            yield finding(Code.GPU_MEMORY, "in_use", used=row.values["used"], total=row.values["total"])
    if marked("memory", case.messages) and not grows:
        yield finding(Code.STALLS, "growth")
    if {"stuck", "several"} <= set(reported.complaints) and not known - {Code.OTHER_BUILD, Code.UNKNOWN}:
        yield finding(Code.STALLS, "several_gpus")
    waits = [pause for pause in reported.pauses if "cuDNN version" in pause.after or "ptxas" in pause.before]
    if waits and {row.signature for row in case.messages} & {"ptxas_missing", "child_not_started"}:
        yield finding(Code.SLOW_PHASE, "tools", **_about(waits[0]))
