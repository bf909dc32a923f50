"""Run the suite in a closed container or in a process of this host, and follow it: from messages to results.

Which checks exist, and their levels, is never taken from a message. A run whose results are doubled, lost, unknown or
impossible is never PASSED. The order in which a worker sends them is the runner's to check.
"""

import math
import operator
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from envbuilder.engine.port import FILES_AT, OWN_END_S, ContainerResult, ContainerSpec, Engine
from envbuilder.errors import InfrastructureError, UsageError
from envbuilder.finding import Code, Finding, Severity
from envbuilder.probes.suite.channel import Reader
from envbuilder.probes.suite.drawn_product import SHAPE, SIZES, drawn
from envbuilder.probes.suite.watchdog import Limits
from envbuilder.support import decoding, subprocesses, terminal_text
from envbuilder.support.console import Task
from envbuilder.validation.image_context import found, one_line
from envbuilder.validation.suite_plan import HOST_GROUPS, Check, probe_files
from envbuilder.verdict import CheckLevel, CheckResult, GpuSeen, HostRef, Outcome, Phase, every_on
from envbuilder.workspace import temporary_folder, write_atomically

SILENCE_S = 60.0  # How long a run may send nothing while no check is running: at its start, and when the image prints
GRACE_S = 8.0  # How long a run may send nothing after the limit of a check, at which the runner reports by itself
OUTPUT_LIMIT = 64 * 1024 * 1024  # Bytes of a run's output, as in a container; an honest run prints little
CLOCK_SLACK_S = 2.0  # How much the clocks of host and container may differ over one run before a time is impossible
_MOST_VIOLATIONS, _SHOWN = 40, 5
_IMPORT, _DRIVER = "import", "driver"

PROBES = "probes"  # The folder of the suite in a container; probes of other files are put next to the suite's
_STDERR_KEPT = 8000
_NO_TENSORFLOW, _NO_PYTHON = 3, 4  # Exit codes of start.sh: no Python has TensorFlow; Python does not start
START = ("/bin/sh", f"{FILES_AT}/{PROBES}/start.sh")  # The command that runs the suite in a container
SUITE_S = 1800.0  # The time limit of the suite


@dataclass(frozen=True)
class Unfinished:
    """Why a run did not come to its end, and the code of the checks that have no result because of it."""

    why: str
    code: Code = Code.PROBE_CRASHED


UNANSWERED = Unfinished("not run: the runner sent no result for it", Code.PROTOCOL_VIOLATION)
SILENT = Unfinished("not run: the suite sent nothing for too long and was stopped", Code.PROBE_TIMEOUT)
FLOODED = Unfinished("not run: it printed more than 64 MiB or a million lines", Code.PROTOCOL_VIOLATION)


@dataclass(frozen=True)
class Progress:
    kind: Literal["began", "ended"]
    name: str
    ended: int
    checks: int


def progress_of(task: Task) -> Callable[[Progress], None]:
    def show(progress: Progress) -> None:
        task.update("validate", progress.ended, progress.checks)
        task.log(f"{progress.name} {progress.kind}")

    return show


class _Times(msgspec.Struct, frozen=True):
    cold_s: tuple[float, ...] = ()
    warm_s: tuple[float, ...] = ()


class _Result(CheckResult, frozen=True, kw_only=True):
    """A result as the runner sends it; the level in a message does not count."""

    level: CheckLevel = msgspec.field(default="static", name="tier")
    phases: dict[str, _Times] = msgspec.field(default_factory=dict)
    data: Any = None


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    event: str
    name: str = ""
    text: str = ""
    result: _Result | None = None
    host: HostRef = HostRef()


class _Gpu(GpuSeen, frozen=True, kw_only=True):
    persistence: bool | None = None


class Driver(msgspec.Struct, frozen=True, kw_only=True):
    driver: str | None = None
    count: int = 0
    gpus: tuple[_Gpu, ...] = ()

    def on(self, host: HostRef) -> HostRef:
        gpus = decoding.converted(msgspec.to_builtins(self.gpus), tuple[GpuSeen, ...])
        modes = every_on(gpu.persistence for gpu in self.gpus)
        return msgspec.structs.replace(host, driver=self.driver, gpus=gpus, persistence=modes)


class Session:
    """Collects the messages of a run, which ``token`` marks. ``clock`` counts seconds.

    ``began`` are the checks that began, in order; ``host`` is without its ``driver`` and GPUs.
    """

    def __init__(
        self,
        checks: tuple[Check, ...],
        on_progress: Callable[[Progress], None],
        *,
        token: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._checks = {check.name: check for check in checks if check.group not in HOST_GROUPS}
        self._on_progress = on_progress
        self._results: dict[str, _Result] = {}
        self._violations: list[str] = []
        self._token = token or secrets.token_hex(16)
        self._reader = Reader(self._token)
        self._clock = clock
        self._begun = self._last = clock()
        self._size = 0
        self._watched = self._ended = False
        self.host, self.driver = HostRef(), Driver()
        self.began: list[str] = []
        self.stopped: Unfinished | None = None

    def order(self, plan: bytes, limit_s: float) -> bytes:
        """Return the runner's standard input: the token, the plan, and after how many seconds it ends itself."""
        return msgspec.json.encode({"token": self._token, "plan": msgspec.Raw(plan), "limit_s": limit_s})

    def feed(self, data: bytes) -> None:
        """Take more of the runner's output, in pieces of any size; more than `OUTPUT_LIMIT` bytes stop the run.

        What a run sends after it was stopped does not count: it may end by itself at the same time.
        """
        self._size += len(data)
        if self._size > OUTPUT_LIMIT and self.stopped is None:
            self.stopped = FLOODED
        for document in self._reader.feed(data) if self.stopped is None else ():
            self._last = self._clock()
            try:
                self._take(decoding.from_json(document, _Event))
            except decoding.DamagedError as error:
                self._violate(f"a message cannot be read: {error}")

    def overdue(self) -> bool:
        """Return True if the run has to be stopped now; call it repeatedly, from the start of the run on."""
        if not self._watched:
            self._watched, self._last = True, self._clock()
        running = [self._checks[name] for name in self.began if name not in self._results]
        limits = (self.limit(check.limit_s) + GRACE_S for check in running)
        if self.stopped is None and self._clock() - self._last > max(limits, default=SILENCE_S):
            self.stopped = SILENT
        return self.stopped is not None

    def limit(self, seconds: float) -> float:
        return Limits().scaled(seconds, self._results[_IMPORT].duration_s if _IMPORT in self._results else 0.0)

    def outcomes(self) -> dict[str, Outcome]:
        """Return the outcomes so far, by check; other threads may ask."""
        return {name: result.outcome for name, result in list(self._results.items())}

    def _violate(self, *texts: str) -> None:
        self._violations = [*self._violations, *texts][:_MOST_VIOLATIONS]

    def _take(self, event: _Event) -> None:
        match event.event:
            case "start":
                self.host = event.host
            case "begin" if event.name in self._checks:
                self.began.append(event.name)
                self._on_progress(Progress("began", event.name, len(self._results), len(self._checks)))
            case "result" if event.result is not None:
                self._take_result(event.result)
            case "end":
                self._ended = True
            case "spoiled":
                self._violate(f"something else wrote to the results: {event.text}")
            case _:
                self._violate(f"{event.event!r} is not a message of a run")

    def _take_result(self, result: _Result) -> None:
        if result.name == _DRIVER and result.data is not None:
            self.driver = decoding.converted(result.data, Driver)  # another shape: the message cannot be read
        if result.name not in self._checks:
            self._violate(f"{result.name!r} is not in the plan")
        elif result.name in self._results:
            self._violate(f"{result.name!r} has a second result")
        else:
            self._violate(*self._departures(result))
            self._results[result.name] = result
            self._on_progress(Progress("ended", result.name, len(self._results), len(self._checks)))

    def _departures(self, result: _Result) -> Iterator[str]:
        elapsed = self._clock() - self._begun
        measured = {name: (one.value,) for name, one in result.measurements.items() if one.unit == "s"}
        phases = {f"phase {name}": (*one.cold_s, *one.warm_s) for name, one in result.phases.items()}
        for what, values in {"it": (result.duration_s,), **measured, **phases}.items():
            if not all(math.isfinite(value) and 0 <= value <= elapsed + CLOCK_SLACK_S for value in values):
                yield f"{result.name}: {what} took an impossible time, {elapsed:.1f} s into the run"
        if result.outcome != "passed":
            return
        if any(one.severity is Severity.ERROR for one in result.findings):
            yield f"{result.name} passed with an error among its findings"
        for what, least in self._checks[result.name].at_least.items():
            if min(result.duration_s, *measured.get(what, (0.0,))) < least:
                yield f"{result.name} passed in less than {least} s, which is less than its work takes"

    def results(self, why: Unfinished | None = None) -> tuple[CheckResult, ...]:
        """Return a result for every check of the plan, in its order; a check without a result is an error."""
        first = next((name for name in self._checks if name not in self._results), "")
        own, why = self._results, why or UNANSWERED
        return tuple(
            _checked(own[name], check) if name in own else _unanswered(check, why, first)
            for name, check in self._checks.items()
        )

    def violations(self, why: Unfinished | None = None) -> tuple[str, ...]:
        """Return the departures from an honest run's messages, for a run that is over because of ``why``."""
        missing = [name for name in self._checks if name not in self._results]
        is_cut = why is not None and (missing or not self._checks)
        departures = {
            "the last message of the run is missing": not self._ended and not is_cut,
            "the run sent its last message and did not end well then": self._ended and why is not None,
            "the run ended without a result for " + ", ".join(missing[:_SHOWN]): self._ended and missing,
        }
        return (*self._violations, *(text for text, holds in departures.items() if holds))

    def data(self, name: str) -> Any:  # noqa: ANN401 - each check has its own
        return self._results[name].data if self.outcomes().get(name) == "passed" else None

    def timeline(self) -> tuple[Phase, ...]:
        phases: dict[str, Phase] = {}
        results = (self._results[name] for name in self._checks if name in self._results)
        for name, times in (pair for result in results for pair in result.phases.items()):
            known = phases.get(name, Phase(phase=name))
            cold_s, warm_s = (*known.cold_s, *times.cold_s), (*known.warm_s, *times.warm_s)
            phases[name] = Phase(phase=name, cold_s=cold_s, warm_s=warm_s)
        return tuple(phases.values())


def check_protocol(session: Session, why: Unfinished | None, check: Check) -> CheckResult:
    findings = tuple(found("message_of_run", text=text) for text in session.violations(why)[:_SHOWN])
    return check.result(
        "failed" if findings else "passed",
        "; ".join(one.message for one in findings) or "complete and in order",
        findings=findings,
    )


def _unanswered(check: Check, why: Unfinished, first: str) -> CheckResult:
    outcome: Outcome = "timeout" if why.code is Code.PROBE_TIMEOUT else "error"
    if check.name != first:
        return check.result(outcome, f"not run, for the reason of {first}")
    finding = Finding(code=why.code, severity=Severity.ERROR, subject=check.name, message=why.why)
    return check.result(outcome, why.why, findings=(finding,))


def _checked(result: _Result, check: Check) -> CheckResult:
    return check.result(
        result.outcome,
        terminal_text.line(result.observed),
        expected=terminal_text.line(result.expected),
        duration_s=round(result.duration_s, 4),
        findings=tuple(map(one_line, result.findings)),
        measurements=result.measurements,
        log=result.log,
    )


def product(nonce: str) -> list[int]:
    """Compute what `probes/suite/drawn_product.py` returns, in plain Python."""
    rows, inner, columns = SHAPE
    left, right, vector = (drawn(nonce, name, size) for name, size in SIZES.items())
    inside = [sum(map(operator.mul, right[row * columns : (row + 1) * columns], vector)) for row in range(inner)]
    return [sum(map(operator.mul, left[row * inner : (row + 1) * inner], inside)) for row in range(rows)]


def check_product(result: CheckResult, data: object, nonce: str) -> CheckResult:
    if result.name != "challenge" or result.outcome != "passed":
        return result
    if data == product(nonce):
        return msgspec.structs.replace(result, observed="the host's product")
    finding = found("other_product", shape="x".join(map(str, SHAPE)))
    return msgspec.structs.replace(result, outcome="failed", observed=finding.message, findings=(finding,))


def in_container(
    engine: Engine, spec: ContainerSpec, plan: bytes, session: Session, *, foreign: str = ""
) -> Unfinished | None:
    """Run a plan in a fresh container; return why it did not run to its end, None if it did.

    ``spec`` runs `START`; the suite's files and variables are added to its own. ``foreign`` is the user's name of an
    image that need not have TensorFlow: a missing one, or an image that does not start, is then a wrong argument and
    not a finding. Raises UsageError for it, InfrastructureError if the engine cannot run it.
    """
    stderr = bytearray()
    complete = replace(
        spec,
        env={"HOME": "/tmp", "TF_CPP_MIN_LOG_LEVEL": "0", **spec.env},  # noqa: S108 - inside the container
        files={**_suite(), **spec.files},
        stdin=session.order(plan, spec.time_limit + OWN_END_S),
        overdue=session.overdue,
    )
    ended = engine.run(complete, session.feed, lambda data: stderr.extend(data[: max(0, _STDERR_KEPT - len(stderr))]))
    if session.stopped is not None or ended.flooded:
        return session.stopped or FLOODED
    if ended.timed_out:
        return Unfinished("not run: the container's time limit was reached", Code.PROBE_TIMEOUT)
    why, hint = _why(ended, decoding.lossy(bytes(stderr)))
    if foreign and hint:
        raise UsageError(f"{foreign}: {why}", hint=hint)
    return Unfinished(f"not run: {why}") if why else None


def _suite() -> dict[str, bytes]:
    return {f"{PROBES}/{name}": content for name, content in probe_files().items()}


def _why(ended: ContainerResult, stderr: str) -> tuple[str, str]:
    """Return why a run did not come to its end, '' if it did, and a fix if the suite did not begin."""
    if ended.out_of_memory:  # a check that was killed for its memory is a crashed check: then the run came to its end
        return "the container ran out of memory" if ended.exit_code else "", ""
    if ended.exit_code == _NO_TENSORFLOW:
        return "no Python in it has TensorFlow", "validate an image that brings TensorFlow"
    if ended.refusal:
        return f"the container cannot start: {terminal_text.line(ended.refusal)}", "the image needs /bin/sh"
    if ended.exit_code == _NO_PYTHON:
        return f"the image's Python does not start: {terminal_text.line(stderr[:1000])}", ""
    code = ended.exit_code
    return f"the runner ended with exit code {code}: {terminal_text.line(stderr[-1000:])}" if code else "", ""


def here(
    python: str, plan: bytes, session: Session, *, files: Mapping[str, bytes] | None = None, time_limit: float = SUITE_S
) -> Unfinished | None:
    """Run a plan with a Python of this host, as `in_container` does. Raises InfrastructureError if it cannot start."""
    with temporary_folder("here") as folder:
        (folder / PROBES).mkdir()
        for name, content in {**_suite(), **(files or {})}.items():
            write_atomically(folder / name, content)
        try:
            code = subprocesses.follow(
                (python, "-I", "-S", str(folder / PROBES)),
                session.feed,
                within=time_limit,
                stdin=session.order(plan, time_limit + OWN_END_S),
                overdue=session.overdue,
                group=True,
                patience=0.0,
            )
        except OSError as error:
            raise InfrastructureError(f"cannot run {python}: {error.strerror}", hint="give --python") from error
    if session.stopped is not None or code == 0:
        return session.stopped
    if code is None:
        return Unfinished("not run: the run's time limit was reached", Code.PROBE_TIMEOUT)
    return Unfinished(f"not run: the runner ended with exit code {code}")
