"""Run jobs on the workers of a Dask scheduler: each on a free one of its class, a lost one again on another.

Dask by itself would queue jobs behind each other on a worker, count its death against all of them, and start them again
next to the attempts that are counted here. Several runs may ask for the same job. Its key is its name with the number
of the attempt, on which they agree by the scheduler's metadata. It goes on without its run, and the next run joins it.
"""

import logging
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.compat.fleet import advertised
from envbuilder.engine.docker import connect
from envbuilder.errors import InfrastructureError, UsageError
from envbuilder.host import describe
from envbuilder.image.bases import NEEDED, ask_for_room
from envbuilder.jobs.fleet.job import Job, ProofDocument, no_result, trusted_signer, with_patience
from envbuilder.registry.reference import is_loopback
from envbuilder.support import decoding, subprocesses, terminal_text
from envbuilder.support.console import Console
from envbuilder.support.threads import within

ATTEMPTS = 4  # of a job in all, if its workers are lost: a fifth host is unlikely to do better
LOOK_S, SILENT_S, REPEAT_S = 1.0, 10.0, 20.0
"""Seconds between two looks at the workers, until a wait is reported, and until a worker that refused gets a job."""

CONNECT_S, _FETCH_S, _JOB_S = 5.0, 30.0, 6 * 3600.0
"""Limits for an answer of a scheduler, for the result of a job, and for a job: several times the largest build."""


@dataclass(frozen=True)
class Worker:
    """A worker with its classes, the exact one last, and its tasks: the number of the attempt by the job's name."""

    address: str
    name: str
    classes: tuple[str, ...]
    tasks: Mapping[str, str] = field(default_factory=dict)


@dataclass
class DaskEngine:
    """A client of a scheduler. Raises UsageError for a wrong address, InfrastructureError without an answer."""

    address: str
    say: Callable[[str], None]
    _client: Any = None

    def __post_init__(self) -> None:
        logging.disable()  # Dask logs with tracebacks what our own lines say
        try:
            dask().comm.get_address_host_port(self.address)
        except ValueError as error:
            text = f"{self.address!r} is not the address of a scheduler: {error}"
            raise UsageError(text, hint="--dask tls://scheduler:8786") from error
        import_module("dask.config").set({"distributed.comm.timeouts.connect": f"{CONNECT_S:g}s"})
        self._connect()

    def close(self) -> None:
        with suppress(Exception):
            self._client.close(timeout=1)

    def _connect(self) -> None:
        self.close()
        client = partial(dask().Client, self.address, timeout=CONNECT_S, set_as_default=False)  # it waits for a minute
        with self._reaching(ValueError):  # of a handshake of TLS
            self._client = within(CONNECT_S, client, lambda: TimeoutError(f"it took more than {CONNECT_S:g} s"))

    @contextmanager
    def _reaching(self, *errors: type[Exception]) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            is_lost = self._client is not None and self._client.status != "running"
            if not (is_lost or isinstance(error, (OSError, *errors))):
                raise
            hint = "check its address, that it runs, and the certificates in Dask's configuration; then run this again"
            text = f"the scheduler {self.address} does not answer: {type(error).__name__} {error}"
            raise InfrastructureError(text, hint=hint) from error

    def workers(self) -> tuple[Worker, ...]:
        if self._client.status != "running":  # the scheduler was lost; it may have come back
            self._connect()
        with self._reaching():
            known: Mapping[str, Mapping[str, Any]] = self._client.scheduler_info(n_workers=-1)["workers"]
            keys: Mapping[str, Sequence[str]] = self._client.processing()
        found = []
        for address, one in known.items():
            tasks = {name: number for name, _, number in (str(key).rpartition("-") for key in keys.get(address, ()))}
            found.append(Worker(address, str(one.get("name") or address), tuple(one.get("resources") or ()), tasks))
        return tuple(found)

    def start(self, job: Job, worker: Worker, least: int) -> tuple[int, Any]:
        """Start a job on a worker, or join it there; return the attempt's number (``least`` or more) and future."""
        with self._reaching():
            number = int(worker.tasks[job.name]) if job.name in worker.tasks else self._agreed(job.name, least)
            self._client.subscribe_topic(job.name, lambda event: self.say(terminal_text.line(event[1])))
            where = {"key": f"{job.name}-{number}", "workers": [worker.address], "pure": False}
            future = self._client.submit(run_job, job, **where)
            dask().fire_and_forget(future)  # otherwise Dask forgets what runs if this run is killed
            return number, future

    def _agreed(self, name: str, least: int) -> int:
        """Return the number of the next attempt. One whose worker died without a run that noticed is cancelled."""
        number = max(least, int(self._client.get_metadata(["envbuilder", name], 0)))
        states = partial(self._client.sync, self._client.scheduler.get_task_status)
        while states(keys=[key := f"{name}-{number}"])[key] == "no-worker":
            dask().Future(key, self._client).cancel(force=True)
            number += 1
        self._client.set_metadata(["envbuilder", name], number)
        return number

    def end(self, future: Any, lost: str) -> ProofDocument:  # noqa: ANN401 - a future of Dask
        """Return the end of a job, or cancel a job that has none; ``lost`` is the reason, if it is known."""
        try:
            if future.status in ("finished", "error"):
                return end_of(*future.result(timeout=_FETCH_S))
            future.cancel(force=True)
        except Exception as error:  # noqa: BLE001 - Dask's own, or that of `run_job`
            lost = lost or f"{type(error).__name__}: {error}"
        return no_result(lost)


@dataclass
class Attempts:
    """The attempts of a job: the workers that lost it and why, its end, and the one under way: ``number``, on ``on``.

    ``since`` is when it began to wait, or last ran; ``served`` when its class last had a usable worker.
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
    """Runs jobs. A worker whose check fails refuses one, which is not counted, and gets none for `REPEAT_S`.

    A job is given up if no usable worker of its class is there for ``timeout_s``, or no scheduler answers.
    """

    engine: DaskEngine
    say: Callable[[str], None]
    timeout_s: float = 600.0
    _refused: dict[str, tuple[str, float]] = field(default_factory=dict)
    _reported: set[str] = field(default_factory=set)

    def run(self, jobs: Mapping[str, Job]) -> dict[str, ProofDocument]:
        every = {name: Attempts(job) for name, job in jobs.items()}
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
        status, now = one.future.status, time.monotonic()
        died = "" if one.on.address in {worker.address for worker in workers} else "the worker died"
        here = next((worker for worker in workers if worker.tasks.get(one.job.name) == f"{one.number}"), None)
        if status in ("finished", "error"):
            self._end(one, died)
        elif here is not None:
            one.on, one.since = here, now
            if status != "pending":  # this run was disconnected meanwhile: it joins the job again
                one.future = None
        elif died or status != "pending" or now > one.since + SILENT_S:
            self._end(one, died or "no worker has it")

    def _end(self, one: Attempts, lost: str) -> None:
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
            one.end = no_result("; ".join(f"{name}: {reason}" for name, reason in one.lost), end.exit_code)

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
        elif not sound and now > one.since + SILENT_S:
            self._report(f"{self._missing(job, workers, of_class)}; waiting")

    def _missing(self, job: Job, workers: tuple[Worker, ...], of_class: list[Worker]) -> str:
        if of_class:
            text = "; ".join(f"{one.name}: {self._refused.get(one.address, ('busy', 0))[0]}" for one in of_class)
            return f"no usable worker of host class {job.host_class}: {text}"
        there = Counter(worker.classes[-1] for worker in workers if worker.classes)
        counted = ", ".join(f"{count} of {name}" for name, count in sorted(there.items())) or "none"
        return f"no worker of host class {job.host_class}; there are: {counted}"

    def _report(self, text: str) -> None:
        if text not in self._reported:
            self._reported.add(text)
            self.say(text)


def run_job(job: Job) -> tuple[int, bytes]:
    """Run envbuilder on a worker, until that leaves its scheduler; return its exit code and document."""
    worker, rest, out = dask().get_worker(), b"", bytearray()

    def pass_on(data: bytes) -> None:
        nonlocal rest
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            worker.log_event(job.name, f"{job.title} on {worker.name}: {decoding.lossy(line)}")

    path = f"{os.environ.get('PATH', os.defpath)}:{Path(sys.executable).parent}"  # this envbuilder, if not on the PATH
    words, env = ("envbuilder", "fleet", "prove", "-", "--format", "json"), {**os.environ, "PATH": path}
    data = msgspec.structs.replace(job, now=time.time() + worker.scheduler_delay).data
    left = lambda: worker.status.name in ("closing", "closed", "failed")  # noqa: E731
    code = subprocesses.follow(words, out.extend, pass_on, within=_JOB_S, overdue=left, stdin=data, env=env)
    if code is None:
        raise RuntimeError(f"its worker left, or it did not end within {_JOB_S / 3600:.0f} hours")
    return code, bytes(out)


def end_of(code: int, out: bytes) -> ProofDocument:
    try:
        return decoding.from_json(out, ProofDocument)
    except decoding.DamagedError:
        return no_result(f"ended with exit code {code}", code)


def worker_command(address: str, name: str, catalog: Catalog, *, insecure: bool) -> tuple[str, ...]:
    """Check this host; return the command of a worker that runs one job at a time and advertises the host's classes."""
    check_address(address, insecure=insecure)
    dask()
    trusted_signer()
    ask_for_room("a validation", NEEDED["cpu"], connect())
    host = describe()
    resources = advertised(host.driver, (gpu.name for gpu in host.gpus), platform.machine(), catalog)
    Console().say(f"this host is {', '.join(resources)}")
    one_each = " ".join(f"{host_class}={count}" for host_class, count in resources.items())
    options = ("--nthreads", "1", "--nworkers", "1", "--no-dashboard", "--resources", one_each)
    return (sys.executable, "-m", "dask", "worker", address, *options, *(("--name", name) if name else ()))


def check_address(address: str, *, insecure: bool) -> None:
    """Raise UsageError for an address without TLS that is not this host's own, unless it is ``insecure`` on purpose."""
    url = address if "://" in address else f"tcp://{address}"
    if not (insecure or is_loopback(url) or url.startswith(("tls://", "wss://"))):
        text = f"{address} has no TLS: who reaches the scheduler can run code on its workers and sign with their keys"
        hint = "tls://scheduler:8786 with Dask's certificates, or --insecure on a network of your own"
        raise UsageError(text, hint=hint)


def dask() -> Any:  # noqa: ANN401 - an extra, without types
    """Import Dask. Raises UsageError if the extra is missing."""
    try:
        return import_module("distributed")
    except ModuleNotFoundError as error:
        raise UsageError("Dask is not installed", hint="pip install 'tf-envbuilder[dask]'") from error
