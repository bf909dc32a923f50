"""Run jobs on the workers of a Dask scheduler; a job is a process on a worker of its host class."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from envbuilder.compat.fleet import asked_of
from envbuilder.errors import InfrastructureError, UsageError
from envbuilder.jobs.fleet.job import Job, JobEnd, LostJobError
from envbuilder.support import decoding, subprocesses, terminal_text

CONNECT_S = 30.0
"""Time limit for a scheduler's answer, at the start and after each lost connection."""

LOCAL = "local"
"""The address that means: one worker in this process, without a network port."""

_JOB_S = 6 * 3600.0
"""Time limit of a job: several times the build of the largest image on a slow host."""

_OUTPUT = 500


def run_program(arguments: Sequence[str], spec: bytes) -> tuple[int, str]:
    """Run envbuilder on a worker; return its exit code and its last output.

    The process ends with the worker, even if the worker is killed.
    """
    path = f"{os.environ.get('PATH', os.defpath)}:{Path(sys.executable).parent}"  # this envbuilder, if not on the PATH
    ended = subprocesses.run(("envbuilder", *arguments), within=_JOB_S, stdin=spec, env={**os.environ, "PATH": path})
    return ended.code, decoding.lossy(ended.errors[-_OUTPUT:])


def worker_command(address: str, resources: Mapping[str, int], name: str) -> tuple[str, ...]:
    """Return the command of a worker that runs one job at a time and advertises its host classes.

    Certificates are Dask's configuration, such as `DASK_DISTRIBUTED__COMM__TLS__…`.
    """
    advertised = " ".join(f"{host_class}={count}" for host_class, count in resources.items())
    options = ("--nthreads", "1", "--nworkers", "1", "--no-dashboard", "--resources", advertised)
    return (sys.executable, "-m", "dask", "worker", address, *options, *(("--name", name) if name else ()))


def advertised_classes(address: str) -> tuple[Mapping[str, float], ...]:
    """Return the host classes that each worker of a scheduler advertises."""
    with closing(_connected(address)) as client:
        workers: Mapping[str, Mapping[str, Any]] = client.scheduler_info(n_workers=-1)["workers"]
    return tuple(worker.get("resources") or {} for worker in workers.values())


@dataclass
class DaskEngine:
    """Submits each job with its name as Dask's key: a scheduler that has the key already does not start it again.

    ``resources`` are the host classes of the local worker, for the address ``local``.
    """

    address: str
    resources: Mapping[str, int] = field(default_factory=dict)
    _started: Counter[str] = field(default_factory=Counter)
    _futures: list[Any] = field(default_factory=list)
    _cluster: Any = None
    _client: Any = None

    def __enter__(self) -> Self:
        if self.address == LOCAL:
            check_installed()
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
        self._client = _connected(self._cluster or self.address)
        return self

    def __exit__(self, *failure: object) -> None:
        """Leave the scheduler. It cancels jobs for which no other client waits."""
        for connection in (self._client, self._cluster):
            if connection is not None:
                connection.close()

    def submit(self, job: Job) -> Future[JobEnd]:
        if self._client.status != "running":  # the scheduler was lost; it may have come back
            self._client = _connected(self.address)
        attempt = self._started[job.name]
        self._started[job.name] += 1
        submitted = self._client.submit(
            run_program,
            job.arguments,
            job.spec,
            key=f"{job.name}-{attempt}" if attempt else job.name,
            resources={asked_of(job.gpu, job.driver, job.arch): 1},
            pure=False,
        )
        self._futures.append(submitted)  # Dask forgets a job without a reference
        future: Future[JobEnd] = Future()
        submitted.add_done_callback(lambda done: _finish(future, done))
        return future


def _finish(future: Future[JobEnd], done: Any) -> None:  # noqa: ANN401 - Dask has no types
    if future.done():
        return
    if done.status == "finished":
        code, output = done.result()
        future.set_result(JobEnd(code, terminal_text.line(output.strip())))
    else:  # its workers were killed, or the scheduler is gone
        future.set_exception(LostJobError(f"Dask reports the job as {done.status}"))


def check_installed() -> None:
    """Raise UsageError if the extra is missing."""
    if find_spec("distributed") is None:
        raise UsageError("Dask is not installed", hint="pip install 'tf-envbuilder[dask]'")


def _connected(scheduler: Any) -> Any:  # noqa: ANN401 - Dask has no types
    """Connect to a scheduler. Raises UsageError for a wrong address, InfrastructureError if there is no answer."""
    check_installed()
    from distributed import Client  # noqa: PLC0415 - an extra

    try:
        connect: Any = Client
        return connect(scheduler, timeout=CONNECT_S, set_as_default=False)
    except ValueError as error:
        raise UsageError(
            f"{scheduler!r} is not the address of a scheduler: {error}",
            hint="--dask tls://scheduler:8786, or --dask local",
        ) from error
    except (OSError, TimeoutError, TypeError, RuntimeError) as error:
        raise InfrastructureError(
            f"the scheduler {scheduler} does not answer: {terminal_text.line(str(error))}",
            hint="check that it runs, and that Dask's configuration names its certificates",
        ) from error
