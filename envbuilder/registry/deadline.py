"""A bound on the whole time of an answer, whatever it is spent on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from envbuilder.registry.faults import Fault, RegistryFailedError

_Result = TypeVar("_Result")


class Deadline:
    """A moment by which everything is done; without ``seconds`` there is none."""

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = seconds
        self._end = None if seconds is None else time.monotonic() + seconds

    def left(self, at_most: float) -> float:
        """Return the seconds that are left, at most so many. Raises RegistryFailedError where none are."""
        if self._end is None:
            return at_most
        left = self._end - time.monotonic()
        if left <= 0:
            raise self.passed()
        return min(left, at_most)

    def passed(self) -> RegistryFailedError:
        """Make the error that says that the time is over."""
        return RegistryFailedError(
            Fault.TOO_SLOW,
            f"the registry took more than {self.seconds:g} s",
            hint="try again; is it overloaded, or are thousands of documents attached to this image?",
        )


def within(deadline: Deadline, work: Callable[[], _Result]) -> _Result:
    """Do some work in a thread, and wait for it until the deadline and no longer.

    A deadline between two reads does not bound everything: a name is looked up, a handshake is made and a header is
    read without anybody asking the time. The thread of work that is late is left behind; it cannot keep the process.
    """
    if deadline.seconds is None:
        return work()
    done: list[Callable[[], _Result]] = []

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - raised again where the caller waits
            caught = error

            def fail() -> _Result:
                raise caught

            done.append(fail)
        else:
            done.append(lambda: result)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(deadline.seconds + 1)  # a second more: what notices the deadline itself says more precisely where
    if not done:
        raise deadline.passed()
    return done[0]()
