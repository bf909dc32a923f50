"""Do the same for many items at once, in threads that never keep the process from ending."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from envbuilder.registry.deadline import Deadline

WORKERS = 16
"""Threads, and so documents in memory at once: each may be `client.MAX_DOCUMENT` long."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def in_parallel(work: Callable[[_Item], _Result], items: Iterable[_Item], deadline: Deadline) -> tuple[_Result, ...]:
    """Return the results in the order of the items. Raises the first error, and RegistryFailedError at the deadline."""
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
            except BaseException as error:  # noqa: BLE001 - raised again where the caller waits
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
