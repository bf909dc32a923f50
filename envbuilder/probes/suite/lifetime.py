"""An end of its own: whoever started a container may have been killed, and then nobody else ends it."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress

TOO_LATE = 124


def end_after(seconds: float) -> None:
    """End this process after so many seconds, whatever it does then, and with it a container that it is the first of.

    A signal would not do: the kernel keeps those of a container from its first process.
    """
    timer = threading.Timer(seconds, _end)
    timer.daemon = True
    timer.start()


def _end() -> None:
    """Take what this process has started along: outside a container, nobody else would."""
    for child in _children():
        with suppress(OSError):
            if os.getpgid(child) == child:
                os.killpg(child, signal.SIGKILL)
            else:
                os.kill(child, signal.SIGKILL)
    os._exit(TOO_LATE)


def _children() -> "list[int]":
    found = []
    with suppress(OSError):
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/children") as file:
                found += [int(word) for word in file.read().split()]
    return found
