"""Name the cause of a start-up phase that takes long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Dict

from . import cuda_driver
from .result import Answer, Finding, Phase, finding, judged, measure, phase

Sample = Dict[str, Any]
"""The document of one start-up, with rows of ``phase`` and ``seconds``."""
GREW_AT_LEAST = 1024 * 1024
BEFORE_WORK = ("driver open", "cuInit", "device enumeration", "primary context")
FIRST_USE = ("first op", "first matmul", "first convolution", "first function")


def median(values: Iterable[float]) -> float:
    values = sorted(values)
    return values[len(values) // 2] if values else 0.0


def of(documents: Iterable[Sample], name: str) -> list[float]:
    """Return the seconds of a phase in every document that has it, with or without the GPU prefix."""
    return [row["seconds"] for one in documents for row in one["phases"] if row["phase"] in (name, "GPU " + name)]


def phases(cold: list[Sample], warm: list[Sample], prefix: str = "") -> dict[str, Phase]:
    names = dict.fromkeys(row["phase"] for one in cold + warm for row in one["phases"])
    return {prefix + name: phase(of(cold, name), of(warm, name)) for name in names}


def causes(
    cold: list[Sample], warm: list[Sample], knobs: Mapping[str, Sample], persistence: Sequence[bool | None]
) -> list[Finding]:
    """Return a warning for every phase that takes long for a known reason.

    ``cold`` and ``warm`` are documents of samples, ``knobs`` documents by setting, ``persistence`` the persistence mode
    of each GPU (None if unknown).
    """
    return [*_jit(cold, warm, knobs), *_disk(cold, warm), *_many(warm, knobs), *_persistence(warm, persistence)]


def _is_usual(slow: float, quick: float, seconds: float) -> bool:
    """Return True if the difference may be noise: a busy machine makes both longer."""
    return slow < 2 * quick or slow - quick < seconds


def _jit(cold: list[Sample], warm: list[Sample], knobs: Mapping[str, Sample]) -> list[Finding]:
    """Kernels compiled from PTX: at every start if a larger cache ends it, else at first use if the cache ends it."""
    first, again = (sum(median(of(rows, name)) for name in FIRST_USE) for rows in (cold, warm))
    large = knobs.get("kernel cache of 4 GiB, again", {})
    kept = sum(median(of([large], name)) for name in FIRST_USE) if "phases" in large else again
    grew = median([one.get("cache_grew", 0) for one in cold])
    if not _is_usual(again, kept, 2):
        text = f"kernels are compiled from PTX at every start: {again:.1f} s, {kept:.1f} s with a cache of 4 GiB"
        fix = "set CUDA_CACHE_MAXSIZE=4294967296 and CUDA_CACHE_PATH to a volume, and unset CUDA_CACHE_DISABLE"
    elif grew >= GREW_AT_LEAST and not _is_usual(first, again, 2):
        text = f"kernels are compiled from PTX at first use: {first:.1f} s cold, {again:.1f} s warm"
        text += f"; the kernel cache grew {grew / 1e6:.0f} MB"
        fix = "keep CUDA_CACHE_PATH on a volume, or use a release with machine code for this GPU"
    else:
        return []
    proof = "error" in knobs.get("no JIT from PTX", {})
    text += "; with CUDA_DISABLE_PTX_JIT=1 the same program fails" if proof else ""
    return [finding("PTX_JIT", "first use", text, fix=fix, severity="warning")]


def _disk(cold: list[Sample], warm: list[Sample]) -> list[Finding]:
    first, again = median(of(cold, "import")), median(of(warm, "import"))
    if _is_usual(first, again, 2):
        return []
    text = f"import takes {first:.1f} s from disk and {again:.1f} s from memory: the image's storage is slow"
    fix = "put the image on a local disk, or read it once before it is needed"
    return [finding("SLOW_PHASE", "import", text, fix=fix, severity="warning")]


def _many(warm: list[Sample], knobs: Mapping[str, Sample]) -> list[Finding]:
    alone = knobs.get("one visible GPU", {})
    if "phases" not in alone or alone.get("gpus", 0) == median([one["gpus"] for one in warm]):
        return []
    every, one = median(of(warm, "contexts and allocator")), median(of([alone], "contexts and allocator"))
    if _is_usual(every, one, 1):
        return []
    text = f"contexts on every GPU take {every:.1f} s, on one {one:.1f} s"
    fix = "set CUDA_VISIBLE_DEVICES to the GPUs that the process uses"
    return [finding("SLOW_PHASE", "contexts", text, fix=fix, severity="warning")]


def _persistence(warm: list[Sample], persistence: Sequence[bool | None]) -> list[Finding]:
    took = median(of(warm, "device listing"))
    if False not in persistence or took < 1.0 * max(1, len(persistence)):
        return []
    text = f"listing {len(persistence)} GPU(s) takes {took:.1f} s"
    text += ", and persistence mode is off: the driver starts again for every process"
    fix = "run nvidia-persistenced on the host"
    return [finding("SLOW_PHASE", "driver", text, fix=fix, severity="warning")]


def cuda_answer(runs: Mapping[str, list[Sample]]) -> Answer:
    """Return the result for runs of the timeline without a framework, cold and warm."""
    errors = [one["error"] for one in runs["cold"] + runs["warm"] if one["error"]]
    if errors:
        text = errors[0]["text"]
        _, code = cuda_driver.meaning(errors[0].get("code"))
        return judged([finding(code, "CUDA driver", text, fix=cuda_driver.FIXES.get(code, ""))], "every phase", text)
    wrong = [gpu["name"] for one in runs["warm"] for gpu in one["facts"]["gpus"] if not gpu.get("kernel_right")]
    findings = [finding("WRONG_NUMBERS", "PTX kernel", "wrong on " + ", ".join(wrong))] if wrong else []
    phases_before = [[row for row in one["phases"] if row["phase"].startswith(BEFORE_WORK)] for one in runs["warm"]]
    to_context = median(sum(row["seconds"] for row in rows) for rows in phases_before)
    grew = median([one["facts"]["cache_after"] - one["facts"]["cache_before"] for one in runs["cold"]])
    return judged(
        findings,
        "every phase, and a kernel that computes",
        f"{to_context:.2f} s to the contexts",
        phases=phases(runs["cold"], runs["warm"], "CUDA: "),
        measurements={"context": measure(to_context, "s"), "kernel_cache_grew": measure(grew, "B")},
    )
