"""Work in threads that do not keep the process alive."""

from collections.abc import Callable, Iterable
from multiprocessing import TimeoutError as LateError
from multiprocessing.pool import ThreadPool
from typing import TypeVar

from envbuilder.errors import InfrastructureError

WORKERS = 16

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def _pool(threads: int) -> ThreadPool:
    try:
        return ThreadPool(threads)
    except (RuntimeError, AttributeError) as error:  # the second if some were started: they cannot be terminated
        hint = "raise the limits of processes and memory (ulimit -u, ulimit -v)"
        raise InfrastructureError("the system refused another thread", hint=hint) from error


def in_parallel(work: Callable[[_Item], _Result], items: Iterable[_Item], most: int = WORKERS) -> tuple[_Result, ...]:
    """Return the results in the order of the items, with at most so many threads. Raises the first error."""
    waiting = tuple(items)
    with _pool(min(most, len(waiting)) or 1) as pool:
        return tuple(pool.imap(work, waiting))


def within(seconds: float | None, work: Callable[[], _Result], late: Callable[[], Exception]) -> _Result:
    """Do some work and wait for it so long; to its end without ``seconds``. Raises ``late()``, and leaves the work."""
    with _pool(1) as pool:
        try:
            return pool.apply_async(work).get(seconds)
        except LateError as error:
            raise late() from error
