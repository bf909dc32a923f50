"""``envbuilder capture``: describe an environment for a report."""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path

import click

from envbuilder.cli.options import FilePath
from envbuilder.errors import InfrastructureError
from envbuilder.support import decoding, subprocesses
from envbuilder.workspace import packaged, write_atomically

PROBE = "probes/capture.py"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--python", default=sys.executable, help="Python with the TensorFlow to describe (default: this one).")
@click.option("--output", type=FilePath(path_type=Path, dir_okay=False), help="Write to this file.")
@click.option("--script", is_flag=True, help="Print the script, to run on hosts without envbuilder.")
def command(python: str, output: Path | None, *, script: bool) -> None:
    with resources.as_file(resources.files("envbuilder") / PROBE) as path:
        text = decoding.text(packaged(path)) if script else _run(python, path)
    if output is None:
        click.echo(text, nl=not text.endswith("\n"))
    else:
        write_atomically(output, text.encode())


def _run(python: str, path: Path) -> str:
    try:
        done = subprocesses.run([python, str(path)], within=600)
    except subprocesses.ProgramError as error:
        raise InfrastructureError(error.message, hint="--python takes the path of a Python") from error
    if done.code:
        raise InfrastructureError(
            f"{python} could not run it:\n{done.error_text.strip()[-2000:]}", hint="needs Python 3.6"
        )
    return done.text
