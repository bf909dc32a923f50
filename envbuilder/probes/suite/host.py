"""Describe the machine that a run is on, and what this process used of it."""

from __future__ import annotations

import os
from typing import Any


def describe() -> dict[str, Any]:
    return {
        "kernel": os.uname().release,
        "cpus": len(os.sched_getaffinity(0)),
        "cpu_model": _first("/proc/cpuinfo", "model name"),
        "memory": _bytes("/proc/meminfo", "MemTotal"),
    }


def peak_memory() -> int:
    """Return the peak of this process's resident memory in bytes; 0 if the kernel does not report it.

    Unlike ``ru_maxrss`` it does not include what the process was before ``exec``.
    """
    return _bytes("/proc/self/status", "VmHWM")


def _bytes(path: str, key: str) -> int:
    return int((_first(path, key) or "0").split()[0]) << 10


def _first(path: str, key: str) -> str:
    """Read the first value of a file of ``key : value`` lines; '' if it is missing."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            pairs = (line.partition(":") for line in stream)
            return next((value.strip() for name, _, value in pairs if name.strip() == key), "")
    except OSError:
        return ""
