"""Do tasks on an executor, each once: what was lost is begun again, what came to an answer never is."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TypeVar

from envbuilder.errors import EnvbuilderError, InfrastructureError
from envbuilder.jobs.fleet_task import Ended, Executor, LostError, Task, is_lost

ATTEMPTS = 4
"""How often a task may be begun where workers are lost under it: the fifth host would hardly be luckier."""

WINDOW = 250
"""How many tasks of one kind of host are with an executor at once: a scheduler's queue is everybody's."""

PATIENCE_S, PAUSE_S = 180.0, 2.0
"""How long a registry may be away before a question to it is given up, and how long is waited between two."""

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Came:
    """What became of a task: how it ended, or why nobody knows; ``attempts`` is how often it was begun."""

    ended: Ended | None
    error: str = ""
    attempts: int = 1


def fan_out(
    tasks: Iterable[Task],
    executor: Executor,
    *,
    is_left: Callable[[Task], bool],
    say: Callable[[str], None] = lambda _: None,
    attempts: int = ATTEMPTS,
) -> Mapping[str, Came]:
    """Do every task and say what became of it, by its name; tasks of one name are one.

    ``is_left`` is asked before a lost task is begun again: it may have attached its verdict before it was lost.
    """
    begun: Counter[str] = Counter()
    came: dict[str, Came] = {}
    done: SimpleQueue[tuple[Task, Future[Ended]]] = SimpleQueue()
    waiting: dict[str, deque[Task]] = {}
    for task in {task.name: task for task in tasks}.values():
        waiting.setdefault(task.kind, deque()).append(task)

    def begin(task: Task) -> None:
        begun[task.name] += 1
        executor.submit(task).add_done_callback(lambda future: done.put((task, future)))

    under_way = 0
    for same in waiting.values():
        for _ in range(min(WINDOW, len(same))):
            begin(same.popleft())
            under_way += 1
    while under_way:
        task, future = done.get()
        ended, error = _end_of(future)
        came[task.name] = Came(ended, error, begun[task.name])
        if _was_lost(ended) and begun[task.name] < attempts and _is_left(task, is_left, say):
            say(f"{task.name} on {task.kind} was lost ({error}); it is begun again")
            begin(task)
        elif waiting[task.kind]:
            begin(waiting[task.kind].popleft())
        else:
            under_way -= 1
    return came


def _was_lost(ended: Ended | None) -> bool:
    return ended is None or is_lost(ended.code)


def _end_of(future: Future[Ended]) -> tuple[Ended | None, str]:
    try:
        ended = future.result()
    except LostError as error:
        return None, error.message
    return ended, ended.said if is_lost(ended.code) else ""


def _is_left(task: Task, is_left: Callable[[Task], bool], say: Callable[[str], None]) -> bool:
    """Ask whether a task is still to be done; where nobody answers, it is not begun: it might be done twice."""
    try:
        return patiently(lambda: is_left(task), say)
    except EnvbuilderError as error:
        say(f"{task.name}: whether it is left cannot be told: {error.message}")
        return False


def patiently(ask: Callable[[], _Answer], say: Callable[[str], None], *, patience_s: float = PATIENCE_S) -> _Answer:
    """Ask until there is an answer, for ``patience_s`` seconds: a registry may be away for a minute.

    Raises the last InfrastructureError where it stays away; any other error at once.
    """
    until = time.monotonic() + patience_s
    while True:
        try:
            return ask()
        except InfrastructureError as error:
            if time.monotonic() + PAUSE_S > until:
                raise
            say(f"{error.message}; asking again")
        time.sleep(PAUSE_S)
