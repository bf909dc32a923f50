"""Look at what the processes of a session do: compute, wait, or read files, which alone takes as long as it takes."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

TICKS = float(os.sysconf("SC_CLK_TCK"))
ASLEEP = 0.02
"""The share of one processor below which a session counts as waiting: timers of a run time take less than that."""


class _Sum(NamedTuple):
    """What a session did so far: seconds on a processor, a number that changes with all it reads, and who waits."""

    computed_s: float
    reads: int
    is_reading: bool
    is_runnable: bool


class Activity:
    """Seconds that the processes of a session computed, and waited, while nothing was read; both grow with `look`.

    Time in which a file was read counts as neither: how long that takes is the storage's affair, not a hang.
    """

    def __init__(self, session: int) -> None:
        self.session = session
        self.computed_s = 0.0
        self.waited_s = 0.0
        self._at = time.monotonic()
        self._sum = _session(session)

    def look(self) -> None:
        """Add what happened since the last look; to be called about once a second."""
        now, found = time.monotonic(), _session(self.session)
        elapsed, computed = now - self._at, found.computed_s - self._sum.computed_s
        if found.reads == self._sum.reads and not found.is_reading:
            self.computed_s += max(0.0, computed)
            if not found.is_runnable and computed < ASLEEP * elapsed + 1.5 / TICKS:
                self.waited_s += elapsed
        self._at, self._sum = now, found


def _session(session: int) -> _Sum:
    """Add up a session's processes (proc(5)); what ends meanwhile, or is not ours to look at, adds nothing."""
    computed, reads, is_reading, is_runnable = 0.0, 0, False, False
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        fields = _read("/proc/" + name + "/stat").rpartition(")")[2].split()
        if len(fields) < 15 or int(fields[3]) != session:
            continue
        # From the state on: 3 session, 9 and 10 major faults, 11 to 14 time as user and in the kernel, children too.
        is_reading = is_reading or fields[0] == "D"
        is_runnable = is_runnable or fields[0] == "R"
        computed += sum(int(one) for one in fields[11:15]) / TICKS
        reads += int(fields[9]) + int(fields[10]) + _bytes_read("/proc/" + name + "/io")
    return _Sum(computed, reads, is_reading, is_runnable)


def _bytes_read(path: str) -> int:
    lines = dict(line.split(": ", 1) for line in _read(path).splitlines() if ": " in line)
    return int(lines.get("rchar", 0))


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""
