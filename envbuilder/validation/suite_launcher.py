"""Run the suite in a closed container, or in a process of this host."""

from __future__ import annotations

import os
import selectors
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import IO

from envbuilder.engine.port import FILES_AT, OWN_END_S, ContainerResult, ContainerSpec, Engine
from envbuilder.errors import InfrastructureError, UsageError
from envbuilder.finding import Code
from envbuilder.probes.suite.watchdog import descendants
from envbuilder.support import subprocesses, terminal_text
from envbuilder.validation.suite_plan import probe_files
from envbuilder.validation.suite_session import FLOODED, Session, Unfinished
from envbuilder.workspace import temporary_folder, write_atomically

PROBES = "probes"
"""The folder of the suite in a container; probes of other files are put next to the suite's."""

_STDERR_KEPT = 8000
_NO_TENSORFLOW, _NO_PYTHON = 3, 4
"""The exit codes of start.sh if no Python of the image has TensorFlow, and if its Python does not start."""


START = ("/bin/sh", f"{FILES_AT}/{PROBES}/start.sh")
"""The command that runs the suite in a container."""

SUITE_S = 1800.0
"""The time limit of the suite."""


def in_container(
    engine: Engine, spec: ContainerSpec, plan: bytes, session: Session, *, foreign: str = ""
) -> Unfinished | None:
    """Run a plan in a fresh container; return why it did not run to its end, None if it did.

    ``spec`` runs `START`; the suite's files and variables are added to its own. ``foreign`` is the user's name of an
    image that need not have TensorFlow: a missing one, or an image that does not start, is then a wrong argument and
    not a finding. Raises UsageError for it, InfrastructureError if the engine cannot run it.
    """
    files = {f"{PROBES}/{name}": content for name, content in probe_files().items()}
    stderr = bytearray()

    def on_stderr(data: bytes) -> None:
        session.noise(len(data))
        stderr.extend(data[: max(0, _STDERR_KEPT - len(stderr))])

    complete = replace(
        spec,
        env={"HOME": "/tmp", "TF_CPP_MIN_LOG_LEVEL": "0", **spec.env},  # noqa: S108 - inside the container
        files={**files, **spec.files},
        stdin=session.order(plan, spec.time_limit + OWN_END_S),
        overdue=session.overdue,
    )
    ended = engine.run(complete, session.feed, on_stderr)
    if session.stopped is not None:
        return session.stopped
    if foreign and (refused := _refusal(ended)) is not None:
        why, hint = refused
        raise UsageError(f"{foreign}: {why}", hint=hint)
    return _why(ended, stderr.decode(errors="replace"))


def _why(ended: ContainerResult, stderr: str) -> Unfinished | None:
    refused = _refusal(ended)
    if ended.flooded:
        return FLOODED
    if ended.timed_out:
        return Unfinished("not run: the container's time limit was reached", Code.PROBE_TIMEOUT)
    if ended.exit_code == 0 and refused is None:
        return None  # a check that was killed for its memory is a crashed check: the run itself came to its end
    if ended.out_of_memory:
        return Unfinished("not run: the container ran out of memory")
    if refused is not None:
        return Unfinished(f"not run: {refused[0]}")
    if ended.exit_code == _NO_PYTHON:
        return Unfinished(f"not run: the image's Python does not start: {terminal_text.line(stderr[:1000])}")
    return Unfinished(
        f"not run: the runner ended with exit code {ended.exit_code}: {terminal_text.line(stderr[-1000:])}"
    )


def _refusal(ended: ContainerResult) -> tuple[str, str] | None:
    """Return why nothing of the suite ran, and a fix; None if something did."""
    if ended.flooded or ended.timed_out or ended.out_of_memory:
        return None
    if ended.exit_code == _NO_TENSORFLOW:
        return "no Python in it has TensorFlow", "validate an image that brings TensorFlow"
    if ended.refusal:
        return f"the container cannot start: {terminal_text.line(ended.refusal)}", "the image needs /bin/sh"
    return None


def here(
    python: str,
    plan: bytes,
    session: Session,
    *,
    files: Mapping[str, bytes] | None = None,
    time_limit: float = SUITE_S,
) -> Unfinished | None:
    """Run a plan with a Python of this host; return why it did not run to its end, None if it did.

    ``time_limit``, in seconds, bounds the run as for a container; ``files`` are put next to the suite's, by their
    paths. Raises InfrastructureError if that Python cannot be started.
    """
    with temporary_folder("here") as folder:
        probes = folder / PROBES
        probes.mkdir()
        suite = {f"{PROBES}/{name}": content for name, content in probe_files().items()}
        for name, content in {**suite, **(files or {})}.items():
            write_atomically(folder / name, content)
        hint = "give --python"
        code = _followed((python, "-I", "-S", str(probes)), plan, session, time_limit, hint=hint)
    return session.stopped or _unfinished(code)


def _followed(command: Sequence[str], plan: bytes, session: Session, time_limit: float, *, hint: str) -> int | None:
    """Run a program that sends messages to a session; return its exit code, None if it did not end in time.

    Raises InfrastructureError with ``hint`` if it cannot be started.
    """
    try:
        return follow(
            command,
            session.feed,
            time_limit=time_limit,
            stdin=session.order(plan, time_limit + OWN_END_S),
            overdue=session.overdue,
        )
    except OSError as error:
        raise InfrastructureError(f"cannot run {command[0]}: {error.strerror}", hint=hint) from error


def _unfinished(code: int | None) -> Unfinished | None:
    if code is None:
        return Unfinished("not run: the run's time limit was reached", Code.PROBE_TIMEOUT)
    return None if code == 0 else Unfinished(f"not run: the runner ended with exit code {code}")


_POLL_S = 0.2
_REST_S = 1.0
"""How long the output of a process that has ended may still come: another process may keep its pipe open."""


def follow(
    command: Sequence[str],
    on_output: Callable[[bytes], None],
    *,
    time_limit: float,
    stdin: bytes = b"",
    overdue: Callable[[], bool] = lambda: False,
) -> int | None:
    """Run a command, pass on its standard output as it comes, and return its exit code.

    Returns None if it did not end within ``time_limit`` seconds, or was ``overdue``. At the end, its process group and
    all its descendants are killed; also if this process is killed. Raises OSError if it cannot be started.
    """
    deadline = time.monotonic() + time_limit
    with subprocesses.started(
        command, patience=0.0, start_new_session=True, bufsize=0, stdin=subprocesses.PIPE, stdout=subprocesses.PIPE
    ) as process:
        assert process.stdout is not None  # noqa: S101 - requested above
        threading.Thread(target=_give, args=(process, stdin), daemon=True).start()  # it may never read
        with process.stdout as stream:  # closed after the exit code is read: a closed pipe would end the process
            try:
                for data in _output(process, stream, deadline, overdue):
                    on_output(data)
                while process.poll() is None and not overdue() and time.monotonic() < deadline:
                    time.sleep(_POLL_S / 10)
                return process.poll()
            finally:
                _end(process)


def _give(process: subprocesses.Process, data: bytes) -> None:
    assert process.stdin is not None  # noqa: S101 - requested at the start
    with suppress(OSError, ValueError), process.stdin as stream:
        view = memoryview(data)
        while view:
            view = view[os.write(stream.fileno(), view) :]


def _output(
    process: subprocesses.Process, stream: IO[bytes], deadline: float, overdue: Callable[[], bool]
) -> Iterator[bytes]:
    """Yield output until its end, the deadline, the end of the process and a moment more, or until it is overdue."""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        has_ended = False
        while (left := deadline - time.monotonic()) > 0 and not overdue():
            if not has_ended and process.poll() is not None:
                has_ended, deadline = True, min(deadline, time.monotonic() + _REST_S)
            if selector.select(min(left, _POLL_S)):
                data = os.read(stream.fileno(), 1 << 16)
                if not data:
                    return
                yield data


def _end(process: subprocesses.Process) -> None:
    """Kill a process, its group, and descendants in other sessions: every check has a session of its own."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGSTOP)  # so that it starts nothing more meanwhile
        for pid in descendants(process.pid):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
