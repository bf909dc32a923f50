"""Follow a run of the probes: from lines on a stream to results, start-up phases and the driver's identity."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from envbuilder.finding import Code, Finding, Severity
from envbuilder.validation.checks.specification import Check
from envbuilder.verdict import TIERS, CheckResult, GpuSeen, Measurement, Outcome, Phase, Tier, every_on


@dataclass(frozen=True)
class Progress:
    """What happens during a validation: a check begins, or ends with its outcome."""

    kind: Literal["began", "ended"]
    name: str
    outcome: str = ""
    seconds: float = 0.0


class _Times(msgspec.Struct, frozen=True):
    cold_s: tuple[float, ...] = ()
    warm_s: tuple[float, ...] = ()


class _Result(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    tier: Tier
    outcome: Outcome
    duration_s: float = 0.0
    expected: str = ""
    observed: str = ""
    findings: tuple[Finding, ...] = ()
    measurements: dict[str, Measurement] = {}
    phases: dict[str, _Times] = {}
    data: Any = None
    log: str = ""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What the runner says about the Python that it runs in, and the TensorFlow there (None where there is none)."""

    python: str
    executable: str
    machine: str = ""
    libc: str = ""
    tensorflow: str | None = None
    package: str | None = None
    version: str | None = None
    build: Mapping[str, Any] = {}
    cuda: tuple[str, ...] = ()
    os: Mapping[str, str] = {}
    kernel: str = ""
    cpus: int = 0
    cpu_model: str = ""
    memory: int = 0
    environment: str = ""
    lock: str = ""

    @property
    def is_cuda_build(self) -> bool:
        """Tell whether the build says that it has CUDA."""
        return bool(self.build.get("is_cuda_build"))

    @property
    def is_for_gpus(self) -> bool:
        """Tell whether GPUs are meant to be used: a CUDA build with a CUDA run time, or with a GPU, at hand."""
        return self.is_cuda_build and bool(self.cuda)


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    event: str
    name: str = ""
    result: _Result | None = None
    identity: Identity | None = None


class _Gpu(GpuSeen, frozen=True, kw_only=True):
    persistence: bool | None = None


class Driver(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver said of itself inside the container."""

    driver: str | None = None
    cuda: str | None = None
    count: int = 0
    gpus: tuple[_Gpu, ...] = ()

    @property
    def seen(self) -> tuple[GpuSeen, ...]:
        """Return the GPUs as the verdict's host names them."""
        return tuple(
            GpuSeen(name=gpu.name, compute_capability=gpu.compute_capability, memory=gpu.memory, uuid=gpu.uuid)
            for gpu in self.gpus
        )

    @property
    def persistence(self) -> bool | None:
        """Tell whether every GPU is in persistence mode; None where there is none, or one did not say."""
        return every_on(gpu.persistence for gpu in self.gpus)


class Session:
    """Collects a run's events; feed it what the runner prints, in any pieces."""

    def __init__(self, checks: tuple[Check, ...], on_progress: Callable[[Progress], None]) -> None:
        self._checks = checks
        self._on_progress = on_progress
        self._partial = b""
        self._results: dict[str, _Result] = {}
        self.began: list[str] = []
        self.identity: Identity | None = None
        self.ended = False
        self.strange: list[str] = []

    def feed(self, data: bytes) -> None:
        """Take more of the runner's output. A line that is no event of ours is kept as strange, never believed."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            try:
                self._take(msgspec.json.decode(line, type=_Event))
            except msgspec.MsgspecError:
                self.strange.append(line[:500].decode(errors="replace"))

    def _take(self, event: _Event) -> None:
        match event.event:
            case "begin":
                self.began.append(event.name)
                self._on_progress(Progress("began", event.name))
            case "result" if event.result is not None:
                result = event.result
                self._results[result.name] = result
                self._on_progress(Progress("ended", result.name, result.outcome, result.duration_s))
            case "identity":
                self.identity = event.identity
            case "end":
                self.ended = True
            case _:
                pass

    def results(self, why_missing: str) -> tuple[CheckResult, ...]:
        """Return a result for every check of the plan, in its order; what has no answer is an error."""
        order = {check.name: index for index, check in enumerate(self._checks)}
        made = [_checked(self._results[name]) for name in self._results if name in order]
        made += [
            CheckResult(
                name=check.name,
                tier=check.tier,
                outcome="error",
                observed=why_missing,
                findings=(_unanswered(check, why_missing),),
            )
            for check in self._checks
            if check.name not in self._results
        ]
        return tuple(sorted(made, key=lambda result: (TIERS.index(result.tier), order[result.name])))

    def timeline(self) -> tuple[Phase, ...]:
        """Return every phase of start-up that was timed, in the order in which it was."""
        phases: dict[str, _Times] = {}
        for check in self._checks:
            for name, times in (self._results[check.name].phases if check.name in self._results else {}).items():
                known = phases.get(name, _Times())
                phases[name] = _Times(known.cold_s + times.cold_s, known.warm_s + times.warm_s)
        return tuple(Phase(phase=name, cold_s=times.cold_s, warm_s=times.warm_s) for name, times in phases.items())

    def driver(self) -> Driver:
        """Return what the check of the driver reported; empty where it was not made."""
        result = self._results.get("driver")
        if result is None or result.data is None:
            return Driver()
        return msgspec.convert(result.data, Driver)


def _unanswered(check: Check, why: str) -> Finding:
    return Finding(code=Code.PROBE_CRASHED, severity=Severity.ERROR, subject=check.name, message=why)


def _checked(result: _Result) -> CheckResult:
    return CheckResult(
        name=result.name,
        tier=result.tier,
        outcome=result.outcome,
        duration_s=round(result.duration_s, 4),
        expected=result.expected,
        observed=result.observed,
        findings=result.findings,
        measurements=result.measurements,
        log=result.log,
    )
