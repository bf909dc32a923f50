"""Run other programs: one error type, limits on time and output, and an end with envbuilder's own end."""

import errno
import os
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from envbuilder.errors import InfrastructureError
from envbuilder.support import decoding

_LIFELINE = Path(__file__).with_name("lifeline.py")

PIPE, NOTHING, TO_OUTPUT = subprocess.PIPE, subprocess.DEVNULL, subprocess.STDOUT
"""Targets of a program's streams."""

Process = subprocess.Popen[bytes]

MOST_OUTPUT = 64 << 20
"""Limit of a program's standard output, and of its standard error; one that prints more is ended."""

_PATIENCE_S = 4.0
"""Seconds for a program to end after SIGTERM; cleaning up after a signal may take eight in all."""

_LOOK_S = 0.2
_REST_S = 1.0
"""Limit for the rest of the output after a program's end: another process may keep its pipe open."""

_PIECE = 1 << 16


class ProgramError(InfrastructureError):
    """A program could not be started, did not end in time, or printed too much."""


@dataclass(frozen=True)
class CompletedProgram:
    """The exit code and the output of a program."""

    code: int
    out: bytes
    errors: bytes

    @property
    def text(self) -> str:
        return decoding.lossy(self.out)

    @property
    def error_text(self) -> str:
        return decoding.lossy(self.errors)


def run(
    command: Sequence[str],
    *,
    within: float,
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
    stdin: bytes = b"",
) -> CompletedProgram:
    """Run a program to its end; it ends when this process ends, even by a kill.

    Raises ProgramError if it cannot be started, does not end ``within`` so many seconds, or prints more than
    `MOST_OUTPUT`.
    """
    out, errors = bytearray(), bytearray()

    def take(output: bytearray, data: bytes) -> None:
        output.extend(data)
        if len(output) > MOST_OUTPUT:
            text = f"{command[0]} printed more than {MOST_OUTPUT >> 20} MB"
            raise ProgramError(text, hint="run it by hand to see why")

    takers = (partial(take, out), partial(take, errors))
    try:
        code = follow(command, *takers, within=within, env=env, folder=folder, stdin=stdin)
    except OSError as error:
        raise ProgramError(
            f"{command[0]} cannot be started: {error.strerror}", hint="is it installed, and may it be run here?"
        ) from error
    if code is None:
        raise ProgramError(f"{command[0]} did not end within {within:.0f} s", hint="run it by hand to see why")
    return CompletedProgram(code, bytes(out), bytes(errors))


def answer(*command: str, folder: Path | None = None) -> str:
    """Return what a query prints; '' if it cannot be run, or fails."""
    try:
        done = run(command, within=30, folder=folder)
    except ProgramError:
        return ""
    return done.text.strip() if done.code == 0 else ""


def follow(
    command: Sequence[str],
    on_output: Callable[[bytes], None],
    on_errors: Callable[[bytes], None] | None = None,
    *,
    within: float,
    stdin: bytes = b"",
    overdue: Callable[[], bool] = lambda: False,
    **how: Any,  # noqa: ANN401 - as for `started`
) -> int | None:
    """Run a program and pass on its output as it comes; return its exit code.

    Returns None if it did not end ``within`` so many seconds, or was ``overdue``; then it is ended. Without
    ``on_errors``, its standard error is this process's. Raises OSError if it cannot be started.
    """
    until = time.monotonic() + within
    errors = None if on_errors is None else PIPE
    with started(command, bufsize=0, stdin=PIPE, stdout=PIPE, stderr=errors, **how) as process:
        threading.Thread(target=_write, args=(process, stdin), daemon=True).start()  # it may never read
        _pass_on(process, {process.stdout: on_output, process.stderr: on_errors}, until, overdue)
        while process.poll() is None and not overdue() and time.monotonic() < until:
            time.sleep(_LOOK_S / 10)
        return process.poll()  # before its pipes are closed, which would end it


@contextmanager
def started(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
    group: bool = False,
    patience: float = _PATIENCE_S,
    **settings: Any,  # noqa: ANN401 - subprocess.Popen's own
) -> Iterator[Process]:
    """Start a program that ends with the block, or with this process: by SIGTERM first, then by SIGKILL.

    With ``group`` it gets its own process group, which is killed at the end. ``settings`` are those of
    subprocess.Popen. Raises OSError if it cannot be started.
    """
    reading, writing = os.pipe()
    try:
        found = str(_found(command[0], env))
        words = [sys.executable, "-I", "-S", str(_LIFELINE), str(reading), str(patience), found, *command[1:]]
        if group:
            settings["process_group"] = 0
        process = Process(words, env=env, cwd=folder, pass_fds=(reading,), **settings)
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    try:
        yield process
    finally:
        os.close(writing)
        _close(process, patience + 2.0, group=group)


_ENDED = frozenset("ZXx")
"""The states of a process that no longer runs, reaped or not (proc(5))."""


def process_start(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot, or '' if it does not run.

    A process keeps its number in the list after its end until its parent reaps it: such a process does not run.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return "" if fields[0] in _ENDED else fields[19]
    except (OSError, IndexError):
        return ""


def owner() -> str:
    """Return a name for this process: its number, which is reused (in a container always), and its start time."""
    return f"{os.getpid()}_{process_start(os.getpid())}"


def is_gone(name: str) -> bool:
    """Return True if the process of an `owner` name has ended; False for other names."""
    pid, _, started = name.partition("_")
    return pid.isdigit() and process_start(int(pid)) != started


def _found(name: str, env: Mapping[str, str] | None) -> Path:
    """Find a program as a shell does. Raises OSError if there is none that may be run."""
    found = shutil.which(name, path=(os.environ if env is None else env).get("PATH"))
    if found is None:
        number = errno.EACCES if "/" in name and Path(name).exists() else errno.ENOENT
        raise OSError(number, os.strerror(number), name)
    return Path(found).absolute()


def _close(process: Process, patience: float, *, group: bool) -> None:
    """Wait for a process after SIGTERM, kill it or its group, and close its pipes."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(patience)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL) if group else process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(OSError):
                stream.close()


def _write(process: Process, data: bytes) -> None:
    assert process.stdin is not None  # noqa: S101 - asked for where it is started
    with suppress(OSError, ValueError), process.stdin as stream:
        view = memoryview(data)
        while view:
            view = view[os.write(stream.fileno(), view) :]


def _pass_on(
    process: Process,
    takers: Mapping[IO[bytes] | None, Callable[[bytes], None] | None],
    until: float,
    overdue: Callable[[], bool],
) -> None:
    """Pass on outputs until their ends, a time, the end of the process and a moment more, or until it is overdue."""
    has_ended = False
    with selectors.DefaultSelector() as selector:
        for stream, take in takers.items():
            if stream is not None:
                selector.register(stream, selectors.EVENT_READ, take)
        while selector.get_map() and (left := until - time.monotonic()) > 0 and not overdue():
            if not has_ended and process.poll() is not None:
                has_ended, until = True, min(until, time.monotonic() + _REST_S)
            for key, _ in selector.select(min(left, _LOOK_S)):
                if data := os.read(key.fd, _PIECE):
                    key.data(data)
                else:
                    selector.unregister(key.fileobj)
