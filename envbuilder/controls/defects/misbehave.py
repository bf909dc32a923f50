"""Probes that end their process, or never answer. They ship with the controls, never with the suite."""

from __future__ import annotations

import os
import signal
import time


def hang(facts: dict[str, object]) -> None:
    """Never answer, and ignore being asked to stop."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(1)


def segfault(facts: dict[str, object]) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def illegal(facts: dict[str, object]) -> None:
    """Die of an instruction that the processor lacks."""
    os.kill(os.getpid(), signal.SIGILL)
