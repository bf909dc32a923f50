"""Start programs of others: one error for what goes wrong, bounds on time and output, and an end when we end."""

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
"""Where a program's streams may go."""

Process = subprocess.Popen[bytes]

MOST_OUTPUT = 64 << 20
"""Bytes of a program's standard output, and of its standard error, that are kept; one that prints more is ended."""

_PATIENCE_S = 4.0
"""Seconds for a program to end by itself once it is asked to; cleaning up after a signal has eight in all."""

_LOOK_S = 0.2
_REST_S = 1.0
"""How long the output of a program that has ended may still come: someone else may hold its pipe open for ever."""

_PIECE = 1 << 16


class ProgramError(InfrastructureError):
    """A program could not be started, did not end in time, or printed without end."""


@dataclass(frozen=True)
class Ended:
    """How a program ended: its exit code, and what it printed."""

    code: int
    out: bytes
    errors: bytes

    @property
    def text(self) -> str:
        """Return its standard output as text."""
        return decoding.lossy(self.out)

    @property
    def complaint(self) -> str:
        """Return its standard error as text."""
        return decoding.lossy(self.errors)


def run(
    command: Sequence[str],
    *,
    within: float,
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
    stdin: bytes = b"",
    brief: bool = False,
) -> Ended:
    """Run a program to its end; ``stdin``, of a few kilobytes at most, is what it can read.

    It ends when this process ends, even by a kill; one that is ``brief`` (it answers at once) may outlive it instead,
    and starts faster. Raises ProgramError where it cannot be started, has not ended ``within`` so many seconds, or
    prints more than `MOST_OUTPUT`.
    """
    until = time.monotonic() + within
    pipes = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE}
    with _ours(command), started(command, env=env, folder=folder, brief=brief, **pipes) as process:
        assert process.stdin is not None  # noqa: S101 - asked for above
        with suppress(BrokenPipeError), process.stdin as stream:
            stream.write(stdin)
        out, errors = _output(process, command[0], until)
        try:
            return Ended(process.wait(max(0.0, until - time.monotonic())), out, errors)
        except subprocess.TimeoutExpired as error:
            raise ProgramError(f"{command[0]} did not end within {within:.0f} s", hint="try it by hand") from error


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
    """Start a program that ends when the block does, or when this process does: asked to first, killed in the end.

    ``settings`` are those of subprocess.Popen. Raises OSError where it cannot be started.
    """
    reading, writing = os.pipe()
    try:
        words = list(command)
        if not brief:
            found = str(_found(command[0], env))
            words = [sys.executable, "-I", "-S", str(_LIFELINE), str(reading), str(patience), found, *command[1:]]
        if brief:  # a group of its own: what it has started is killed with it
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
    """Find a program as a shell would. Raises OSError where there is none, or none that may be run."""
    found = shutil.which(name, path=(os.environ if env is None else env).get("PATH"))
    if found is None:
        number = errno.EACCES if "/" in name and Path(name).exists() else errno.ENOENT
        raise OSError(number, os.strerror(number), name)
    return Path(found).absolute()


def _close(process: Process, patience: float, *, group: bool) -> None:
    """Wait for a process that was asked to end, kill it or its group where it does not, and close its pipes."""
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
def _ours(command: Sequence[str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ProgramError(
            f"{command[0]} cannot be started: {error.strerror}", hint="is it installed, and may it be run here?"
        ) from error


def _output(process: Process, name: str, until: float) -> tuple[bytes, bytes]:
    """Read both outputs to their ends, as far as time and bounds go."""
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
                kept = found[key.fileobj]  # type: ignore[index]
                kept += data
                if len(kept) > MOST_OUTPUT:
                    raise ProgramError(f"{name} printed more than {MOST_OUTPUT >> 20} MB", hint="try it by hand")
                if not data:
                    selector.unregister(key.fileobj)
    return bytes(found[process.stdout]), bytes(found[process.stderr])
