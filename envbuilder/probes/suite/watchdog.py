"""Time limits of a run, and an end to it if the process that started it was killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

TOO_LATE = 124


class Limits(NamedTuple):
    """Seconds that hold for a whole run; the limit of a check is in the table of checks.

    ``start_s``: until a worker begins its first check, and from one check to the next.
    ``rest_s``: what is left of the run after the first check that timed out.
    ``slow_import_s``: a longer import doubles this rest and the limits of all checks. No quick check takes longer than
    the import.
    """

    start_s: float = 45.0
    rest_s: float = 10.0
    slow_import_s: float = 15.0

    def scaled(self, limit_s: float, import_s: float) -> float:
        """Return the limit of a check on a host where importing TensorFlow took ``import_s`` seconds."""
        return 2 * limit_s if import_s > self.slow_import_s else limit_s


class Clock:
    """The limits of one run: doubled after a slow import, cut short after a timeout. All lanes share it."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.import_s = 0.0
        self.stop_at = float("inf")

    def scaled(self, limit_s: float) -> float:
        return self.limits.scaled(limit_s, self.import_s)

    def stop_after(self, seconds: float) -> None:
        self.stop_at = min(self.stop_at, time.monotonic() + seconds)

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.stop_at


def end_after(seconds: float) -> None:
    """End this process and its descendants after so many seconds.

    A signal is not enough: the kernel does not deliver it to the first process of a container.
    """
    timer = threading.Timer(seconds, _end)
    timer.daemon = True
    timer.start()


def _end() -> None:
    kill_descendants()
    os._exit(TOO_LATE)


def kill_descendants() -> None:
    """Kill every process below this one. Outside a container, nothing else does."""
    for pid in descendants(os.getpid()):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """Return the processes below one, without that one; none if the system has no ``/proc``."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):  # it may end during the read
            parent = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found: list[int] = []
    new = [pid]
    while new:
        new = [child for parent in new for child in children.get(parent, ())]
        found += new
    return found
