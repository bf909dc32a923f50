"""The executor of a cluster with a queue of its own: jobs are put into it, and looked at until each is over."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Self

from envbuilder.errors import InfrastructureError
from envbuilder.exits import ExitCode
from envbuilder.jobs.fleet_task import Ended, LostError, Task

PATIENCE_S = 900.0
"""How long a cluster's controller may be away before nobody waits for its jobs any more; they go on, and are taken up
again by the next run."""


@dataclass(kw_only=True)
class QueueExecutor(ABC):
    """What Slurm and Kubernetes share: one look at the queue for all jobs, and patience while nobody answers.

    ``every_s`` is how often it is looked, ``patience_s`` how long nobody may answer, both in seconds.
    """

    every_s: float = 2.0
    patience_s: float = PATIENCE_S
    _waiting: dict[str, tuple[Task, Future[Ended]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @abstractmethod
    def ready(self) -> None:
        """Ask the cluster for something small. Raises InfrastructureError where it does not answer."""

    @abstractmethod
    def begin(self, task: Task) -> str:
        """Put a task into the queue, or join the one of its name that is there; returns the job's own name."""

    @abstractmethod
    def over(self, jobs: Mapping[str, Task]) -> Mapping[str, Ended | LostError]:
        """Say of these jobs, by their names, which are over, and how. Raises InfrastructureError as `ready` does."""

    def __enter__(self) -> Self:
        self.ready()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        """Look no more; jobs that are in the queue stay there, and the same command takes them up again."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def submit(self, task: Task) -> Future[Ended]:
        """Begin a task. One that the cluster refuses has ended by that; the others go on."""
        future: Future[Ended] = Future()
        try:
            job = self._begun(task)
        except InfrastructureError as error:
            future.set_result(Ended(_REFUSED, error.message))
            return future
        with self._lock:
            self._waiting[job] = (task, future)
        return future

    def _begun(self, task: Task) -> str:
        """Begin a task, however often a controller that is away has to be asked.

        Raises InfrastructureError where it answers and refuses, and where it stays away.
        """
        until = time.monotonic() + self.patience_s
        answers = False
        while True:
            try:
                return self.begin(task)
            except InfrastructureError:
                if answers or time.monotonic() > until:  # it had just answered something else: this it refuses
                    raise
            answers = self._answers()
            if not answers and self._stopped.wait(self.every_s):
                raise InfrastructureError(f"{task.name} was not begun: this run is over")

    def _answers(self) -> bool:
        try:
            self.ready()
        except InfrastructureError:
            return False
        return True

    def _follow(self) -> None:
        heard = time.monotonic()
        while not self._stopped.wait(self.every_s):
            with self._lock:
                waiting = {job: task for job, (task, _) in self._waiting.items()}
            ended: Mapping[str, Ended | LostError] = {}
            try:
                ended = self.over(waiting) if waiting else {}
                heard = time.monotonic()
            except InfrastructureError as error:  # the controller may be restarting: its jobs go on meanwhile
                if time.monotonic() - heard > self.patience_s:
                    ended = dict.fromkeys(waiting, LostError(error.message, hint=error.hint))
            for job, end in ended.items():
                self._answer(job, end)

    def _answer(self, job: str, end: Ended | LostError) -> None:
        with self._lock:
            _, future = self._waiting.pop(job)
        if isinstance(end, LostError):
            future.set_exception(end)
        else:
            future.set_result(end)


_REFUSED = ExitCode.USAGE
"""What a cluster will not take as it was asked it will not take the next time either."""
