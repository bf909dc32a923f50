"""Follow a process of this host to its end, within a limit of time, and leave nothing of it behind."""

from __future__ import annotations

import os
import selectors
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO

from envbuilder.probes.suite.lifetime import descendants
from envbuilder.support import subprocesses

_LOOK_S = 0.2
"""How often a process that is silent is looked at."""

_REST_S = 1.0
"""How long the output of a process that has ended may still come: someone else may hold its pipe open for ever."""

_PIECE = 65536


def follow(
    command: Sequence[str],
    on_output: Callable[[bytes], None],
    *,
    time_limit: float,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    overdue: Callable[[], bool] = lambda: False,
) -> int | None:
    """Run a command, hand on its standard output as it comes, and return its exit code.

    None where it had not ended after ``time_limit`` seconds, whatever it did with its output, or was ``overdue``; what
    it printed until then has been handed on. ``stdin`` is what it can read. At the end, however it comes, its process
    group and all that descends from it is killed; so it is where this process is killed.
    Raises OSError where it cannot be started.
    """
    deadline = time.monotonic() + time_limit
    with subprocesses.started(
        command,
        env=env,
        patience=0.0,
        start_new_session=True,
        bufsize=0,
        stdin=subprocesses.PIPE,
        stdout=subprocesses.PIPE,
    ) as process:
        assert process.stdout is not None  # noqa: S101 - asked for above
        threading.Thread(target=_give, args=(process, stdin), daemon=True).start()  # it may never read
        with process.stdout as stream:
            try:
                if not _hand_on(process, stream, on_output, deadline, overdue):
                    _wait(process, deadline)
                return process.poll()
            finally:
                _end(process)


def _wait(process: subprocesses.Process, deadline: float) -> None:
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(_LOOK_S / 10)


def _give(process: subprocesses.Process, data: bytes) -> None:
    """Write a process's standard input and end it; one that has ended, or was killed, needs none."""
    assert process.stdin is not None  # noqa: S101 - asked for where it is started
    with suppress(OSError, ValueError), process.stdin as stream:
        view = memoryview(data)
        while view:
            view = view[os.write(stream.fileno(), view) :]


def _hand_on(
    process: subprocesses.Process,
    stream: IO[bytes],
    on_output: Callable[[bytes], None],
    deadline: float,
    overdue: Callable[[], bool],
) -> bool:
    """Hand on output until its end, the deadline, or the process's end and a moment more; True where it is overdue."""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        over = False
        while (left := deadline - time.monotonic()) > 0:
            if not over and process.poll() is not None:
                over, deadline = True, min(deadline, time.monotonic() + _REST_S)
            if overdue():
                return True
            if selector.select(min(left, _LOOK_S)):
                data = os.read(stream.fileno(), _PIECE)
                if not data:
                    return False
                on_output(data)
    return False


def _end(process: subprocesses.Process) -> None:
    """Kill a process, its group, and what has left the group for a session of its own (every check does)."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGSTOP)  # so that it starts nothing more while its children are counted
        for pid in descendants(process.pid):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
