"""A limit on the total time of an answer, and work in threads within it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from envbuilder.errors import Reason
from envbuilder.registry.errors import RegistryFailedError

WORKERS = 16
"""Threads, and so documents in memory at once: each may have `manifests.MAX_DOCUMENT` bytes."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Deadline:
    """A moment by which everything is done; none without ``seconds``."""

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = seconds
        self._end = None if seconds is None else time.monotonic() + seconds

    def left(self, at_most: float) -> float:
        """Return the remaining seconds, at most ``at_most``. Raises RegistryFailedError after the deadline."""
        if self._end is None:
            return at_most
        left = self._end - time.monotonic()
        if left <= 0:
            raise self.passed()
        return min(left, at_most)

    def passed(self) -> RegistryFailedError:
        """Return the error for an answer that is too late."""
        return RegistryFailedError(
            Reason.TOO_SLOW,
            f"the registry took more than {self.seconds:g} s",
            hint="try again; is it overloaded, or are thousands of documents attached to this image?",
        )


def in_parallel(work: Callable[[_Item], _Result], items: Iterable[_Item], deadline: Deadline) -> tuple[_Result, ...]:
    """Return the results in the order of the items. Raises the first error, and RegistryFailedError at the deadline.

    Late threads are left behind; as daemons they do not keep the process alive, unlike those of an executor.
    """
    waiting = list(enumerate(items))[::-1]
    results: dict[int, _Result] = {}
    errors: list[BaseException] = []

    def run() -> None:
        while not errors:
            try:
                place, item = waiting.pop()
            except IndexError:
                return
            try:
                results[place] = work(item)
            except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
                errors.append(error)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(min(WORKERS, len(waiting)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(deadline.left(1))
    if errors:
        raise errors[0]
    return tuple(results[place] for place in sorted(results))


def within(deadline: Deadline, work: Callable[[], _Result]) -> _Result:
    """Do some work in a thread and wait until the deadline.

    A deadline between two reads does not limit everything: name look-ups, handshakes and headers have no such check.
    A second more is granted, since a check between two reads gives a more precise error.
    """
    if deadline.seconds is None:
        return work()
    try:
        return in_parallel(lambda _: work(), (None,), Deadline(deadline.left(deadline.seconds) + 1))[0]
    except RegistryFailedError as error:
        raise (deadline.passed() if error.fault is Reason.TOO_SLOW else error) from error
