"""An end of its own: whoever started a container may have been killed, and then nobody else ends it."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

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
    for pid in descendants(os.getpid()):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    os._exit(TOO_LATE)


def descendants(pid: int) -> list[int]:
    """Name the processes below one, itself not among them; none where the system has no ``/proc``."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):  # it may end while it is read
            parent = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found: list[int] = []
    new = [pid]
    while new:
        new = [child for parent in new for child in children.get(parent, ())]
        found += new
    return found
