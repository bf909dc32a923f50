"""Work in threads, and a limit on its time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from multiprocessing import TimeoutError as LateError
from multiprocessing.pool import ThreadPool
from typing import TypeVar

from envbuilder.errors import Reason
from envbuilder.registry.errors import RegistryFailedError

WORKERS = 16
"""Threads, and so requests at once."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def in_parallel(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> tuple[_Result, ...]:
    """Return the results in the order of the items. Raises the first error."""
    waiting = tuple(items)
    with ThreadPool(min(WORKERS, len(waiting)) or 1) as pool:
        return tuple(pool.imap(work, waiting))


def within(seconds: float | None, work: Callable[[], _Result]) -> _Result:
    """Do some work in a thread and wait for it so long, without ``seconds`` to its end.

    Raises RegistryFailedError (TOO_SLOW). A late thread is left behind: as a daemon it does not keep the process alive.
    """
    with ThreadPool(1) as pool:
        try:
            return pool.apply_async(work).get(seconds)
        except LateError as error:
            text = f"the registry took more than {seconds:.1f} s"
            hint = "try again; is it overloaded, or are thousands of documents attached to this image?"
            raise RegistryFailedError(Reason.TOO_SLOW, text, hint=hint) from error
