"""Follow a run of the probes: from lines on a stream to results, start-up phases and the driver's identity."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from envbuilder.finding import Code, Finding, Severity
from envbuilder.probes.suite import pace
from envbuilder.probes.suite.channel import Reader
from envbuilder.support import decoding, terminal_text
from envbuilder.validation.checks import HOST_GROUPS, Check
from envbuilder.validation.protocol import Rules
from envbuilder.verdict import LEVELS, CheckResult, GpuSeen, Measurement, Outcome, Phase, every_on

SILENCE_S, REST_S = 60.0, 8.0
"""How long nothing may come from a run: where no check is at work (its start, an image's own words), and beyond what
the checks at work may take, at whose limits the runner speaks by itself."""

NOISE_LIMIT = 64 * 1024 * 1024
"""Bytes of a run's log: its checks' logs are kept by the runner, so that an honest one has next to none."""


@dataclass(frozen=True)
class Unfinished:
    """Why a run did not come to its end, and the code of the checks that it leaves without an answer."""

    why: str
    code: Code = Code.PROBE_CRASHED


UNANSWERED = Unfinished("not run: the runner gave no answer for it", Code.PROTOCOL_VIOLATION)
SILENT = Unfinished("not run: the probes said nothing for too long, and were stopped", Code.PROBE_TIMEOUT)
FLOODED = Unfinished(
    f"not run: stopped, because it printed more than {NOISE_LIMIT >> 20} MiB or a million lines",
    Code.PROTOCOL_VIOLATION,
)


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
    outcome: Outcome
    duration_s: float = 0.0
    expected: str = ""
    observed: str = ""
    findings: tuple[Finding, ...] = ()
    measurements: dict[str, Measurement] = {}
    phases: dict[str, _Times] = {}
    data: Any = None
    log: str = ""

    def seconds(self) -> dict[str, tuple[float, ...]]:
        """Return every time that it says it measured."""
        measured = {name: (one.value,) for name, one in self.measurements.items() if one.unit == "s"}
        return measured | {f"phase {name}": (*one.cold_s, *one.warm_s) for name, one in self.phases.items()}


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
    text: str = ""
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
    """Collects a run's events; feed it what the runner prints, in any pieces.

    ``key`` seals the run's messages; `order` is what the runner is given. ``clock`` counts seconds.
    """

    def __init__(
        self,
        checks: tuple[Check, ...],
        on_progress: Callable[[Progress], None],
        *,
        key: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._checks = checks
        self._on_progress = on_progress
        self._results: dict[str, _Result] = {}
        self._key = key or secrets.token_hex(32)
        self._reader = Reader(self._key)
        self._clock = clock
        self._begun = self._last = clock()
        self._noise = 0
        self._watched = False
        self._rules = Rules({check.name: check for check in checks if check.group not in HOST_GROUPS})
        self.identity: Identity | None = None
        self.stopped: Unfinished | None = None

    def order(self, plan: bytes, limit_s: float) -> bytes:
        """Return what the runner reads on its standard input: the key, the plan, and when to end itself at the latest.

        Nothing else holds the key.
        """
        return msgspec.json.encode({"key": self._key, "plan": msgspec.Raw(plan), "limit_s": limit_s})

    @property
    def strange(self) -> list[str]:
        """Return the first lines that were no message of the runner: a log, never believed."""
        return self._reader.strange

    @property
    def began(self) -> list[str]:
        """Name the checks that began, in order."""
        return self._rules.began

    @property
    def ended(self) -> bool:
        """Tell whether the runner said that it is done."""
        return self._rules.ended

    def feed(self, data: bytes) -> None:
        """Take more of the runner's output. A line that is no message of ours is kept as strange, never believed."""
        for payload in self._reader.feed(data):
            self._last = self._clock()
            try:
                self._take(decoding.from_json(payload, _Event))
            except decoding.DamagedError as error:
                self._rules.violate(f"a message cannot be read: {error}")
        self.noise(0)

    def noise(self, count: int) -> None:
        """Count what came on the log; beyond `NOISE_LIMIT` bytes of log and strange lines the run is to be stopped."""
        self._noise += count
        if self._noise + self._reader.strange_bytes > NOISE_LIMIT and self.stopped is None:
            self.stopped = FLOODED

    def overdue(self) -> bool:
        """Tell whether the run is to be stopped now: nothing came for longer than what is at work may take.

        To be asked again and again while it runs; the first time says that it has begun.
        """
        if not self._watched:
            self._watched, self._last = True, self._clock()
        working = self._rules.at_work
        limits = [self._limit(check) for check in self._checks if check.name in working]
        patience = max(limits) + REST_S if limits else SILENCE_S
        if self.stopped is None and self._clock() - self._last > patience:
            self.stopped = SILENT
        return self.stopped is not None

    def _limit(self, check: Check) -> float:
        """Say after how many seconds the runner kills a check, by what this run's import took."""
        imported = self._results.get(_IMPORT)
        if not check.is_paced or imported is None or imported.outcome != "passed":
            return check.limit_s
        return pace.check_limit(check.limit_s, imported.duration_s)

    def _take(self, event: _Event) -> None:
        if not self._rules.take(event.event):
            return
        match event.event:
            case "begin":
                if self._rules.begin(event.name, self._clock()):
                    self._on_progress(Progress("began", event.name))
            case "result" if event.result is not None:
                result = event.result
                _driver(result)  # another shape makes the whole message one that cannot be read
                if self._rules.result(result, self._clock() - self._begun):
                    self._results[result.name] = result
                    self._on_progress(Progress("ended", result.name, result.outcome, result.duration_s))
            case "identity" if event.identity is not None:
                self.identity = event.identity
            case "spoiled":
                self._rules.violate(f"somebody else wrote on the answers: {event.text}")
            case "end":
                self._rules.ended = True
            case "start" | "identity":
                pass
            case _:
                self._rules.violate(f"{event.event!r} is no message of a run")

    def results(self, why: Unfinished | None = None) -> tuple[CheckResult, ...]:
        """Return a result for every check of the plan, in its order; what has no answer is an error, for ``why``."""
        order = {check.name: index for index, check in enumerate(self._checks)}
        missing = why or UNANSWERED
        made = [_checked(self._results[check.name], check) for check in self._checks if check.name in self._results]
        made += [
            CheckResult(
                name=check.name,
                level=check.level,
                outcome="timeout" if missing.code is Code.PROBE_TIMEOUT else "error",
                observed=missing.why,
                findings=(_unanswered(check, missing),),
            )
            for check in self._checks
            if check.name not in self._results and check.group not in HOST_GROUPS
        ]
        return tuple(sorted(made, key=lambda result: (LEVELS.index(result.level), order[result.name])))

    def violations(self, why: Unfinished | None = None) -> tuple[str, ...]:
        """Return what is amiss with the run's messages, now that it is over for ``why``; nothing for an honest one."""
        rules = replace(self._rules, violations=list(self._rules.violations))
        rules.finish(stopped=why is not None)
        return (*self._reader.wrong, *rules.violations)

    def data(self, name: str) -> Any:  # noqa: ANN401 - each check's own
        """Return what a check said beside its result; None where it said nothing."""
        result = self._results.get(name)
        return result.data if result is not None and result.outcome == "passed" else None

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
        result = self._results.get(_DRIVER)
        return Driver() if result is None else _driver(result)


_IMPORT, _DRIVER = "import", "driver"
"""The check that times follow from, and the one whose data says what GPUs there are."""


def _driver(result: _Result) -> Driver:
    """Read what the driver's check said beside its result. Raises DamagedError where it is of another shape."""
    if result.name != _DRIVER or result.data is None:
        return Driver()
    return decoding.converted(result.data, Driver)


def check_protocol(session: Session, why: Unfinished | None, check: Check) -> CheckResult:
    """Judge the run's messages themselves, now that it is over for ``why`` (None: it came to its end)."""
    violations = session.violations(why)
    findings = tuple(
        Finding(
            code=Code.PROTOCOL_VIOLATION,
            severity=Severity.ERROR,
            subject="the run's messages",
            message=terminal_text.line(text),
            fix="find what in the image answers in the suite's place: .pth files, sitecustomize, a wrapped python",
        )
        for text in violations[:_SHOWN]
    )
    return CheckResult(
        name=check.name,
        level=check.level,
        outcome="failed" if violations else "passed",
        expected="messages that are sealed, whole and in order",
        observed=terminal_text.line("; ".join(violations[:_SHOWN])) or "so they are",
        findings=findings,
    )


_SHOWN = 5


def plain_finding(finding: Finding) -> Finding:
    """Return a finding whose every sentence is one line: an image's words start no line of any report of ours."""
    return msgspec.structs.replace(
        finding,
        subject=terminal_text.line(finding.subject),
        message=terminal_text.line(finding.message),
        requires=terminal_text.line(finding.requires),
        fix=terminal_text.line(finding.fix),
        found=terminal_text.line(finding.found),
    )


def _unanswered(check: Check, why: Unfinished) -> Finding:
    return Finding(code=why.code, severity=Severity.ERROR, subject=check.name, message=why.why)


def _checked(result: _Result, check: Check) -> CheckResult:
    return CheckResult(
        name=result.name,
        level=check.level,
        outcome=result.outcome,
        duration_s=round(result.duration_s, 4),
        expected=terminal_text.line(result.expected),
        observed=terminal_text.line(result.observed),
        findings=tuple(plain_finding(finding) for finding in result.findings),
        measurements=result.measurements,
        log=result.log,
    )
