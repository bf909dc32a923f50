"""The executor of a Dask cluster: a task goes to a worker that advertises its kind of host, and is a process there."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Self

from envbuilder.compat.fleet import asked_of
from envbuilder.errors import InfrastructureError, UsageError
from envbuilder.jobs.fleet_task import Ended, LostError, Task
from envbuilder.support import decoding, subprocesses, terminal_text

CONNECT_S = 30.0
"""How long a scheduler may take to answer, when a run begins and whenever it was lost."""

_MOST_S = 6 * 3600.0
"""How long a task may take: a build of the largest image on a slow host, several times over."""

_SAID = 500
_ADDRESS = "tls://scheduler:8786"


def work(command: Sequence[str], order: bytes) -> tuple[int, str, str]:
    """Run a program on a worker: its exit code, the last thing that it said, and the worker's address.

    It is a process of its own that ends with the worker, however that ends: nothing goes on that nobody waits for.
    """
    from distributed import get_worker  # noqa: PLC0415 - on a worker alone

    ended = subprocesses.run(command, within=_MOST_S, stdin=order)
    return ended.code, decoding.lossy(ended.errors[-_SAID:]), str(get_worker().address)


def worker_command(address: str, resources: Mapping[str, int], name: str) -> tuple[str, ...]:
    """Return what starts a worker that does one task at a time and says which kinds of host it is.

    Certificates are Dask's own business: its configuration, or `DASK_DISTRIBUTED__COMM__TLS__…`.
    """
    said = " ".join(f"{kind}={count}" for kind, count in resources.items())
    named = ("--name", name) if name else ()
    options = ("--nthreads", "1", "--nworkers", "1", "--no-dashboard", "--resources", said)
    return (sys.executable, "-m", "dask", "worker", address, *options, *named)


def kinds_advertised(address: str) -> tuple[Mapping[str, float], ...]:
    """Ask a scheduler which kinds of host its workers say they are, each worker's resources."""
    client = _client(address)
    try:
        workers: Mapping[str, Mapping[str, Any]] = client.scheduler_info(n_workers=-1)["workers"]
    finally:
        client.close()
    return tuple(worker.get("resources") or {} for worker in workers.values())


@dataclass
class DaskExecutor:
    """Submits each task under its own name as the key: a scheduler that has it already does not begin it again.

    ``program`` is what runs on a worker; without one it is the envbuilder of the worker's own Python.
    """

    address: str
    program: Sequence[str] = ("envbuilder",)
    _begun: Counter[str] = field(default_factory=Counter)
    _held: list[Any] = field(default_factory=list)
    _client: Any = None

    def __enter__(self) -> Self:
        self._client = _client(self.address)
        return self

    def __exit__(self, *failure: object) -> None:
        """Leave the scheduler; what nobody else waits for is cancelled there."""
        if self._client is not None:
            self._client.close()

    def submit(self, task: Task) -> Future[Ended]:
        """Submit a task to whichever worker of its kind is free first."""
        client = self._connected()
        again = self._begun[task.name]
        self._begun[task.name] += 1
        future: Future[Ended] = Future()
        submitted = client.submit(
            work,
            (*self.program, *task.arguments),
            task.order,
            key=f"{task.name}-{again}" if again else task.name,
            resources={asked_of(task.gpu, task.driver, task.arch): 1},
            pure=False,
        )
        self._held.append(submitted)  # Dask forgets what nobody holds
        submitted.add_done_callback(lambda done: _answer(future, done))
        return future

    def _connected(self) -> Any:  # noqa: ANN401 - Dask has no types
        """Return the scheduler's client; a new one where the scheduler was lost and has come back."""
        if self._client is None or self._client.status != "running":
            self._client = _client(self.address)
        return self._client


def _answer(future: Future[Ended], done: Any) -> None:  # noqa: ANN401 - Dask's future
    if future.done():
        return
    if done.status == "finished":
        code, said, where = done.result()
        future.set_result(Ended(code, terminal_text.line(said.strip()), where))
    else:  # its workers were killed under it, or the scheduler went away
        future.set_exception(LostError(f"Dask says that it was {done.status}"))


def check_installed() -> None:
    """Raise UsageError where the extra is missing."""
    if find_spec("distributed") is None:
        raise UsageError("Dask is not installed", hint="pip install 'envbuilder[dask]'")


def _client(address: str) -> Any:  # noqa: ANN401 - Dask has no types
    """Reach a scheduler. Raises UsageError where the extra is missing, InfrastructureError where nobody answers."""
    check_installed()
    from distributed import Client  # noqa: PLC0415 - an extra

    try:
        connected: Any = Client
        return connected(address, timeout=CONNECT_S, set_as_default=False)
    except ValueError as error:
        raise UsageError(f"{address!r} is no address of a scheduler: {error}", hint=f"as in {_ADDRESS}") from error
    except (OSError, TimeoutError, TypeError, RuntimeError) as error:
        raise InfrastructureError(
            f"the scheduler {address} does not answer: {terminal_text.line(str(error))}",
            hint="is it up, and does Dask's configuration name its certificates?",
        ) from error
