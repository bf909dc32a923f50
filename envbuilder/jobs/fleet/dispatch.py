"""Give each job to a free worker of its host class, and a lost one to another worker, a limited number of times."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Protocol, TypeVar

from envbuilder.errors import EnvbuilderError, InfrastructureError
from envbuilder.jobs.fleet.job import Job, JobEnd, is_lost, reason_of

ATTEMPTS = 4
"""How often a job is started in all if its workers are lost: a fifth host is unlikely to do better."""

PATIENCE_S, PAUSE_S = 180.0, 2.0
"""How long a registry or a scheduler may be away, and the pause between two questions."""

LOOK_S, SILENT_S, AGAIN_S = 1.0, 10.0, 10.0
"""Seconds between two looks at the workers, until a wait is reported, and until the only worker gets a job again."""

_REPEAT_S, _TOLD_S = 60.0, 15.0
"""Seconds until a wait for a worker is reported, and a refused one checked again; until one for a registry or scheduler
is reported again."""

_Answer = TypeVar("_Answer")


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


@dataclass(frozen=True)
class Event:
    """What happened to a job: a line of its output, its end, or the reason why nothing is known about its end."""

    key: str
    line: str = ""
    end: JobEnd | None = None
    lost: str = ""


class Pool(Protocol):
    """The workers of a scheduler. `workers` raises InfrastructureError while the scheduler does not answer."""

    events: SimpleQueue[Event]

    def workers(self) -> tuple[Worker, ...]: ...
    def start(self, key: str, job: Job, worker: Worker) -> None: ...
    def forget(self, key: str) -> None: ...


@dataclass(frozen=True)
class Outcome:
    """End of a job after its last attempt; ``end`` is None if nothing is known about it, ``error`` says why.

    ``workers`` are the names of those that were given the job.
    """

    end: JobEnd | None
    error: str = ""
    workers: tuple[str, ...] = ()

    @property
    def is_lost(self) -> bool:
        return self.end is None or is_lost(self.end.code)


@dataclass
class _Attempts:
    """The attempts of a job: the workers that had it, why each lost it, and when the last one did."""

    job: Job
    workers: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    lost_at: float = 0.0

    @property
    def key(self) -> str:
        return f"{self.job.name}-{len(self.reasons)}" if self.reasons else self.job.name

    @property
    def error(self) -> str:
        if len(self.reasons) > 1 and set(self.reasons) == {_DIED}:
            return f"{len(self.reasons)} workers died while they ran it ({', '.join(self.workers)})"
        return "; ".join(f"{name}: {why}" for name, why in zip(self.workers, self.reasons, strict=False))


_DIED = "the worker died"


@dataclass
class Dispatcher:
    """Runs jobs on the workers of a pool.

    A lost job is started again, on another worker if there is one, unless ``is_pending`` says that it attached its
    verdict before. ``check`` is the job that a worker has to pass before its first other job: it gets no other if it
    fails, until it is checked again. A job is given up if no usable worker of its class is there for ``timeout_s``, or
    no scheduler answers.
    """

    pool: Pool
    is_pending: Callable[[Job], bool]
    say: Callable[[str], None] = lambda _: None
    check: Callable[[Worker], Job] | None = None
    timeout_s: float = 600.0
    _waiting: dict[str, _Attempts] = field(default_factory=dict)
    _running: dict[str, tuple[_Attempts, Worker]] = field(default_factory=dict)
    _checking: dict[str, Worker] = field(default_factory=dict)
    _checked: dict[str, str] = field(default_factory=dict)
    _refused: dict[str, float] = field(default_factory=dict)
    _unserved: dict[str, float] = field(default_factory=dict)
    _reported: dict[str, float] = field(default_factory=dict)
    _outcomes: dict[str, Outcome] = field(default_factory=dict)

    def run(self, jobs: Iterable[Job]) -> Mapping[str, Outcome]:
        """Run every job and return the outcomes by job name; jobs with the same name are one job."""
        self._waiting = {job.name: _Attempts(job) for job in jobs}
        self._outcomes = {}
        while self._waiting or self._running:
            try:
                workers = with_patience(self.pool.workers, self.say, patience_s=self.timeout_s)
            except InfrastructureError as error:
                for one in (*self._waiting.values(), *(one for one, _ in self._running.values())):
                    self._outcomes[one.job.name] = Outcome(None, error.message, tuple(one.workers))
                self._waiting, self._running, self._checking = {}, {}, {}
                break
            self._forget_refusals()
            self._find_lost({worker.address for worker in workers})
            waits = Counter(filter(None, [self._give(one, workers) for one in tuple(self._waiting.values())]))
            self._report(waits)
            if self._waiting or self._running:
                self._follow()
        return self._outcomes

    def _forget_refusals(self) -> None:
        """Let workers that failed their check be checked again after a while: somebody may have repaired them."""
        for address, since in tuple(self._refused.items()):
            if time.monotonic() > since + _REPEAT_S:
                del self._refused[address], self._checked[address]

    def _find_lost(self, there: set[str]) -> None:
        for key, (_, worker) in tuple(self._running.items()):
            if worker.address not in there:
                self.pool.forget(key)
                self._end(key, None, _DIED)
        for key, worker in tuple(self._checking.items()):
            if worker.address not in there:
                self.pool.forget(key)
                del self._checking[key]

    def _give(self, one: _Attempts, workers: tuple[Worker, ...]) -> str:
        """Start a job on a free worker, or return for what it waits."""
        job, now = one.job, time.monotonic()
        joined = next((worker for worker in workers if one.key in worker.keys), None)
        of_class = [worker for worker in workers if job.worker_class in worker.classes]
        usable = [worker for worker in of_class if not self._checked.get(worker.address)]
        others = [worker for worker in usable if worker.name not in one.workers[-1:]]
        if not others and now > one.lost_at + AGAIN_S:
            others = usable
        busy = {worker.address for _, worker in self._running.values()}
        busy |= {worker.address for worker in self._checking.values()}
        free = joined or next((one for one in others if not one.keys and one.address not in busy), None)
        if any(self.check is None or worker.address in self._checked for worker in usable):
            self._unserved.pop(job.name, None)
        elif now > self._unserved.setdefault(job.name, now) + self.timeout_s:
            text = f"{self._missing(job, workers, of_class)} in {self.timeout_s:.0f} s"
            del self._waiting[job.name]
            self._outcomes[job.name] = Outcome(None, text, tuple(one.workers))
            return ""
        if free is None:
            no_free = f"no free worker of host class {job.host_class}, of {len(usable)}"
            return no_free if usable else self._missing(job, workers, of_class)
        if self.check is not None and free.address not in self._checked and joined is None:
            check = self.check(free)
            self._checking[check.name] = free
            self.pool.start(check.name, check, free)
        else:
            del self._waiting[job.name]
            one.workers.append(free.name)
            self._running[one.key] = one, free
            attempt = f", attempt {len(one.workers)} of {ATTEMPTS}" if one.reasons else ""
            self.say(f"{job.title}: {'joined' if joined else 'started'} on {free.name}{attempt}")
            self.pool.start(one.key, job, free)
        return ""

    def _missing(self, job: Job, workers: tuple[Worker, ...], of_class: list[Worker]) -> str:
        if of_class:
            reasons = "; ".join(
                f"{one.name}: {self._checked.get(one.address) or 'not checked yet'}" for one in of_class
            )
            return f"no usable worker of host class {job.host_class}: {reasons}"
        there = Counter(worker.exact_class for worker in workers)
        counted = ", ".join(f"{count} of {name}" for name, count in sorted(there.items())) or "none"
        return f"no worker of host class {job.host_class}; there are: {counted}"

    def _report(self, waits: Mapping[str, int]) -> None:
        """Report for what jobs wait: after a while, and again after a longer while."""
        now = time.monotonic()
        self._reported = {text: self._reported.get(text, now - _REPEAT_S + SILENT_S) for text in waits}
        for text, count in waits.items():
            if now >= self._reported[text] + _REPEAT_S:
                self._reported[text] = now
                self.say(f"{text}; {'1 job waits' if count == 1 else f'{count} jobs wait'}")

    def _follow(self) -> None:
        """Take the events of the pool until the next look at the workers."""
        until = time.monotonic() + LOOK_S
        while (left := until - time.monotonic()) > 0:
            try:
                event = self.pool.events.get(timeout=left)
            except Empty:
                return
            if event.end is None and not event.lost:
                if event.key in self._running:
                    one, worker = self._running[event.key]
                    self.say(f"{one.job.title} on {worker.name}: {event.line}")
                continue
            if event.key in self._checking:
                worker = self._checking.pop(event.key)
                if event.end is not None:
                    self._checked[worker.address] = why = reason_of(event.end) if event.end.code else ""
                    if why:
                        self._refused[worker.address] = time.monotonic()
                        self.say(f"{worker.name} is not used: {why}")
            elif event.key in self._running:
                self._end(event.key, event.end, event.lost)
            return

    def _end(self, key: str, end: JobEnd | None, lost: str) -> None:
        """Note the end of an attempt; a lost job waits for the next one."""
        one, worker = self._running.pop(key)
        job = one.job
        if end is not None and not is_lost(end.code):
            self.say(f"{job.title}: ended on {worker.name}")
            self._outcomes[job.name] = Outcome(end, "", tuple(one.workers))
            return
        one.reasons.append(reason_of(end) if end is not None else lost)
        one.lost_at = time.monotonic()
        self.say(f"{job.title}: lost on {worker.name}: {one.reasons[-1]}")
        if len(one.reasons) < ATTEMPTS and self._is_known_pending(job):
            self._waiting[job.name] = one
        else:
            self._outcomes[job.name] = Outcome(end, one.error, tuple(one.workers))

    def _is_known_pending(self, job: Job) -> bool:
        """Return False if the registry does not answer: the job might be done already."""
        try:
            return with_patience(lambda: self.is_pending(job), self.say)
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
