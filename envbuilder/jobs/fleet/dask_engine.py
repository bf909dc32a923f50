"""The workers of a Dask scheduler: which there are, and a job as a process on one of them.

Each job is bound to one worker. Dask by itself would start it again on any worker whenever one dies, next to the
attempts that `dispatch` counts.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self
from urllib.parse import urlsplit

from envbuilder.errors import InfrastructureError, UsageError
from envbuilder.jobs.fleet.dispatch import Event, Worker
from envbuilder.jobs.fleet.job import Job, JobEnd
from envbuilder.support import decoding, subprocesses, terminal_text

CONNECT_S = 5.0
"""Time limit for an answer of a scheduler."""

LOCAL = "local"
"""The address that means: one worker in this process, without a network port."""

_TOPIC = "envbuilder"
"""Dask's topic for the lines of jobs."""

_LINE_S = 5.0
"""Time between two lines of a job that are passed on: a suite writes thirty."""

_JOB_S = 6 * 3600.0
"""Time limit of a job: several times the build of the largest image on a slow host."""

_FETCH_S = 30.0
"""Time limit for the result of a job that has ended."""

_MOST = 4000


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


@dataclass
class DaskEngine:
    """Starts each job with its name as Dask's key: a scheduler that has the key already does not start it again.

    ``resources`` are the host classes of the local worker, for the address ``local``.
    """

    address: str
    resources: Mapping[str, int] = field(default_factory=dict)
    events: SimpleQueue[Event] = field(default_factory=SimpleQueue)
    _futures: dict[str, Any] = field(default_factory=dict)
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
        """Leave the scheduler. It cancels jobs for which no other client waits."""
        for connection in (self._client, self._cluster):
            if connection is not None:
                with suppress(OSError, TimeoutError, RuntimeError):
                    connection.close()

    def _connect(self) -> None:
        """Connect to the scheduler. Raises UsageError for a wrong address, InfrastructureError without an answer."""
        from distributed import Client  # noqa: PLC0415 - an extra

        if self._cluster is None:
            _check_scheduler(self.address)
        if self._client is not None:
            with suppress(OSError, TimeoutError, RuntimeError):
                self._client.close(timeout=1)
        connect: Any = Client
        try:
            self._client = connect(self._cluster or self.address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, TimeoutError) as error:
            raise _away(self.address, error) from error
        self._client.subscribe_topic(_TOPIC, self._line)

    def _line(self, event: tuple[object, Mapping[str, str]]) -> None:
        self.events.put(Event(event[1]["key"], line=terminal_text.line(event[1]["line"])))

    def workers(self) -> tuple[Worker, ...]:
        """Return the workers with the jobs that each has. Raises InfrastructureError if the scheduler is away."""
        if self._client.status != "running":  # the scheduler was lost; it may have come back
            self._connect()
        try:
            known: Mapping[str, Mapping[str, Any]] = self._client.scheduler_info(n_workers=-1)["workers"]
            processing: Mapping[str, Sequence[str]] = self._client.processing()
        except (OSError, TimeoutError, TypeError, RuntimeError) as error:
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

    def start(self, key: str, job: Job, worker: Worker) -> None:
        """Start a job on a worker, or join the same job there; its end becomes an event."""
        try:
            submitted = self._client.submit(
                run_program,
                job.arguments,
                job.spec,
                key,
                key=key,
                workers=[worker.address],
                allow_other_workers=False,
                pure=False,
            )
        except Exception as error:  # noqa: BLE001 - Dask raises plain Exceptions if the connection is lost just now
            self.events.put(Event(key, lost=terminal_text.line(str(error))))
            return
        self._futures[key] = submitted  # Dask forgets a job without a reference
        submitted.add_done_callback(lambda done: self._ended(key, done))

    def forget(self, key: str) -> None:
        """Give up a job whose worker is gone: its end does not become an event."""
        future = self._futures.pop(key, None)
        if future is not None:
            with suppress(OSError, TimeoutError, RuntimeError):
                future.cancel()

    def _ended(self, key: str, done: Any) -> None:  # noqa: ANN401 - Dask has no types
        if key not in self._futures:
            return
        if done.status != "finished":  # its worker died, or the scheduler is gone
            self.events.put(Event(key, lost=f"Dask reports it as {done.status}"))
            return
        try:
            event = Event(key, end=JobEnd(*done.result(timeout=_FETCH_S)))
        except Exception as error:  # noqa: BLE001 - Dask raises plain Exceptions if the worker has gone just now
            event = Event(key, lost=terminal_text.line(str(error) or type(error).__name__))
        self.events.put(event)


def check_installed() -> None:
    """Raise UsageError if the extra is missing."""
    if find_spec("distributed") is None:
        raise UsageError("Dask is not installed", hint="pip install 'tf-envbuilder[dask]'")


def advertised_classes(address: str) -> tuple[Mapping[str, float], ...]:
    """Return the host classes that each worker of a scheduler advertises."""
    with DaskEngine(address) as engine:
        return tuple(dict.fromkeys(worker.classes, 1.0) for worker in engine.workers())


def _check_scheduler(address: str) -> None:
    """Ask an address whether it is a scheduler: Dask's client waits for a minute, and ends with a traceback."""
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
        kind = asyncio.run(asyncio.wait_for(identity(), CONNECT_S))
    except ValueError as error:
        raise UsageError(
            f"{address!r} is not the address of a scheduler: {error}",
            hint="--dask tls://scheduler:8786, or --dask local",
        ) from error
    except (OSError, TimeoutError, TypeError, RuntimeError) as error:
        raise _away(address, error) from error
    if kind != "Scheduler":
        raise UsageError(f"{address} is a {kind} of Dask", hint="give the address that `dask scheduler` prints")


def _away(address: str, error: Exception) -> InfrastructureError:
    return InfrastructureError(
        f"the scheduler {address} does not answer: {terminal_text.line(str(error) or type(error).__name__)}",
        hint="check that it runs, and that Dask's configuration names its certificates",
    )
