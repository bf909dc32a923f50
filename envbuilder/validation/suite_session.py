"""Follow a run of the suite: from lines on a stream to results, start-up phases and the identity of the driver.

The host has the plan: which checks exist, and their levels, are never taken from a message. A departure from the order
of an honest run's messages is a violation, and such a run is never PASSED.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from envbuilder.finding import Code, Finding, Severity
from envbuilder.probes.suite.channel import Reader
from envbuilder.probes.suite.watchdog import Limits
from envbuilder.support import decoding, terminal_text
from envbuilder.validation.checks import HOST_GROUPS, Check
from envbuilder.verdict import LEVELS, CheckResult, GpuSeen, Measurement, Outcome, Phase, every_on

SILENCE_S = 60.0
"""How long a run may send nothing while no check is running: at its start, and when the image prints."""

GRACE_S = 8.0
"""How long a run may send nothing after the limit of a check, at which the runner reports by itself."""

NOISE_LIMIT = 64 * 1024 * 1024
"""Bytes of a run's log. The runner keeps the logs of checks, so an honest run prints almost nothing."""

CLOCK_SLACK_S = 2.0
"""How much the clocks of host and container may differ over one run before a time is impossible."""

_MOST_VIOLATIONS, _SHOWN = 40, 5


@dataclass(frozen=True)
class Unfinished:
    """Why a run did not come to its end, and the code of the checks that have no result because of it."""

    why: str
    code: Code = Code.PROBE_CRASHED


UNANSWERED = Unfinished("not run: the runner sent no result for it", Code.PROTOCOL_VIOLATION)
SILENT = Unfinished("not run: the suite sent nothing for too long and was stopped", Code.PROBE_TIMEOUT)
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
        """Return every time in the result, by name."""
        measured = {name: (one.value,) for name, one in self.measurements.items() if one.unit == "s"}
        return measured | {f"phase {name}": (*one.cold_s, *one.warm_s) for name, one in self.phases.items()}


class SuiteHost(msgspec.Struct, frozen=True, kw_only=True):
    """The host of a run, as the runner reports it; ``memory`` in bytes."""

    kernel: str = ""
    cpus: int = 0
    cpu_model: str = ""
    memory: int = 0


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    event: str
    name: str = ""
    text: str = ""
    result: _Result | None = None
    host: SuiteHost = SuiteHost()


class _Gpu(GpuSeen, frozen=True, kw_only=True):
    persistence: bool | None = None


class Driver(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver reports inside the container."""

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
        """Return True if every GPU is in persistence mode; None without a GPU, or if one does not report it."""
        return every_on(gpu.persistence for gpu in self.gpus)


@dataclass
class _MessageRules:
    """The order of an honest run's messages; ``violations`` has the first departures from it."""

    checks: Mapping[str, Check]
    violations: list[str] = field(default_factory=list)
    started: bool = False
    ended: bool = False
    began: list[str] = field(default_factory=list)
    outcomes: dict[str, str] = field(default_factory=dict)

    def violate(self, text: str) -> None:
        if len(self.violations) < _MOST_VIOLATIONS:
            self.violations.append(text)

    def take(self, kind: str) -> bool:
        """Take a message of a kind; False if it may not come here and must not be believed."""
        if self.ended:
            self.violate(f"{kind!r} after the end")
        elif (kind == "start") is self.started:
            self.violate("a second start" if self.started else f"{kind!r} before the start")
            self.started = True
            return kind != "start"
        else:
            self.started = True
            return True
        return False

    def begin(self, name: str) -> bool:
        """Take the begin of a check; False if it must not be believed."""
        if name in self.checks and name not in self.began and name not in self.outcomes:
            self.began.append(name)
            return True
        self.violate(f"{name!r} begins, and " + ("began before" if name in self.checks else "is not in the plan"))
        return False

    def result(self, result: _Result, elapsed: float) -> bool:
        """Take a result, ``elapsed`` seconds into the run; False if it must not be believed."""
        name = result.name
        if name not in self.checks or name in self.outcomes:
            self.violate(f"{name!r} " + ("has a second result" if name in self.outcomes else "is not in the plan"))
            return False
        self.outcomes[name] = result.outcome
        if result.outcome == "passed":
            self._passed(self.checks[name], result)
        times = {"it": (result.duration_s,), **result.seconds()}
        for what, values in times.items():
            if not all(math.isfinite(value) and 0 <= value <= elapsed + CLOCK_SLACK_S for value in values):
                self.violate(f"{name}: {what} took an impossible time, {elapsed:.1f} s into the run")
        return True

    def _passed(self, check: Check, result: _Result) -> None:
        if check.name not in self.began:
            self.violate(f"{check.name} passed and never began")
        for need in check.needs:
            if self.outcomes.get(need, "passed") != "passed":
                self.violate(f"{check.name} passed, and {need}, which it needs, did not")
        if any(finding.severity is Severity.ERROR for finding in result.findings):
            self.violate(f"{check.name} passed with an error among its findings")
        measured = result.seconds()
        for what, least in check.at_least:
            for value in (result.duration_s, *measured.get(what, (0.0,))):
                if value < least:
                    self.violate(f"{check.name} passed in {value:.3g} s, which is less than its work takes")

    def at_end(self, *, stopped: bool) -> list[str]:
        """Return the violations of a run that is over.

        A run that was stopped needs no last message if results are missing. A run that sent its last message and was
        stopped, or died, is a violation: something of it went on.
        """
        found = list(self.violations)
        missing = [name for name in self.checks if name not in self.outcomes]
        if not self.ended and not (stopped and (missing or not self.checks)):
            found.append("the last message of the run is missing")
        if self.ended and stopped:
            found.append("the run sent its last message and did not end well then")
        if self.ended and missing:
            found.append("the run ended without a result for " + ", ".join(missing[:_SHOWN]))
        return found


class Session:
    """Collects the messages of a run; feed it what the runner prints, in pieces of any size.

    ``token`` marks the messages of this run. ``clock`` counts seconds.
    """

    def __init__(
        self,
        checks: tuple[Check, ...],
        on_progress: Callable[[Progress], None],
        *,
        token: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._checks = checks
        self._on_progress = on_progress
        self._results: dict[str, _Result] = {}
        self._token = token or secrets.token_hex(16)
        self._reader = Reader(self._token)
        self._clock = clock
        self._begun = self._last = clock()
        self._noise = 0
        self._watched = False
        self._rules = _MessageRules({check.name: check for check in checks if check.group not in HOST_GROUPS})
        self.host = SuiteHost()
        self.stopped: Unfinished | None = None

    def order(self, plan: bytes, limit_s: float) -> bytes:
        """Return the runner's standard input: the token, the plan, and after how many seconds it ends itself."""
        return msgspec.json.encode({"token": self._token, "plan": msgspec.Raw(plan), "limit_s": limit_s})

    @property
    def strange(self) -> list[str]:
        """Return the first lines that are not messages of the runner: a log, never believed."""
        return self._reader.strange

    @property
    def began(self) -> list[str]:
        """Return the checks that began, in order."""
        return self._rules.began

    def feed(self, data: bytes) -> None:
        """Take more of the runner's output."""
        for document in self._reader.feed(data):
            self._last = self._clock()
            try:
                self._take(decoding.from_json(document, _Event))
            except decoding.DamagedError as error:
                self._rules.violate(f"a message cannot be read: {error}")
        self.noise(0)

    def noise(self, count: int) -> None:
        """Count the bytes of the log; a run with more than `NOISE_LIMIT` bytes of log and strange lines is stopped."""
        self._noise += count
        if self._noise + self._reader.strange_bytes > NOISE_LIMIT and self.stopped is None:
            self.stopped = FLOODED

    def overdue(self) -> bool:
        """Return True if the run has to be stopped now; call it repeatedly, from the start of the run on."""
        if not self._watched:
            self._watched, self._last = True, self._clock()
        running = [check for check in self._checks if check.name in self.began and check.name not in self._results]
        patience = max((self._limit(check) + GRACE_S for check in running), default=SILENCE_S)
        if self.stopped is None and self._clock() - self._last > patience:
            self.stopped = SILENT
        return self.stopped is not None

    def _limit(self, check: Check) -> float:
        imported = self._results.get(_IMPORT)
        return Limits().scaled(check.limit_s, imported.duration_s if imported else 0.0)

    def _take(self, event: _Event) -> None:
        if not self._rules.take(event.event):
            return
        match event.event:
            case "begin":
                if self._rules.begin(event.name):
                    self._on_progress(Progress("began", event.name))
            case "result" if event.result is not None:
                result = event.result
                _driver(result)  # another shape makes the whole message unreadable
                if self._rules.result(result, self._clock() - self._begun):
                    self._results[result.name] = result
                    self._on_progress(Progress("ended", result.name, result.outcome, result.duration_s))
            case "spoiled":
                self._rules.violate(f"something else wrote to the results: {event.text}")
            case "end":
                self._rules.ended = True
            case "start":
                self.host = event.host
            case _:
                self._rules.violate(f"{event.event!r} is not a message of a run")

    def results(self, why: Unfinished | None = None) -> tuple[CheckResult, ...]:
        """Return a result for every check of the plan, in its order; a check without a result is an error."""
        incomplete = why or UNANSWERED
        results = [
            _checked(self._results[check.name], check)
            if check.name in self._results
            else _unanswered(check, incomplete)
            for check in self._checks
            if check.name in self._results or check.group not in HOST_GROUPS
        ]
        return tuple(sorted(results, key=lambda result: LEVELS.index(result.level)))

    def violations(self, why: Unfinished | None = None) -> tuple[str, ...]:
        """Return the departures from an honest run's messages, for a run that is over because of ``why``."""
        return tuple(self._rules.at_end(stopped=why is not None))

    def data(self, name: str) -> Any:  # noqa: ANN401 - each check has its own
        """Return the data of a check that passed; None if it has none."""
        result = self._results.get(name)
        return result.data if result is not None and result.outcome == "passed" else None

    def timeline(self) -> tuple[Phase, ...]:
        """Return every phase of start-up that was timed, in the order of the measurements."""
        phases: dict[str, _Times] = {}
        for check in self._checks:
            for name, times in (self._results[check.name].phases if check.name in self._results else {}).items():
                known = phases.get(name, _Times())
                phases[name] = _Times(known.cold_s + times.cold_s, known.warm_s + times.warm_s)
        return tuple(Phase(phase=name, cold_s=times.cold_s, warm_s=times.warm_s) for name, times in phases.items())

    def driver(self) -> Driver:
        """Return what the check of the driver reported; empty if there was no such check."""
        result = self._results.get(_DRIVER)
        return Driver() if result is None else _driver(result)


_IMPORT, _DRIVER = "import", "driver"


def _driver(result: _Result) -> Driver:
    """Read the data of the driver's check. Raises DamagedError for another shape."""
    if result.name != _DRIVER or result.data is None:
        return Driver()
    return decoding.converted(result.data, Driver)


def check_protocol(session: Session, why: Unfinished | None, check: Check) -> CheckResult:
    """Check the messages of a run that is over because of ``why`` (None: it came to its end)."""
    violations = session.violations(why)
    findings = tuple(
        Finding(
            code=Code.PROTOCOL_VIOLATION,
            severity=Severity.ERROR,
            subject="messages of the run",
            message=terminal_text.line(text),
            fix="find code of the image that writes to the results: .pth files, sitecustomize, a wrapped python",
        )
        for text in violations[:_SHOWN]
    )
    return CheckResult(
        name=check.name,
        level=check.level,
        outcome="failed" if violations else "passed",
        expected="messages that are complete and in order",
        observed=terminal_text.line("; ".join(violations[:_SHOWN])) or "complete and in order",
        findings=findings,
    )


def plain_finding(finding: Finding) -> Finding:
    """Return a finding with every text on one line, so that an image's text starts no line of a report."""
    return msgspec.structs.replace(
        finding,
        subject=terminal_text.line(finding.subject),
        message=terminal_text.line(finding.message),
        requires=terminal_text.line(finding.requires),
        fix=terminal_text.line(finding.fix),
        found=terminal_text.line(finding.found),
    )


def _unanswered(check: Check, why: Unfinished) -> CheckResult:
    return CheckResult(
        name=check.name,
        level=check.level,
        outcome="timeout" if why.code is Code.PROBE_TIMEOUT else "error",
        observed=why.why,
        findings=(Finding(code=why.code, severity=Severity.ERROR, subject=check.name, message=why.why),),
    )


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
