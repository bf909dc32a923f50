"""Causes of slow starts and stalls, from a report's pauses, GPUs, variables and messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from envbuilder import versions
from envbuilder.finding import Code, Finding, Severity
from envbuilder.reproduce.messages.catalog import MessageMatch
from envbuilder.reproduce.report.reported import Pause, Reported

_BEFORE_AMPERE = (9, 10)
"""CUDA majors without support for Ampere and later GPUs."""

_AMPERE = "8.0"

LARGE_CACHE = 2 << 30
"""Kernel cache size in bytes that holds TensorFlow's compiled kernels, as users report (NVIDIA's limit is 4 GiB)."""

_MEMORY = frozenset(
    {"cudnn_no_handle", "cublas_no_handle", "convolution_algorithm_failed", "memory_exhausted", "context_refused",
     "no_algorithm_worked", "memory_refused_by_driver", "memory_not_initialised"}
)  # fmt: skip
_STARTING = (
    "libcudart",
    "libcuda",
    "Adding visible gpu devices",
    "Found device",
    "Created",
    "gpu_device.cc",
    "cuda_driver",
)


@dataclass(frozen=True)
class Case:
    """The report, the ids of its messages, and the codes that are already known."""

    reported: Reported
    names: frozenset[str]
    codes: frozenset[Code]

    @property
    def start(self) -> Pause | None:
        """The longest pause within TensorFlow's start."""
        inside = (pause for pause in self.reported.pauses if any(mark in pause.after for mark in _STARTING))
        return next(inside, None)


def causes(reported: Reported, symptoms: tuple[MessageMatch, ...], known: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """List the causes of a slow start or a stall."""
    names = frozenset(row.signature for row in symptoms)
    case = Case(reported, names, frozenset(row.code for row in known))
    return tuple(finding for cause in CAUSES for finding in cause(case))


def _compiles_kernels(case: Case) -> Iterator[Finding]:
    if case.start is None or not case.codes & {Code.PTX_JIT, Code.GPU_UNSUPPORTED_BY_CUDA}:
        return
    yield _finding(
        Code.SLOW_PHASE,
        "start-up",
        f"{case.start.seconds:.0f} s pass after line {case.start.line}: the driver compiles kernels from PTX, because "
        "this build and its CUDA libraries contain none for the GPU.",
        "Install a TensorFlow whose CUDA supports the GPU; until then keep the kernel cache between starts.",
        found=case.start.after,
    )


def _unexplained_start(case: Case) -> Iterator[Finding]:
    old = case.reported.cuda is not None and versions.major(case.reported.cuda) in _BEFORE_AMPERE
    new = any(versions.at_least(text, _AMPERE) for text in case.reported.compute_capabilities)
    told = {Code.PTX_JIT} if case.reported.tensorflow is None else {Code.PTX_JIT, Code.GPU_UNSUPPORTED_BY_CUDA}
    if case.start is None or case.codes & told or not (old and new):
        return
    capability = case.reported.compute_capabilities[0]
    yield _finding(
        Code.PTX_JIT,
        f"compute capability {capability}",
        f"CUDA {case.reported.cuda} is older than this GPU (compute capability {capability}): its libraries and the "
        f"build's kernels are compiled from PTX at each first use, {case.start.seconds:.0f} s after line "
        f"{case.start.line}.",
        "Install TensorFlow 2.4 or newer, which uses CUDA 11.",
        found=case.start.after,
    )


def _cache_too_small(case: Case) -> Iterator[Finding]:
    text = case.reported.environment.get("CUDA_CACHE_MAXSIZE", "")
    size = int(text) if text.isascii() and text.isdigit() else 0
    disabled = case.reported.environment.get("CUDA_CACHE_DISABLE") == "1"
    if Code.PTX_JIT not in case.codes and not (case.start and Code.GPU_UNSUPPORTED_BY_CUDA in case.codes):
        return
    if size >= LARGE_CACHE and not disabled:
        return
    what = "the kernel cache is switched off" if disabled else f"CUDA_CACHE_MAXSIZE is {text or 'not set'}"
    yield _finding(
        Code.SLOW_PHASE,
        "kernel cache",
        f"Compiled kernels may be lost between starts: {what}, and TensorFlow's kernels can exceed the default.",
        "Set CUDA_CACHE_MAXSIZE=4294967296 and keep CUDA_CACHE_PATH on a volume.",
        severity=Severity.INFO,
    )


def _growth_not_set(case: Case) -> Iterator[Finding]:
    if not case.names & _MEMORY or case.reported.environment.get("TF_FORCE_GPU_ALLOW_GROWTH", "").lower() == "true":
        return
    yield _finding(
        Code.STALLS,
        "GPU memory growth",
        "TensorFlow allocates nearly all GPU memory when it starts; nothing is left for cuDNN, cuBLAS, XLA or another "
        "process.",
        "Try TF_FORCE_GPU_ALLOW_GROWTH=true first: it costs nothing.",
    )


def _several_gpus(case: Case) -> Iterator[Finding]:
    count = len(case.reported.gpus)
    if count < 2 or case.start is None:  # noqa: PLR2004
        return
    yield _finding(
        Code.SLOW_PHASE,
        f"{count} GPUs",
        f"Each of the {count} GPUs gets a context and its kernels when TensorFlow starts, one after another; without "
        "the persistence daemon the driver also starts each of them again.",
        "Compare with CUDA_VISIBLE_DEVICES=0, and run nvidia-persistenced on the host.",
        severity=Severity.INFO,
    )


def _gpus_wait(case: Case) -> Iterator[Finding]:
    if not {"stuck", "several"} <= set(case.reported.complaints) or case.codes - {Code.OTHER_BUILD, Code.UNKNOWN}:
        return
    yield _finding(
        Code.STALLS,
        "several GPUs",
        "It hangs with several GPUs: they wait for each other, because their traffic (peer-to-peer, shared memory, "
        "network) does not get through.",
        "Try NCCL_P2P_DISABLE=1, and tf.distribute.ReductionToOneDevice() in place of NCCL; on AMD boards turn the "
        "IOMMU off, and give a container --ipc=host.",
    )


def _tools_missing(case: Case) -> Iterator[Finding]:
    waits = [pause for pause in case.reported.pauses if "cuDNN version" in pause.after or "ptxas" in pause.before]
    if not waits or not case.names & {"ptxas_missing", "child_not_started"}:
        return
    yield _finding(
        Code.SLOW_PHASE,
        "XLA's tools",
        f"{waits[0].seconds:.0f} s pass after line {waits[0].line}: without ptxas the driver compiles PTX of XLA.",
        "Install the nvcc package of the toolkit and put its bin folder on PATH.",
    )


def _other_pauses(case: Case) -> Iterator[Finding]:
    if not case.reported.pauses or case.codes & {Code.PTX_JIT, Code.GPU_UNSUPPORTED_BY_CUDA, Code.XLA_TOOLS_MISSING}:
        return
    if any(next(cause(case), None) is not None for cause in (_unexplained_start, _several_gpus)):
        return
    pause = case.reported.pauses[0]
    yield _finding(
        Code.SLOW_PHASE,
        "pause",
        f"{pause.seconds:.0f} s pass after line {pause.line}; the report does not contain the reason.",
        "Time the phases: envbuilder validate --here --profile full.",
        found=pause.after,
        severity=Severity.INFO,
    )


CAUSES: tuple[Callable[[Case], Iterator[Finding]], ...] = (
    _compiles_kernels,
    _unexplained_start,
    _cache_too_small,
    _growth_not_set,
    _several_gpus,
    _gpus_wait,
    _tools_missing,
    _other_pauses,
)
"""Every cause, in output order."""


def _finding(
    code: Code, subject: str, message: str, fix: str, found: str = "", severity: Severity = Severity.WARNING
) -> Finding:
    return Finding(code=code, severity=severity, subject=subject, message=message, fix=fix, found=found[:200])
