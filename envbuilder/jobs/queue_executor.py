"""The executor of a cluster with a queue of its own: jobs are put into it, and looked at until each is over."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Self

from envbuilder.errors import EnvbuilderError, ExitCode, InfrastructureError
from envbuilder.jobs.fleet_task import Ended, LostError, Task
from envbuilder.support import subprocesses

PATIENCE_S = 900.0
"""How long a cluster's controller may be away before nobody waits for its jobs any more; they go on, and are taken up
again by the next run."""

End = Ended | LostError | InfrastructureError
"""How a job ended, that it was lost, or what kept the cluster from saying it this time."""


def each_told(jobs: Iterable[str], ask: Callable[[str], Ended | LostError | None]) -> Mapping[str, End]:
    """Ask about each job, by its name, how it ended: what is refused about one drops no answer about the others."""
    told: dict[str, End] = {}
    for job in jobs:
        try:
            end: End | None = ask(job)
        except InfrastructureError as error:
            end = error
        if end is not None:
            told[job] = end
    return told


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
    _away_since: float | None = None
    _unsaid_since: dict[str, float] = field(default_factory=dict)
    _broken: Exception | None = None

    @abstractmethod
    def ready(self) -> None:
        """Ask the cluster for something small. Raises InfrastructureError where it does not answer."""

    @abstractmethod
    def begin(self, task: Task) -> str:
        """Put a task into the queue, or join the one of its name that is there; returns the job's own name.

        Raises InfrastructureError where the cluster does not answer, or refuses; UsageError for what no job can be.
        """

    @abstractmethod
    def over(self, jobs: Mapping[str, Task]) -> Mapping[str, End]:
        """Say of these jobs, by their names, which are over, and how; an error where that alone was not told.

        Raises InfrastructureError as `ready` does.
        """

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
        """Begin a task. One that the cluster refuses has ended by that, one that nobody took is lost; others go on."""
        future: Future[Ended] = Future()
        try:
            job = self._begun(task)
        except LostError as error:
            future.set_exception(error)
        except EnvbuilderError as error:
            future.set_result(Ended(_REFUSED, error.message))
        else:
            self._wait_for(job, task, future)
        return future

    def _begun(self, task: Task) -> str:
        """Begin a task, however often a controller that is away has to be asked.

        Raises InfrastructureError where it answers and refuses, and LostError where it stays away or is too busy.
        """
        answers = False
        while True:
            try:
                job = self.begin(task)
            except LostError:
                raise
            except InfrastructureError as error:
                if answers and isinstance(error, subprocesses.ProgramError):  # it answers what is small, and this not
                    raise LostError(error.message, hint=error.hint) from error
                if answers:  # it had just answered something else: this it refuses
                    raise
                answers = self._answers()
                if not answers and self._is_given_up():
                    raise LostError(error.message, hint=error.hint) from error
            else:
                self._away_since = None
                return job
            if not answers and self._stopped.wait(self.every_s):
                raise LostError(f"{task.name} was not begun: this run is over")

    def _answers(self) -> bool:
        try:
            self.ready()
        except InfrastructureError:
            return False
        self._away_since = None
        return True

    def _is_given_up(self) -> bool:
        """Tell whether a controller that has just not answered was away for too long, whoever asked it meanwhile."""
        if self._away_since is None:
            self._away_since = time.monotonic()
        return time.monotonic() - self._away_since > self.patience_s

    def _wait_for(self, job: str, task: Task, future: Future[Ended]) -> None:
        with self._lock:
            self._waiting[job] = (task, future)
            broken = self._broken
        if broken is not None:
            self._break(broken)

    def _follow(self) -> None:
        try:
            while not self._stopped.wait(self.every_s):
                self._look()
        except Exception as bug:  # noqa: BLE001 - raised by every future: in this thread nobody would hear of it
            self._break(bug)

    def _look(self) -> None:
        """Ask once for all, and answer for those that are over, or of which nobody was told for too long."""
        with self._lock:
            waiting = {job: task for job, (task, _) in self._waiting.items()}
        if not waiting:
            return
        try:
            told = self.over(waiting)
            self._away_since = None
        except EnvbuilderError as error:  # the controller may be restarting: its jobs go on meanwhile
            if self._is_given_up():
                for job in waiting:
                    self._answer(job, LostError(error.message, hint=error.hint))
            return
        for job in waiting:
            end = told.get(job)
            if isinstance(end, EnvbuilderError) and not isinstance(end, LostError):
                since = self._unsaid_since.setdefault(job, time.monotonic())
                end = LostError(end.message, hint=end.hint) if time.monotonic() - since > self.patience_s else None
            else:
                self._unsaid_since.pop(job, None)
            if end is not None:
                self._answer(job, end)

    def _answer(self, job: str, end: Ended | LostError) -> None:
        self._unsaid_since.pop(job, None)
        with self._lock:
            _, future = self._waiting.pop(job)
        if isinstance(end, LostError):
            future.set_exception(end)
        else:
            future.set_result(end)

    def _break(self, bug: Exception) -> None:
        """Give a bug to whoever waits, now or later: nobody follows any job any more."""
        with self._lock:
            self._broken = bug
            futures = [future for _, future in self._waiting.values()]
            self._waiting.clear()
        for future in futures:
            future.set_exception(bug)


_REFUSED = ExitCode.USAGE
"""What a cluster will not take as it was asked it will not take the next time either."""
