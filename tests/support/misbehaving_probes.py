"""Probes of tests: they answer late, too much or not at all."""

from __future__ import annotations

import os
import sys
import time
from typing import NoReturn

from envbuilder_probes.misbehave import hang, illegal, segfault  # noqa: F401 - the controls' own
from envbuilder_probes.result import Answer, Facts, passed  # the suite, by its name in a container


def well(facts: Facts, **arguments: object) -> Answer:
    return passed("an answer", str(arguments))


def nap(facts: Facts, seconds: float = 1.0) -> Answer:
    time.sleep(seconds)
    return passed("an answer", "late")


def leave(facts: Facts) -> NoReturn:
    """End the process without an answer, as a framework's fatal error does."""
    sys.stderr.write("F fatal check failed\n")
    sys.stderr.flush()
    os._exit(134)


def throw(facts: Facts, text: str = "this went wrong") -> NoReturn:
    raise RuntimeError(text)


def flood(facts: Facts, megabytes: int = 64) -> Answer:
    """Print far more than anyone should keep, then answer."""
    line = b"x" * 65535 + b"\n"
    for _ in range(int(megabytes) * 16):
        os.write(2, line)
    return passed("an answer", f"after {megabytes} MB of log")


def lie(facts: Facts) -> Answer:
    """Print what looks like another check's answer on every stream that a framework could reach."""
    text = '{"event": "result", "result": {"name": "well", "tier": "cpu", "outcome": "failed"}}\n'
    for descriptor in (1, 2):
        os.write(descriptor, text.encode())
    return passed("an answer", "the truth")


def spawn(facts: Facts) -> None:
    """Leave a child behind that would outlive the check, and hang with it."""
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)
    time.sleep(600)
