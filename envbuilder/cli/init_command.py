"""``envbuilder init``: write a matrix for a host, and files for CI and containers."""

import shlex
import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from envbuilder.cli.options import declared

_QUESTIONS = {
    "gpus": "GPU",
    "driver": "Driver",
    "tensorflow": "TensorFlow",
    "python": "Python",
    "os": "System",
    "packages": "Packages",
}


def _asked(values: dict[str, Any]) -> dict[str, Any]:
    """Ask for the values if no option is given and a person can answer."""
    context = click.get_current_context()
    options = (one.name or "" for one in command.params if isinstance(one, click.Option))
    if ParameterSource.COMMANDLINE in map(context.get_parameter_source, options) or not sys.stdin.isatty():
        return values
    click.echo("Press Enter to use this host, or the newest that works.", err=True)
    answers = {name: click.prompt(text, "", show_default=False, err=True) for name, text in _QUESTIONS.items()}
    found = {**values, **{name: answer for name, answer in answers.items() if answer}}
    return {**found, "gpus": tuple(filter(None, [answers["gpus"]])), "packages": tuple(answers["packages"].split())}


@declared("init")
def command(folder: Path | None, **values: Any) -> None:  # noqa: ANN401 - click's
    from envbuilder.catalog.store import load
    from envbuilder.compat.question import QuestionOptions, question
    from envbuilder.jobs.project import InitOptions, init

    values = _asked(values)
    more = {name: values.pop(name) for name in ("flavor", "variant", "packages", "forms")}
    options = InitOptions(question=question(QuestionOptions(**values)), **more)
    for path in init(folder or Path(), options, load()):
        click.echo(f"written: {path}")
    where = f"cd {shlex.quote(str(folder))} && " if folder and folder.resolve() != Path.cwd() else ""
    click.echo(f"next: {where}envbuilder run")
