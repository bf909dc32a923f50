"""Run the probes: in a closed container, or in a process of this host where there is no container."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from envbuilder.engine.port import FILES_AT, OWN_END_S, ContainerSpec, Ended, Engine
from envbuilder.errors import InfrastructureError, UsageError
from envbuilder.finding import Code
from envbuilder.support import terminal_text
from envbuilder.validation.events import FLOODED, Session, Unfinished
from envbuilder.validation.process import follow
from envbuilder.validation.suite_plan import probe_files
from envbuilder.workspace import temporary_folder, write_atomically, writing

PROBES = "probes"
"""The suite's folder there; a probe that is no part of the suite is put beside the suite's own."""
_STDERR_KEPT = 8000


@dataclass(frozen=True)
class Place:
    """How to run in a container: which image, with which GPUs, files and variables, within how many seconds.

    ``called`` is what the user calls the image. ``is_known`` says that TensorFlow is meant to be in it: where it is
    not, or the image does not start, that is a finding and no mistake of the user's.
    """

    image: str
    called: str = ""
    is_known: bool = False
    gpus: str = "none"
    env: Mapping[str, str] | None = None
    files: Mapping[str, bytes] | None = None
    time_limit: float = 1800.0


def in_container(engine: Engine, place: Place, plan: bytes, session: Session) -> Unfinished | None:
    """Run a plan in a fresh container; return None where it ran to its end, else why it did not.

    Raises InfrastructureError where the engine cannot run it, UsageError where an image that is not known has no
    TensorFlow, or cannot start.
    """
    files = {f"{PROBES}/{name}": content for name, content in probe_files().items()}
    stderr = bytearray()

    def on_stderr(data: bytes) -> None:
        session.noise(len(data))
        stderr.extend(data[: max(0, _STDERR_KEPT - len(stderr))])

    spec = ContainerSpec(
        image=place.image,
        command=("/bin/sh", f"{FILES_AT}/{PROBES}/start.sh"),
        env={"HOME": "/tmp", "TF_CPP_MIN_LOG_LEVEL": "0", **(place.env or {})},  # noqa: S108 - inside the container
        files={**files, **(place.files or {})},
        gpus=place.gpus,
        time_limit=place.time_limit,
        stdin=session.order(plan, place.time_limit + OWN_END_S),
        overdue=session.overdue,
    )
    ended = engine.run(spec, session.feed, on_stderr)
    return session.stopped or _why(place, ended, stderr.decode(errors="replace"))


_NO_TENSORFLOW = 3
"""The exit code by which start.sh says that no Python of the image has TensorFlow."""

_NO_PYTHON = 4
"""The exit code by which start.sh says that the image's Python does not start."""


def _why(place: Place, ended: Ended, stderr: str) -> Unfinished | None:
    called = place.called or place.image
    refused = _refusal(ended)
    if refused is not None and not place.is_known:
        why, hint = refused
        raise UsageError(f"{called}: {why}", hint=hint)
    reasons = (
        (ended.flooded, FLOODED),
        (ended.timed_out, Unfinished("not run: the container's time limit was reached", Code.PROBE_TIMEOUT)),
        # A check that was killed for its memory is told as a check that died; the run itself has come to its end.
        (ended.out_of_memory and ended.exit_code != 0, Unfinished("not run: the container ran out of memory")),
        (refused is not None, Unfinished(f"not run: {refused[0] if refused else ''}")),
        (
            ended.exit_code == _NO_PYTHON,
            Unfinished(f"not run: the image's Python does not start: {terminal_text.line(stderr[:1000])}"),
        ),
        (
            ended.exit_code != 0,
            Unfinished(
                f"not run: the runner ended with exit code {ended.exit_code}: {terminal_text.line(stderr[-1000:])}"
            ),
        ),
    )
    return next((why for holds, why in reasons if holds), None)


def _refusal(ended: Ended) -> tuple[str, str] | None:
    """Say why nothing of the suite ran at all, and what mends it; None where something did."""
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
    time_limit: float = 1800.0,
) -> Unfinished | None:
    """Run a plan with a Python of this host; return None where it ran to its end, else why it did not.

    ``time_limit``, in seconds, bounds the whole run as a container's does; ``files`` are put beside the suite's, by
    their paths. Raises InfrastructureError where that Python cannot be started.
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
    """Run a program of this host that answers a session; its exit code, None where it did not end in time.

    Raises InfrastructureError with ``hint`` where it cannot be started.
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


PIPES = ("go", "order", "said", "errors", "ended")
"""What the container beside this one speaks through: a word that it is to run, the runner's streams, its exit code."""

_TALK = """\
cd "$1" || exit 9
echo run >go
exec 3<&0
cat <&3 >order &
cat errors >&2 &
cat said
wait
read -r code <ended
exit "$code"
"""


def lay_out(exchange: Path) -> None:
    """Put the probes and the pipes into a folder that another container shares, once. The first pipe comes last.

    Raises InfrastructureError where the folder cannot be written.
    """
    if (exchange / PIPES[0]).exists():
        return
    with writing(exchange):
        for name, content in probe_files().items():
            write_atomically(exchange / PROBES / name, content)
        for name in reversed(PIPES):
            os.mkfifo(exchange / name, 0o660)


def beside(exchange: Path, plan: bytes, session: Session, *, time_limit: float = 1800.0) -> Unfinished | None:
    """Run a plan in the container that shares a folder with this one; None where it ran to its end, else why not.

    ``time_limit``, in seconds, bounds the whole run. What is there runs `start.sh` whenever it is told to, and closes.
    """
    command = ("/bin/sh", "-c", _TALK, "sh", str(exchange))
    code = _followed(command, plan, session, time_limit, hint="the judge's image needs it")
    if code == _NO_TENSORFLOW and not session.stopped:
        raise UsageError("no Python in the image has TensorFlow", hint="validate an image that brings TensorFlow")
    return session.stopped or _unfinished(code)


_OVER = "over"
_WAKE_S, _PAUSE_S = 2.0, 0.1


def close(exchange: Path) -> None:
    """Tell the container beside this one that it is over, whether it waits for a word, or has not begun to yet.

    Raises InfrastructureError where the folder cannot be written.
    """
    write_atomically(exchange / _OVER, b"")
    until = time.monotonic() + _WAKE_S
    while time.monotonic() < until:
        with suppress(OSError):  # nobody reads: it has ended, or will look before it waits
            with os.fdopen(os.open(exchange / PIPES[0], os.O_WRONLY | os.O_NONBLOCK), "wb") as stream:
                stream.write(b"end\n")
            return
        time.sleep(_PAUSE_S)
