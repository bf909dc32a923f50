"""Run the suite in a closed container, or in a process of this host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from envbuilder.engine.port import FILES_AT, OWN_END_S, ContainerResult, ContainerSpec, Engine
from envbuilder.errors import InfrastructureError, UsageError
from envbuilder.finding import Code
from envbuilder.support import decoding, subprocesses, terminal_text
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
    stderr = bytearray()
    complete = replace(
        spec,
        env={"HOME": "/tmp", "TF_CPP_MIN_LOG_LEVEL": "0", **spec.env},  # noqa: S108 - inside the container
        files={**_suite(), **spec.files},
        stdin=session.order(plan, spec.time_limit + OWN_END_S),
        overdue=session.overdue,
    )
    ended = engine.run(complete, session.feed, lambda data: stderr.extend(data[: max(0, _STDERR_KEPT - len(stderr))]))
    if session.stopped is not None or ended.flooded:
        return session.stopped or FLOODED
    if ended.timed_out:
        return Unfinished("not run: the container's time limit was reached", Code.PROBE_TIMEOUT)
    why, hint = _why(ended, decoding.lossy(bytes(stderr)))
    if foreign and hint:
        raise UsageError(f"{foreign}: {why}", hint=hint)
    return Unfinished(f"not run: {why}") if why else None


def _suite() -> dict[str, bytes]:
    return {f"{PROBES}/{name}": content for name, content in probe_files().items()}


def _why(ended: ContainerResult, stderr: str) -> tuple[str, str]:
    """Return why a run did not come to its end, '' if it did, and a fix if the suite did not begin."""
    if ended.out_of_memory:  # a check that was killed for its memory is a crashed check: then the run came to its end
        return "the container ran out of memory" if ended.exit_code else "", ""
    if ended.exit_code == _NO_TENSORFLOW:
        return "no Python in it has TensorFlow", "validate an image that brings TensorFlow"
    if ended.refusal:
        return f"the container cannot start: {terminal_text.line(ended.refusal)}", "the image needs /bin/sh"
    if ended.exit_code == _NO_PYTHON:
        return f"the image's Python does not start: {terminal_text.line(stderr[:1000])}", ""
    code = ended.exit_code
    return f"the runner ended with exit code {code}: {terminal_text.line(stderr[-1000:])}" if code else "", ""


def here(
    python: str, plan: bytes, session: Session, *, files: Mapping[str, bytes] | None = None, time_limit: float = SUITE_S
) -> Unfinished | None:
    """Run a plan with a Python of this host; return why it did not run to its end, None if it did.

    ``time_limit``, in seconds, bounds the run as for a container; ``files`` are put next to the suite's, by their
    paths. Raises InfrastructureError if that Python cannot be started.
    """
    with temporary_folder("here") as folder:
        (folder / PROBES).mkdir()
        for name, content in {**_suite(), **(files or {})}.items():
            write_atomically(folder / name, content)
        try:
            code = subprocesses.follow(
                (python, "-I", "-S", str(folder / PROBES)),
                session.feed,
                within=time_limit,
                stdin=session.order(plan, time_limit + OWN_END_S),
                overdue=session.overdue,
                group=True,
                patience=0.0,
            )
        except OSError as error:
            raise InfrastructureError(f"cannot run {python}: {error.strerror}", hint="give --python") from error
    if session.stopped is not None or code == 0:
        return session.stopped
    if code is None:
        return Unfinished("not run: the run's time limit was reached", Code.PROBE_TIMEOUT)
    return Unfinished(f"not run: the runner ended with exit code {code}")
