"""Run jobs on the workers of a Dask scheduler: each on a free one of its class, a lost one again on another.

Each job is bound to one worker. Dask by itself would start it again on any worker whenever one dies, next to the
attempts that are counted here.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from envbuilder.errors import EnvbuilderError, InfrastructureError, UsageError
from envbuilder.jobs.fleet.job import Job, JobEnd
from envbuilder.jobs.run import in_threads
from envbuilder.support import decoding, subprocesses, terminal_text

ATTEMPTS = 4
"""How often a job is started in all if its workers are lost: a fifth host is unlikely to do better."""

PATIENCE_S, PAUSE_S = 180.0, 2.0
"""How long a registry or a scheduler may be away, and the pause between two questions."""

LOOK_S, SILENT_S, AGAIN_S = 1.0, 10.0, 10.0
"""Seconds between two looks at the workers, until a wait is reported, and until the only worker gets a job again."""

REPEAT_S, _TOLD_S = 60.0, 15.0
"""Seconds until a wait for a worker is reported, and a refused one checked again; until one for a registry or scheduler
is reported again."""

CONNECT_S, _FETCH_S, _LINE_S, _JOB_S = 5.0, 30.0, 5.0, 6 * 3600.0
"""Time limits for an answer of a scheduler and for the result of a job that has ended; time between two lines of a job
that are passed on (a suite writes thirty); time limit of a job: several times the build of the largest image."""

LOCAL = "local"
"""The address that means: one worker in this process, without a network port."""

_TOPIC = "envbuilder"
"""Dask's topic for the lines of jobs."""

_MOST = 4000

DIED = "the worker died"

_CONNECTION_ERRORS = (OSError, TypeError, RuntimeError, ValueError)
"""What Dask raises if a scheduler is lost; ValueError if the connection ends during the handshake of TLS."""

_Answer = TypeVar("_Answer")


class LostError(Exception):
    """Nothing is known about the end of a job."""


@dataclass(frozen=True)
class Worker:
    """A worker: its address, its name, the host classes that it advertises, and the keys of the jobs that it has."""

    address: str
    name: str
    classes: frozenset[str]
    keys: frozenset[str] = frozenset()

    @property
    def exact_class(self) -> str:
        """Its GPU with the complete driver, else the class of hosts without a GPU."""
        gpus = [name for name in self.classes if not name.startswith("host/")]
        return max(gpus or self.classes, key=len, default="no host class")


@dataclass
class DaskEngine:
    """The workers of a scheduler. ``resources`` are the host classes of the local worker, for the address ``local``."""

    address: str
    resources: Mapping[str, int] = field(default_factory=dict)
    _lines: dict[str, Callable[[str], None]] = field(default_factory=dict)
    _cluster: Any = None
    _client: Any = None

    def __enter__(self) -> Self:
        check_installed()
        import dask  # noqa: PLC0415 - an extra

        logging.disable()  # Dask logs with tracebacks what our own lines say
        dask.config.set({"distributed.comm.timeouts.connect": f"{CONNECT_S:g}s"})
        if self.address == LOCAL:
            from distributed import LocalCluster  # noqa: PLC0415 - an extra

            # Without processes Dask opens no port. A job is a process of its own in any case.
            start: Any = LocalCluster
            self._cluster = start(
                n_workers=1,
                threads_per_worker=1,
                processes=False,
                dashboard_address=None,
                resources=dict(self.resources),
            )
        self._connect()
        return self

    def __exit__(self, *failure: object) -> None:
        """Leave the scheduler. It cancels jobs for which no other client waits; nothing is started after that."""
        connections, self._client = (self._client, self._cluster), None
        for connection in connections:
            if connection is not None:
                with suppress(*_CONNECTION_ERRORS):
                    connection.close()

    def _connect(self) -> None:
        """Connect to the scheduler. Raises UsageError for a wrong address, InfrastructureError without an answer."""
        from distributed import Client  # noqa: PLC0415 - an extra

        if self._cluster is None:
            _check_scheduler(self.address)
        if self._client is not None:
            with suppress(*_CONNECTION_ERRORS):
                self._client.close(timeout=1)
        connect: Any = Client
        try:
            self._client = connect(self._cluster or self.address, timeout=CONNECT_S, set_as_default=False)
            self._client.subscribe_topic(_TOPIC, self._line)
        except _CONNECTION_ERRORS as error:
            raise _away(self.address, error) from error

    def _line(self, event: tuple[object, Mapping[str, str]]) -> None:
        if say := self._lines.get(event[1]["key"]):
            say(terminal_text.line(event[1]["line"]))

    def workers(self) -> tuple[Worker, ...]:
        """Return the workers with the jobs that each has. Raises InfrastructureError if the scheduler is away."""
        if self._client is None:
            raise LostError("the run has ended")
        if self._client.status != "running":  # the scheduler was lost; it may have come back
            self._connect()
        try:
            known: Mapping[str, Mapping[str, Any]] = self._client.scheduler_info(n_workers=-1)["workers"]
            processing: Mapping[str, Sequence[str]] = self._client.processing()
        except _CONNECTION_ERRORS as error:
            raise _away(self.address, error) from error
        return tuple(
            Worker(
                address,
                str(one.get("name") or address),
                frozenset(one.get("resources") or ()),
                frozenset(map(str, processing.get(address, ()))),
            )
            for address, one in known.items()
        )

    def run(
        self, key: str, job: Job, worker: Worker, say: Callable[[str], None], is_gone: Callable[[], bool]
    ) -> JobEnd:
        """Run a job on a worker, or join the job with the same key there. Raises LostError."""
        ended, lost = threading.Event(), ""
        self._lines[key] = say
        try:
            future = self._client.submit(
                *(run_program, job.arguments, job.spec, key),
                key=key,
                workers=[worker.address],
                allow_other_workers=False,
                pure=False,
            )
            future.add_done_callback(lambda _: ended.set())
            while not ended.wait(LOOK_S) and not is_gone():
                pass
            if future.status == "finished":
                return JobEnd(*future.result(timeout=_FETCH_S))
            lost = f"Dask reports it as {future.status}" if ended.is_set() else DIED
            if not ended.is_set():
                future.cancel()
        except InfrastructureError:
            raise
        except Exception as error:  # noqa: BLE001 - Dask raises plain Exceptions if a connection is lost just now
            lost = lost or terminal_text.line(str(error) or type(error).__name__)
        finally:
            self._lines.pop(key, None)
        if self._client is None:
            raise InfrastructureError("the run has ended")
        raise LostError(lost)


@dataclass
class Attempts:
    """The attempts of a job: the workers that had it, why each lost it, and the end of the last attempt.

    ``end`` is None if nothing is known about it; ``given_up`` is why there was no further attempt.
    """

    job: Job
    workers: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    end: JobEnd | None = None
    given_up: str = ""

    @property
    def is_lost(self) -> bool:
        return self.end is None or self.end.is_lost

    @property
    def key(self) -> str:
        return f"{self.job.name}-{len(self.reasons)}" if self.reasons else self.job.name

    @property
    def error(self) -> str:
        """Why there is no answer; '' if there is one."""
        if self.given_up or not self.is_lost:
            return self.given_up
        if len(self.reasons) > 1 and set(self.reasons) == {DIED}:
            return f"{len(self.reasons)} workers died while they ran it ({', '.join(self.workers)})"
        return "; ".join(f"{name}: {why}" for name, why in zip(self.workers, self.reasons, strict=True))


@dataclass
class Dispatcher:
    """Runs jobs on the workers of a scheduler, with a thread for each job.

    A lost job is started again, on another worker if there is one, unless ``is_pending`` says that it attached its
    verdict before. ``check`` is the job that a worker has to pass before its first other job: it gets no other if it
    fails, until it is checked again. A job is given up if no usable worker of its class is there for ``timeout_s``, or
    no scheduler answers.
    """

    engine: DaskEngine
    is_pending: Callable[[Job], bool]
    check: Callable[[Worker], Job]
    say: Callable[[str], None] = lambda _: None
    timeout_s: float = 600.0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _workers: tuple[Worker, ...] = ()
    _looked_at: float = 0.0
    _away: str = ""
    _busy: set[str] = field(default_factory=set)
    _checked: dict[str, tuple[str, float]] = field(default_factory=dict)
    _reported: dict[str, float] = field(default_factory=dict)

    def run(self, jobs: Iterable[Job]) -> dict[str, Attempts]:
        """Run every job and return its attempts by its name; jobs with the same name are one job."""
        every = {job.name: Attempts(job) for job in jobs}
        self._away = ""
        list(in_threads(len(every), tuple(every.values()), self._run))
        return every

    def _run(self, one: Attempts) -> None:
        try:
            while self._is_lost_on(self._take(one), one):
                one.end = None
        except InfrastructureError as error:
            one.end, one.given_up = None, error.message

    def _is_lost_on(self, worker: Worker, one: Attempts) -> bool:
        """Run a job on a worker; return True if it is lost and has to be started again."""
        title = one.job.title
        one.workers.append(worker.name)
        try:
            one.end = self._end_on(worker, one.key, one.job, lambda line: self.say(f"{title} on {worker.name}: {line}"))
            lost = one.end.reason if one.end.is_lost else ""
        except LostError as error:
            lost = str(error)
        finally:
            self._busy.discard(worker.address)
        if not lost:
            self.say(f"{title}: ended on {worker.name}")
            return False
        one.reasons.append(lost)
        self.say(f"{title}: lost on {worker.name}: {lost}")
        return len(one.reasons) < ATTEMPTS and self._is_known_pending(one.job)

    def _end_on(self, worker: Worker, key: str, job: Job, say: Callable[[str], None]) -> JobEnd:
        return self.engine.run(
            key, job, worker, say, lambda: worker.address not in {one.address for one in self._look()}
        )

    def _take(self, one: Attempts) -> Worker:
        """Wait for a free worker of a job's class that passed its check, or for the one that has the job already.

        Raises InfrastructureError if there is none in time.
        """
        job, begun = one.job, time.monotonic()
        served = begun
        while True:
            workers, now = self._look(), time.monotonic()
            of_class = [worker for worker in workers if job.worker_class in worker.classes]
            usable = [worker for worker in of_class if not self._refusal(worker)]
            if any(worker.address in self._checked for worker in usable):
                served = now
            joined = [worker for worker in workers if one.key in worker.keys]
            others = [worker for worker in usable if worker.name not in one.workers[-1:]]
            if not others and now > begun + AGAIN_S:
                others = usable
            with self._lock:
                free = joined or [worker for worker in others if not worker.keys and worker.address not in self._busy]
                self._busy |= {worker.address for worker in free[:1]}
            if free and (joined or self._is_fit(free[0])):
                attempt = f", attempt {len(one.workers) + 1} of {ATTEMPTS}" if one.reasons else ""
                self.say(f"{job.title}: {'joined' if joined else 'started'} on {free[0].name}{attempt}")
                return free[0]
            self._busy -= {worker.address for worker in free[:1]}
            if now > served + self.timeout_s:
                raise InfrastructureError(f"{self._missing(job, workers, of_class)} in {self.timeout_s:.0f} s")
            if now > begun + SILENT_S:
                busy = f"no free worker of host class {job.host_class}, of {len(usable)}"
                self._report(busy if usable else self._missing(job, workers, of_class), now)
            time.sleep(LOOK_S)

    def _refusal(self, worker: Worker) -> str:
        """Return why a worker is not used; it is forgotten after a while: somebody may have repaired it."""
        why, since = self._checked.get(worker.address, ("", 0.0))
        if why and time.monotonic() > since + REPEAT_S:
            self._checked.pop(worker.address, None)
            return ""
        return why

    def _is_fit(self, worker: Worker) -> bool:
        """Return True if a worker has passed its check, or passes it now."""
        if worker.address in self._checked:
            return True
        job = self.check(worker)
        try:
            end = self._end_on(worker, job.name, job, lambda _: None)
        except LostError:
            return False
        why = end.reason if end.code else ""
        self._checked[worker.address] = why, time.monotonic()
        if why:
            self.say(f"{worker.name} is not used: {why}")
        return not why

    def _missing(self, job: Job, workers: tuple[Worker, ...], of_class: list[Worker]) -> str:
        if of_class:
            reasons = [(one.name, self._checked.get(one.address, ("not checked yet", 0))[0]) for one in of_class]
            text = "; ".join(f"{name}: {why}" for name, why in reasons)
            return f"no usable worker of host class {job.host_class}: {text}"
        there = Counter(worker.exact_class for worker in workers)
        counted = ", ".join(f"{count} of {name}" for name, count in sorted(there.items())) or "none"
        return f"no worker of host class {job.host_class}; there are: {counted}"

    def _report(self, text: str, now: float) -> None:
        """Report for what jobs wait, each text once in a while."""
        with self._lock:
            if now < self._reported.get(text, -REPEAT_S) + REPEAT_S:
                return
            self._reported[text] = now
        self.say(f"{text}; waiting")

    def _look(self) -> tuple[Worker, ...]:
        """Return the workers as they were a moment ago. Raises InfrastructureError if no scheduler answers in time."""
        with self._lock:
            if not self._away and time.monotonic() > self._looked_at + LOOK_S:
                try:
                    self._workers = with_patience(self.engine.workers, self.say, patience_s=self.timeout_s)
                except InfrastructureError as error:
                    self._away = error.message
                self._looked_at = time.monotonic()
            if self._away:
                raise InfrastructureError(self._away)
            return self._workers

    def _is_known_pending(self, job: Job) -> bool:
        """Return False if the registry does not answer: the job might be done already."""
        try:
            return with_patience(partial(self.is_pending, job), self.say)
        except EnvbuilderError as error:
            self.say(f"{job.title}: cannot find out whether it is pending: {error.message}")
            return False


def with_patience(
    lookup: Callable[[], _Answer], say: Callable[[str], None], *, patience_s: float | None = None
) -> _Answer:
    """Repeat a lookup for ``patience_s`` seconds (`PATIENCE_S`) while the registry or the scheduler does not answer.

    Raises the last InfrastructureError after that, and any other error at once.
    """
    until = time.monotonic() + (PATIENCE_S if patience_s is None else patience_s)
    said = -_TOLD_S
    while True:
        try:
            return lookup()
        except InfrastructureError as error:
            if (now := time.monotonic()) + PAUSE_S > until:
                raise
            if now > said + _TOLD_S:
                said = now
                say(f"{error.message}; asking again for {until - now:.0f} s")
        time.sleep(PAUSE_S)


def run_program(arguments: Sequence[str], spec: bytes, key: str) -> tuple[int, bytes, str]:
    """Run envbuilder on a worker; return its exit code, its document, and the end of its standard error.

    The process ends with the worker, even if the worker is killed. Lines of its standard error become events.
    """
    from distributed import get_worker  # noqa: PLC0415 - an extra

    worker, last, rest = get_worker(), 0.0, b""
    out, errors = bytearray(), bytearray()

    def follow(data: bytes) -> None:
        nonlocal last, rest
        errors.extend(data)
        del errors[:-_MOST]
        *lines, rest = (rest + data[-_MOST:]).split(b"\n")
        if lines and time.monotonic() > last + _LINE_S:
            last = time.monotonic()
            worker.log_event(_TOPIC, {"key": key, "line": decoding.lossy(lines[-1])[:_MOST]})

    path = f"{os.environ.get('PATH', os.defpath)}:{Path(sys.executable).parent}"  # this envbuilder, if not on the PATH
    words, environment = ("envbuilder", *arguments), {**os.environ, "PATH": path}
    try:
        code = subprocesses.follow(words, out.extend, follow, within=_JOB_S, stdin=spec, env=environment)
    except OSError as error:
        return 127, b"", f"error: envbuilder cannot be started: {error.strerror}"
    if code is None:
        return -1, b"", f"error: it did not end within {_JOB_S / 3600:.0f} hours"
    return code, bytes(out), decoding.lossy(bytes(errors))


def worker_command(address: str, resources: Mapping[str, int], name: str) -> tuple[str, ...]:
    """Return the command of a worker that runs one job at a time and advertises its host classes.

    Certificates are Dask's configuration, such as `DASK_DISTRIBUTED__COMM__TLS__…`.
    """
    advertised = " ".join(f"{host_class}={count}" for host_class, count in resources.items())
    options = ("--nthreads", "1", "--nworkers", "1", "--no-dashboard", "--resources", advertised)
    return (sys.executable, "-m", "dask", "worker", address, *options, *(("--name", name) if name else ()))


def check_address(address: str, *, insecure: bool) -> None:
    """Raise UsageError for an address without TLS that is not this host's own, unless it is ``insecure`` on purpose."""
    parts = urlsplit(address if "://" in address else f"tcp://{address}")
    host = parts.hostname or ""
    with suppress(ValueError):
        host = "localhost" if ipaddress.ip_address(host).is_loopback else host
    if address != LOCAL and host != "localhost" and parts.scheme not in ("tls", "wss") and not insecure:
        raise UsageError(
            f"{address} has no TLS: who reaches the scheduler can run code on its workers and sign with their keys",
            hint="tls://scheduler:8786 with Dask's certificates, or --insecure on a network of your own",
        )


def check_installed() -> None:
    """Raise UsageError if the extra is missing."""
    if find_spec("distributed") is None:
        raise UsageError("Dask is not installed", hint="pip install 'tf-envbuilder[dask]'")


def _check_scheduler(address: str) -> None:
    """Ask an address whether it is a scheduler: Dask's client waits for a minute, and ends with a traceback."""
    from distributed.comm.addressing import get_address_host_port  # noqa: PLC0415 - an extra
    from distributed.core import rpc  # noqa: PLC0415 - an extra
    from distributed.security import Security  # noqa: PLC0415 - an extra

    async def identity() -> str:
        ask: Any = rpc
        security: Any = Security()  # type: ignore[no-untyped-call]
        remote = ask(address, connection_args=security.get_connection_args("client"))
        try:
            found = await remote.identity(n_workers=0)
        finally:
            await remote.close_rpc()
        return str(found.get("type"))

    try:
        get_address_host_port(address)
    except ValueError as error:
        raise UsageError(
            f"{address!r} is not the address of a scheduler: {error}",
            hint="--dask tls://scheduler:8786, or --dask local",
        ) from error
    try:
        kind = asyncio.run(asyncio.wait_for(identity(), CONNECT_S))
    except _CONNECTION_ERRORS as error:
        raise _away(address, error) from error
    if kind != "Scheduler":
        raise UsageError(f"{address} is a {kind} of Dask", hint="give the address that `dask scheduler` prints")


def _away(address: str, error: Exception) -> InfrastructureError:
    return InfrastructureError(
        f"the scheduler {address} does not answer: {terminal_text.line(str(error) or type(error).__name__)}",
        hint="check that it runs, and that Dask's configuration names its certificates",
    )
