"""Run jobs on the workers of a Dask scheduler: each on a free one of its class, a lost one again on another.

Each job is bound to one free worker. Dask by itself would queue jobs behind each other on a worker, count its death
against all of them, and start them again next to the attempts that are counted here.

Several runs share the workers, and may ask for the same job. Its key on the scheduler is the job's name with the number
of the attempt, on which the runs agree through the scheduler's metadata; a key is started once. A job goes on without
the run that started it, and the next run joins it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import msgspec

from envbuilder.errors import InfrastructureError, UsageError
from envbuilder.jobs.fleet.job import Job, JobSpec, ProofDocument, end_of, no_result
from envbuilder.support import decoding, subprocesses, terminal_text

ATTEMPTS = 4
"""How often a job is started in all if its workers are lost: a fifth host is unlikely to do better."""

LOOK_S, SILENT_S, REPEAT_S, REPORT_S = 1.0, 10.0, 20.0, 60.0
"""Seconds between two looks at the workers, until a wait is reported, until a worker that refused a job gets another
one, and until the same line is reported again."""

PATIENCE_S, PAUSE_S, _TOLD_S = 180.0, 2.0, 15.0
"""How long a registry may be away, and the pauses between two questions and two reports."""

CONNECT_S, _FETCH_S, _LINE_S, _JOB_S = 5.0, 30.0, 5.0, 6 * 3600.0
"""Time limits for an answer of a scheduler and for the result of a job that has ended; time between two lines of a job
that are passed on (a suite writes thirty); time limit of a job: several times the build of the largest image."""

_TOPIC, _LONGEST = "envbuilder", 4000
"""Dask's topic for the lines of jobs, and the greatest length of one."""

DIED = "the worker died"

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Worker:
    """``classes`` are the host classes that it advertises, the exact one last.

    ``tasks`` is what it has: the number of the attempt by the name of the job.
    """

    address: str
    name: str
    classes: tuple[str, ...]
    tasks: Mapping[str, str] = field(default_factory=dict)


@dataclass
class DaskEngine:
    address: str
    say: Callable[[str], None]
    _titles: dict[str, str] = field(default_factory=dict)
    _client: Any = None

    def __enter__(self) -> Self:
        dask()
        logging.disable()  # Dask logs with tracebacks what our own lines say
        import_module("dask.config").set({"distributed.comm.timeouts.connect": f"{CONNECT_S:g}s"})
        self._connect()
        return self

    def __exit__(self, *failure: object) -> None:
        """Leave the scheduler, whose workers complete their jobs."""
        with suppress(Exception):
            self._client.close()

    def _connect(self) -> None:
        """Connect to the scheduler. Raises UsageError for a wrong address, InfrastructureError without an answer."""
        _check_scheduler(self.address)
        if self._client is not None:
            with suppress(Exception):
                self._client.close(timeout=1)
        with _reaching(self.address):
            self._client = dask().Client(self.address, timeout=CONNECT_S, set_as_default=False)
            self._client.subscribe_topic(_TOPIC, self._line)

    def _line(self, event: tuple[object, Mapping[str, str]]) -> None:
        if title := self._titles.get(event[1]["key"]):
            self.say(f"{title}: {terminal_text.line(event[1]['line'])}")

    def workers(self) -> tuple[Worker, ...]:
        """Return the workers with the jobs that each has. Raises InfrastructureError if the scheduler is away."""
        if self._client.status != "running":  # the scheduler was lost; it may have come back
            self._connect()
        with _reaching(self.address):
            known: Mapping[str, Mapping[str, Any]] = self._client.scheduler_info(n_workers=-1)["workers"]
            keys: Mapping[str, Sequence[str]] = self._client.processing()
        return tuple(
            Worker(
                address,
                str(one.get("name") or address),
                tuple(one.get("resources") or ()),
                {name: number for name, _, number in (str(key).rpartition("-") for key in keys.get(address, ()))},
            )
            for address, one in known.items()
        )

    def start(self, job: Job, worker: Worker, least: int) -> tuple[int, Any]:
        """Start a job on a worker, or join it there; return the number of the attempt and Dask's future of it.

        The number is ``least`` or a later one on which the runs agree. Raises InfrastructureError.
        """
        with _reaching(self.address):
            number = int(worker.tasks[job.name]) if job.name in worker.tasks else self._agreed(job.name, least)
            key = f"{job.name}-{number}"
            self._titles[key] = f"{job.title} on {worker.name}"
            bound = {"key": key, "workers": [worker.address], "allow_other_workers": False, "pure": False}
            future = self._client.submit(run_job, job.spec, key, **bound)
            dask().fire_and_forget(future)  # otherwise Dask forgets what runs if this run is killed
            return number, future

    def _agreed(self, name: str, least: int) -> int:
        """Return the number of the next attempt. One whose worker died without a run that noticed is cancelled."""
        number = max(least, int(self._client.get_metadata([_TOPIC, name], 0)))
        states = partial(self._client.sync, self._client.scheduler.get_task_status)
        while states(keys=[key := f"{name}-{number}"])[key] == "no-worker":
            dask().Future(key, self._client).cancel(force=True)
            number += 1
        self._client.set_metadata([_TOPIC, name], number)
        return number

    def end(self, future: Any, lost: str) -> ProofDocument:  # noqa: ANN401 - a future of Dask
        """Return the end of a job, or cancel a job that has none; ``lost`` is the reason, if it is known."""
        try:
            if future.status in ("finished", "error"):
                return end_of(*future.result(timeout=_FETCH_S))
            future.cancel(force=True)
        except Exception as error:  # noqa: BLE001 - Dask's own, or that of `run_job`
            return no_result(lost or _text(error))
        return no_result(lost)


@dataclass
class Attempts:
    """The attempts of a job: the workers that lost it and why, and its end.

    ``future`` is Dask's of the attempt ``number`` under way on the worker ``on``. ``since`` is when it began to wait,
    or last ran; ``served`` when its class last had a usable worker.
    """

    job: Job
    lost: list[tuple[str, str]] = field(default_factory=list)
    end: ProofDocument | None = None
    number: int = 0
    future: Any = None
    on: Worker = Worker("", "", ())
    since: float = field(default_factory=time.monotonic)
    served: float = field(default_factory=time.monotonic)


@dataclass
class Dispatcher:
    """Runs jobs on the workers of a scheduler.

    A lost job is started again, on another worker if there is one. A worker that refuses a job, because its check
    failed, gets no other for `REPEAT_S`; that is not an attempt. A job is given up if no usable worker of its class is
    there for ``timeout_s``, or no scheduler answers.
    """

    engine: DaskEngine
    say: Callable[[str], None]
    timeout_s: float = 600.0
    _refused: dict[str, tuple[str, float]] = field(default_factory=dict)
    _reported: dict[str, float] = field(default_factory=dict)

    def run(self, jobs: Iterable[Job]) -> dict[str, ProofDocument]:
        """Run every job and return its end by its name; jobs with the same name are one job."""
        every = {job.name: Attempts(job) for job in jobs}
        while left := [one for one in every.values() if one.end is None]:
            try:
                workers = with_patience(self.engine.workers, self.say, self.timeout_s)
            except InfrastructureError as error:
                for one in left:
                    one.end = no_result(error.message)
                break
            for one in left:
                if one.future is not None:
                    self._follow(one, workers)
            busy = {one.on.address for one in left if one.future is not None}
            for one in left:
                if one.future is None and one.end is None:
                    with suppress(InfrastructureError):  # the next look at the workers finds out
                        self._start(one, workers, busy)
            time.sleep(LOOK_S)
        return {name: one.end for name, one in every.items() if one.end is not None}

    def _follow(self, one: Attempts, workers: tuple[Worker, ...]) -> None:
        """Find the worker that has a job, and note the end of a job that no worker has."""
        status, now = one.future.status, time.monotonic()
        is_gone = one.on.address not in {worker.address for worker in workers}
        here = next((worker for worker in workers if worker.tasks.get(one.job.name) == f"{one.number}"), None)
        if status in ("finished", "error"):
            self._end(one, DIED if is_gone else "")
        elif here is not None:
            one.on, one.since = here, now
            if status != "pending":  # this run was disconnected meanwhile
                with suppress(InfrastructureError):
                    _, one.future = self.engine.start(one.job, here, one.number)
        elif is_gone or status != "pending" or now > one.since + SILENT_S:
            self._end(one, DIED if is_gone else "no worker has it")

    def _end(self, one: Attempts, lost: str) -> None:
        """Note the end of an attempt: an answer, a loss, or a refusal by the worker's check, which is none."""
        worker, end = one.on, self.engine.end(one.future, lost)
        why = terminal_text.line("; ".join(end.reasons))
        one.future, one.since, one.number = None, time.monotonic(), one.number + 1
        if end.did == "refused":
            self._refused[worker.address] = (why, one.since)
            self._report(f"{worker.name} is not used: {why}")
            return
        self._refused.pop(worker.address, None)
        if not end.is_lost:
            one.end = end
            self.say(f"{one.job.title}: ended on {worker.name}")
            return
        one.lost.append((worker.name, why))
        self.say(f"{one.job.title}: lost on {worker.name}: {why}")
        if len(one.lost) == ATTEMPTS:
            every = "; ".join(f"{name}: {reason}" for name, reason in one.lost)
            if {reason for _, reason in one.lost} == {DIED}:
                every = f"{ATTEMPTS} workers died while they ran it ({', '.join(name for name, _ in one.lost)})"
            one.end = no_result(every, end.exit_code)

    def _start(self, one: Attempts, workers: tuple[Worker, ...], busy: set[str]) -> None:
        """Start a job on a free worker of its class, or join it where it is; otherwise report the wait, or give up."""
        job, now, losers = one.job, time.monotonic(), [name for name, _ in one.lost]
        of_class = [worker for worker in workers if job.worker_class in worker.classes]
        sound = [worker for worker in of_class if worker.address not in self._refused]
        usable = [one for one in of_class if one in sound or now > self._refused[one.address][1] + REPEAT_S]
        others = [worker for worker in usable if worker.name not in losers[-1:]] or usable
        free = [worker for worker in others if not worker.tasks and worker.address not in busy]
        at = [worker for worker in workers if job.name in worker.tasks]
        one.served = now if sound else one.served
        if at or free:
            to = min(at or free, key=lambda worker: (worker.address in self._refused, losers.count(worker.name)))
            one.number, one.future = self.engine.start(job, to, one.number)
            one.on, one.since = to, now
            busy.add(to.address)
            attempt = f", attempt {len(losers) + 1} of {ATTEMPTS}" if losers else ""
            self.say(f"{job.title}: {'joined' if at else 'started'} on {to.name}{attempt}")
        elif now > one.served + self.timeout_s:
            one.end = no_result(f"{self._missing(job, workers, of_class)} in {self.timeout_s:.0f} s")
        elif now > one.since + SILENT_S:
            wait = f"no free worker of host class {job.spec.host_class}, of {len(of_class)}"
            self._report(f"{wait if sound else self._missing(job, workers, of_class)}; waiting")

    def _missing(self, job: Job, workers: tuple[Worker, ...], of_class: list[Worker]) -> str:
        if of_class:
            text = "; ".join(f"{one.name}: {self._refused.get(one.address, ('busy', 0))[0]}" for one in of_class)
            return f"no usable worker of host class {job.spec.host_class}: {text}"
        there = Counter(worker.classes[-1] for worker in workers if worker.classes)
        counted = ", ".join(f"{count} of {name}" for name, count in sorted(there.items())) or "none"
        return f"no worker of host class {job.spec.host_class}; there are: {counted}"

    def _report(self, text: str) -> None:
        if (now := time.monotonic()) > self._reported.get(text, -REPORT_S) + REPORT_S:
            self._reported[text] = now
            self.say(text)


def with_patience(
    lookup: Callable[[], _Answer],
    say: Callable[[str], None],
    patience_s: float = PATIENCE_S,
    faults: type[InfrastructureError] = InfrastructureError,
) -> _Answer:
    """Repeat a lookup while the registry or the scheduler does not answer, which are its ``faults``.

    Raises the last of them after ``patience_s`` seconds, and any other error at once.
    """
    until, said = time.monotonic() + patience_s, -_TOLD_S
    while True:
        try:
            return lookup()
        except faults as error:
            if (now := time.monotonic()) + PAUSE_S > until:
                raise
            if now > said + _TOLD_S:
                said = now
                say(f"{error.message}; asking again for {until - now:.0f} s")
        time.sleep(PAUSE_S)


def run_job(spec: JobSpec, key: str) -> tuple[int, bytes]:
    """Run envbuilder on a worker; return its exit code and its document. Lines of its standard error become events.

    The process ends with the worker, even if the worker is killed, and if the worker loses its scheduler: the job may
    be started elsewhere by then.
    """
    worker, last, rest, out = dask().get_worker(), 0.0, b"", bytearray()

    def pass_on(data: bytes) -> None:
        nonlocal last, rest
        *lines, rest = (rest[-_LONGEST:] + data[-_LONGEST:]).split(b"\n")
        if lines and time.monotonic() > last + _LINE_S:
            last = time.monotonic()
            worker.log_event(_TOPIC, {"key": key, "line": decoding.lossy(lines[-1])[:_LONGEST]})

    def has_left() -> bool:
        return worker.status.name in ("closing", "closed", "failed")

    path = f"{os.environ.get('PATH', os.defpath)}:{Path(sys.executable).parent}"  # this envbuilder, if not on the PATH
    words = ("envbuilder", "fleet", "prove", "-", "--format", "json")
    data = msgspec.json.encode(msgspec.structs.replace(spec, now=time.time() + worker.scheduler_delay))
    try:
        code = subprocesses.follow(
            words, out.extend, pass_on, within=_JOB_S, overdue=has_left, stdin=data, env={**os.environ, "PATH": path}
        )
    except OSError as error:
        raise RuntimeError(f"envbuilder cannot be started: {error.strerror}") from error
    if code is None:
        raise RuntimeError(f"its worker left, or it did not end within {_JOB_S / 3600:.0f} hours")
    return code, bytes(out)


def check_address(address: str, *, insecure: bool) -> None:
    """Raise UsageError for an address without TLS that is not this host's own, unless it is ``insecure`` on purpose."""
    parts = urlsplit(address if "://" in address else f"tcp://{address}")
    host = parts.hostname or ""
    with suppress(ValueError):
        host = "localhost" if ipaddress.ip_address(host).is_loopback else host
    if host != "localhost" and parts.scheme not in ("tls", "wss") and not insecure:
        text = f"{address} has no TLS: who reaches the scheduler can run code on its workers and sign with their keys"
        hint = "tls://scheduler:8786 with Dask's certificates, or --insecure on a network of your own"
        raise UsageError(text, hint=hint)


def dask() -> Any:  # noqa: ANN401 - an extra, without types
    """Import Dask. Raises UsageError if the extra is missing."""
    try:
        return import_module("distributed")
    except ModuleNotFoundError as error:
        raise UsageError("Dask is not installed", hint="pip install 'tf-envbuilder[dask]'") from error


def _check_scheduler(address: str) -> None:
    """Check that an address is a scheduler's: Dask's client waits for a minute, and ends with a traceback."""

    async def kind() -> str:
        async with dask().rpc(address, connection_args=dask().Security().get_connection_args("client")) as remote:
            return str((await remote.identity(n_workers=0)).get("type"))

    try:
        dask().comm.get_address_host_port(address)
    except ValueError as error:
        text = f"{address!r} is not the address of a scheduler: {error}"
        raise UsageError(text, hint="--dask tls://scheduler:8786") from error
    with _reaching(address):
        found = asyncio.run(asyncio.wait_for(kind(), CONNECT_S))
    if found != "Scheduler":
        raise UsageError(f"{address} is a {found} of Dask", hint="give the address that `dask scheduler` prints")


@contextmanager
def _reaching(address: str) -> Iterator[None]:
    """Raise InfrastructureError if the scheduler does not answer."""
    try:
        yield
    except Exception as error:  # ValueError in a handshake of TLS, plain Exception if it is lost just now
        hint = "check its address, that it runs, and the certificates in Dask's configuration; then run this again"
        raise InfrastructureError(f"the scheduler {address} does not answer: {_text(error)}", hint=hint) from error


def _text(error: Exception) -> str:
    return terminal_text.line(str(error) or type(error).__name__)
