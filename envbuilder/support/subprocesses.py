"""Run other programs: one error type, limits on time and output, and an end with envbuilder's own end."""

from __future__ import annotations

import errno
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    brief: bool = False,
) -> CompletedProgram:
    """Run a program to its end; ``stdin`` is its input, of a few kilobytes at most.

    It ends when this process ends, even by a kill. A ``brief`` program, which answers at once, starts faster instead.
    Raises ProgramError if it cannot be started, does not end ``within`` so many seconds, or prints more than
    `MOST_OUTPUT`.
    """
    until = time.monotonic() + within
    pipes = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE}
    with _starting(command), started(command, env=env, folder=folder, brief=brief, **pipes) as process:
        assert process.stdin is not None  # noqa: S101 - asked for above
        with suppress(BrokenPipeError), process.stdin as stream:
            stream.write(stdin)
        out, errors = _output(process, command[0], until)
        try:
            return CompletedProgram(process.wait(max(0.0, until - time.monotonic())), out, errors)
        except subprocess.TimeoutExpired as error:
            raise ProgramError(
                f"{command[0]} did not end within {within:.0f} s", hint="run it by hand to see why"
            ) from error


@contextmanager
def started(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
    brief: bool = False,
    patience: float = _PATIENCE_S,
    **settings: Any,  # noqa: ANN401 - subprocess.Popen's own
) -> Iterator[Process]:
    """Start a program that ends with the block, or with this process: by SIGTERM first, then by SIGKILL.

    ``settings`` are those of subprocess.Popen. Raises OSError if it cannot be started.
    """
    reading, writing = os.pipe()
    try:
        words = list(command)
        if not brief:
            found = str(_found(command[0], env))
            words = [sys.executable, "-I", "-S", str(_LIFELINE), str(reading), str(patience), found, *command[1:]]
        if brief:  # its own group: its children are killed with it
            settings["process_group"] = 0
        process = Process(words, env=env, cwd=folder, pass_fds=() if brief else (reading,), **settings)
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    try:
        yield process
    finally:
        os.close(writing)
        _close(process, 0.0 if brief else patience + 2.0, group=brief)


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


def _found(name: str, env: Mapping[str, str] | None) -> Path:
    """Find a program as a shell does. Raises OSError if there is none that may be run."""
    found = shutil.which(name, path=(os.environ if env is None else env).get("PATH"))
    if found is None:
        number = errno.EACCES if "/" in name and Path(name).exists() else errno.ENOENT
        raise OSError(number, os.strerror(number), name)
    return Path(found).absolute()


def _close(process: Process, patience: float, *, group: bool) -> None:
    """Wait for a process after SIGTERM, kill it or its group if it does not end, and close its pipes."""
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL) if group else process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(OSError):
                stream.close()


@contextmanager
def _starting(command: Sequence[str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ProgramError(
            f"{command[0]} cannot be started: {error.strerror}", hint="is it installed, and may it be run here?"
        ) from error


def _output(process: Process, name: str, until: float) -> tuple[bytes, bytes]:
    """Read both outputs to their ends, within the limits."""
    found = {process.stdout: bytearray(), process.stderr: bytearray()}
    with selectors.DefaultSelector() as selector:
        for stream in found:
            assert stream is not None  # noqa: S101 - asked for where it is started
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map() and (left := until - time.monotonic()) > 0:
            if process.poll() is not None:
                until = min(until, time.monotonic() + _REST_S)
            for key, _ in selector.select(min(left, _LOOK_S)):
                data = os.read(key.fd, _PIECE)
                output = found[key.fileobj]  # type: ignore[index]
                output += data
                if len(output) > MOST_OUTPUT:
                    raise ProgramError(
                        f"{name} printed more than {MOST_OUTPUT >> 20} MB", hint="run it by hand to see why"
                    )
                if not data:
                    selector.unregister(key.fileobj)
    return bytes(found[process.stdout]), bytes(found[process.stderr])
