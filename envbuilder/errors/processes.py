"""Tell one process from another that has its number: by when it started."""

from __future__ import annotations

from pathlib import Path

_ENDED = frozenset("ZXx")
"""The states of a process that runs no more, reaped or not (proc(5))."""


def started(pid: int) -> str:
    """Return when a process started, in clock ticks since boot; '' where there is none, or one that nobody has reaped.

    Killed with its parent, it stays in the list until the first of all processes comes to it.
    """
    try:
        told = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return "" if told[0] in _ENDED else told[19]
    except (OSError, IndexError):
        return ""
