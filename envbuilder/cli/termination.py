"""End of a command: missing streams, signals, and output that cannot be written."""

import io
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
from envbuilder.support import console

CLOSED_PIPE = 128 + signal.SIGPIPE
"""A shell's exit code for a program whose reader has closed the pipe."""

GRACE_S = 8.0
"""Seconds for cleanup after a signal. If the engine hangs, the next command removes what is left."""


def open_missing_streams() -> None:
    """Open /dev/null for closed descriptors 0, 1 and 2.

    Otherwise the next opened file would get the number, and messages for standard error would be written to it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            with suppress(OSError):  # a system without /dev/null
                os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
    if sys.stdin is None:
        with suppress(OSError):
            sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a locale such as Latin-1 has no arrow, and no letters of a reason
            stream.reconfigure(errors="backslashreplace")


def end_on_signals() -> None:
    """Make SIGTERM and SIGHUP end the command like Ctrl-C; signals that ``nohup`` ignores stay ignored."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - the signature of a handler
    backstop = threading.Timer(GRACE_S, os._exit, (int(ExitCode.INTERRUPTED),))
    backstop.daemon = True
    backstop.start()
    raise KeyboardInterrupt


def reader_has_gone() -> bool:
    """Return True if standard output is a pipe whose reader has closed it."""
    poll = select.poll()
    poll.register(1, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def flush(code: int) -> int:
    """Write the buffered output; return the exit code, which changes if the output cannot be written."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        code = unwritten(error)
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except OSError:
        drop(2)
    return code


def unwritten(error: OSError) -> int:
    """Report that standard output cannot be written, unless its reader is gone; return the exit code."""
    gone = isinstance(error, BrokenPipeError)
    if not gone:
        console.complain(f"error: {errors.of_system(error, 'write the answer to standard output')}")
    drop(1)
    return CLOSED_PIPE if gone else ExitCode.INFRASTRUCTURE


def drop(stream: int) -> None:
    """Discard a stream's buffered output: Python's last flush would fail again and change the exit code."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream)
        os.close(nowhere)
