"""Run the probes: in a closed container, or in a process of this host where there is no container."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from envbuilder.engine.port import FILES_AT, OWN_END_S, ContainerSpec, Ended, Engine
from envbuilder.errors import InfrastructureError, UsageError, printable
from envbuilder.finding import Code
from envbuilder.validation.checks.suite_plan import probe_files
from envbuilder.validation.events import FLOODED, Session, Unfinished
from envbuilder.validation.process import follow
from envbuilder.workspace import write_atomically

PROBES = "probes"
"""The suite's folder there; a probe that is no part of the suite is put beside the suite's own."""
_STDERR_KEPT = 8000


@dataclass(frozen=True)
class Place:
    """How to run in a container: which image, with which GPUs, files and variables, within how many seconds."""

    image: str
    gpus: str = "none"
    env: Mapping[str, str] | None = None
    files: Mapping[str, bytes] | None = None
    time_limit: float = 1800.0


def in_container(engine: Engine, place: Place, plan: bytes, session: Session) -> Unfinished | None:
    """Run a plan in a fresh container; return None where it ran to its end, else why it did not.

    Raises InfrastructureError where the engine cannot run it, UsageError where the image has no TensorFlow.
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
    return session.stopped or _why(place.image, ended, stderr.decode(errors="replace"))


_NO_TENSORFLOW = 3
"""The exit code by which start.sh says that no Python of the image has TensorFlow."""

_NO_PYTHON = 4
"""The exit code by which start.sh says that the image's Python does not start."""

_TIME_IS_UP = Unfinished("not run: the run's time limit was reached", Code.PROBE_TIMEOUT)


def _why(image: str, ended: Ended, stderr: str) -> Unfinished | None:
    said = printable.line(stderr[-1000:])
    if ended.flooded:
        return FLOODED
    if ended.timed_out:
        return Unfinished("not run: the container's time limit was reached", Code.PROBE_TIMEOUT)
    if ended.out_of_memory:
        return Unfinished("not run: the container ran out of memory")
    if ended.exit_code == _NO_TENSORFLOW:
        raise UsageError(f"{image}: no Python in it has TensorFlow", hint="validate an image that brings TensorFlow")
    if ended.exit_code == _NO_PYTHON:
        return Unfinished(f"not run: the image's Python does not start: {printable.line(stderr[:1000])}")
    if ended.refusal:
        why = printable.line(ended.refusal)
        raise UsageError(f"{image}: the container cannot start: {why}", hint="the image needs /bin/sh")
    if ended.exit_code == 0:
        return None
    return Unfinished(f"not run: the runner ended with exit code {ended.exit_code}: {said}")


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
    with tempfile.TemporaryDirectory(prefix="envbuilder-") as folder:
        probes = Path(folder) / PROBES
        probes.mkdir()
        suite = {f"{PROBES}/{name}": content for name, content in probe_files().items()}
        for name, content in {**suite, **(files or {})}.items():
            write_atomically(Path(folder) / name, content)
        command = [python, "-I", "-S", str(probes)]
        try:
            code = follow(
                command,
                session.feed,
                time_limit=time_limit,
                stdin=session.order(plan, time_limit + OWN_END_S),
                overdue=session.overdue,
            )
        except OSError as error:
            raise InfrastructureError(f"cannot run {python}: {error.strerror}", hint="give --python") from error
    if session.stopped or code is None:
        return session.stopped or _TIME_IS_UP
    return None if code == 0 else Unfinished(f"not run: the runner ended with exit code {code}")
