"""Describe the machine that a run is on."""

from __future__ import annotations

import os
from typing import Any


def describe() -> dict[str, Any]:
    return {
        "kernel": os.uname().release,
        "cpus": len(os.sched_getaffinity(0)),
        "cpu_model": _first("/proc/cpuinfo", "model name"),
        "memory": int((_first("/proc/meminfo", "MemTotal") or "0").split()[0]) * 1024,
    }


def _first(path: str, key: str) -> str:
    """Read the first value of a file of ``key : value`` lines; '' if it is missing."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            pairs = (line.partition(":") for line in stream)
            return next((value.strip() for name, _, value in pairs if name.strip() == key), "")
    except OSError:
        return ""
