"""Waiting for what happens elsewhere, on a machine that may be busy."""

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def wait_for(condition: Callable[[], Found], seconds: float, otherwise: Callable[[], object] = lambda: "") -> Found:
    """Ask until the answer is true, and return it. Fails after so many seconds with what there is to say."""
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, otherwise()
        time.sleep(0.05)
    return found
