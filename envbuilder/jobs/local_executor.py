"""The executor of this host: one task after the other, since validation measures."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Self

from envbuilder.errors import EnvbuilderError
from envbuilder.jobs.fleet_task import Ended, Task


@dataclass(frozen=True)
class LocalExecutor:
    """Does a task where it is submitted, in the caller's thread: an interrupt ends it as it ends any command."""

    do: Callable[[Task], Ended]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        """Nothing runs any more."""

    def submit(self, task: Task) -> Future[Ended]:
        """Do it; the future is done."""
        future: Future[Ended] = Future()
        try:
            future.set_result(self.do(task))
        except EnvbuilderError as error:
            future.set_exception(error)
        return future
