"""What a session does: it computes, it waits, or it reads, and only reading is without end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from envbuilder.probes.suite.activity import Activity


@contextmanager
def session(source: str, *words: str) -> Iterator[Activity]:
    """Start a Python in a session of its own that does what ``source`` says, and look at it from then on."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", "print(flush=True)\n" + source, *words],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        process.stdout.readline()
        yield Activity(process.pid)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def watched(activity: Activity, seconds: float) -> None:
    """Look every quarter of a second, as long as said."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.25)
        activity.look()


def test_a_pipe_that_nobody_writes_to_is_waiting(tmp_path: Path) -> None:
    """A process that hangs in opening a pipe waits all the time and computes nothing."""
    os.mkfifo(tmp_path / "pipe")
    with session("import sys; open(sys.argv[1])", str(tmp_path / "pipe")) as activity:
        time.sleep(0.5)
        activity.look()
        before = activity.waited_s
        watched(activity, 2.0)
        assert activity.waited_s - before > 1.5
        assert activity.computed_s < 0.5


def test_a_sleeping_child_is_waiting() -> None:
    """What waits for a child that sleeps waits too: a session is looked at as one."""
    with session("import subprocess; subprocess.run(['sleep', '60'])") as activity:
        time.sleep(1.0)
        activity.look()
        before = activity.waited_s
        watched(activity, 2.0)
        assert activity.waited_s - before > 1.5


@pytest.mark.parametrize(
    "source", ["while True: pass", "import subprocess, sys; subprocess.run([sys.executable, '-ISc', 'while 1: pass'])"]
)
def test_a_loop_computes_and_does_not_wait(source: str) -> None:
    """Time on the processor is counted, of a child as of the process itself, and is no waiting."""
    with session(source) as activity:
        time.sleep(1.0)
        activity.look()
        before = activity.computed_s, activity.waited_s
        until = time.monotonic() + 60
        while activity.computed_s < before[0] + 0.5 and time.monotonic() < until:
            watched(activity, 0.5)
        assert activity.computed_s >= before[0] + 0.5
        assert activity.waited_s == before[1]


def test_who_reads_does_neither(tmp_path: Path) -> None:
    """However long it reads, slowly or in a hurry, that is neither computing nor waiting."""
    (tmp_path / "file").write_bytes(bytes(1 << 20))
    slowly = "import sys, time\nwhile True:\n    open(sys.argv[1], 'rb').read(4096); time.sleep(0.05)"
    with session(slowly, str(tmp_path / "file")) as activity:
        watched(activity, 2.0)
        assert (activity.computed_s, activity.waited_s) == (0.0, 0.0)


def test_what_has_ended_is_no_error() -> None:
    """A session that is gone adds nothing but waiting: looking at it never fails."""
    with session("") as activity:
        time.sleep(1.0)
        watched(activity, 0.6)
        assert activity.computed_s == 0.0
