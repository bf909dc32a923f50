"""``envbuilder capture``: describe an environment for a report."""

import shlex
from pathlib import Path

from envbuilder.cli.options import declared
from envbuilder.errors import InfrastructureError, UsageError
from envbuilder.support import decoding, subprocesses
from envbuilder.workspace import packaged

PROBE = "probes/capture.py"


@declared("capture")
def command(python: str, output: Path | None, *, script: bool) -> None:
    from envbuilder.cli.output import write_output

    text = decoding.text(packaged(PROBE)) if script else capture(python)
    write_output(text, output)


_HINT = "--python takes a Python, or a command that starts one"


def words_of(python: str) -> list[str]:
    """Return the words of a command, or a path as one word. Raises UsageError for a quote without its end."""
    try:
        words = [python] if Path(python).exists() else shlex.split(python)
    except ValueError as error:
        raise UsageError(f"--python {python}: {str(error).lower()}", hint=_HINT) from error
    if not words:
        raise UsageError("--python names no program", hint=_HINT)
    return words


def capture(python: str) -> str:
    """Run the script by a Python, or by a command that starts one: ``docker run --rm -i IMAGE python``."""
    try:
        done = subprocesses.run([*words_of(python), "-"], within=600, stdin=packaged(PROBE))
    except subprocesses.ProgramError as error:
        raise InfrastructureError(error.message, hint=_HINT) from error
    if done.code:
        raise InfrastructureError(
            f"{python} could not run it:\n{done.error_text.strip()[-2000:]}", hint="needs Python 3.6"
        )
    return done.text
