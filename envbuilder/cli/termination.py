"""How a command ends: missing streams at its start, signals on the way, and output that nobody takes at its end."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from envbuilder import errors
from envbuilder.errors import ExitCode

CLOSED_PIPE = 128 + signal.SIGPIPE
"""What a shell says of a program whose reader has gone: no verdict, and none of our codes."""

GRACE_S = 8.0
"""Seconds for cleaning up after a signal. An engine that hangs gets no more: the next command sweeps what is left."""


def open_missing_streams() -> None:
    """Give descriptors 0, 1 and 2 to /dev/null where they are closed.

    Otherwise the next file that is opened would get the number, and what is meant for standard error would go into it.
    Whoever reads a standard input that was closed finds nothing in it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            with suppress(OSError):  # a system without /dev/null has nowhere to send it either
                os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
    if sys.stdin is None:
        with suppress(OSError):
            sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)


def end_on_signals() -> None:
    """Let a request to terminate, as CI or a closed terminal sends it, end the command as Ctrl-C does.

    What ``nohup`` ignores stays ignored.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - the signature of a handler
    backstop = threading.Timer(GRACE_S, os._exit, (int(ExitCode.INTERRUPTED),))
    backstop.daemon = True
    backstop.start()
    raise KeyboardInterrupt


def reader_has_gone() -> bool:
    """Tell whether standard output is a pipe that nobody reads any more."""
    poll = select.poll()
    poll.register(1, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def flush(code: int) -> int:
    """Write out what is buffered; return the code to end with, which is another where nobody can have the answer."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        return unwritten(error)
    return code


def unwritten(error: OSError) -> int:
    """Say that standard output cannot be written, unless nobody reads it; return the code for it."""
    gone = isinstance(error, BrokenPipeError)
    if not gone:
        complain(f"error: {errors.of_system(error, 'write the answer to standard output')}")
    _drop_output()
    return CLOSED_PIPE if gone else ExitCode.INFRASTRUCTURE


def complain(text: str) -> None:
    """Print on standard error where that can be done."""
    with suppress(OSError, ValueError):
        if sys.stderr is not None:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()


def _drop_output() -> None:
    """Send what is still buffered nowhere: Python's own last flush would fail once more, and change the exit code."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
