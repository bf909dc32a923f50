"""``envbuilder explain``: explain a finding code or an environment."""

from __future__ import annotations

from pathlib import Path

import click

from envbuilder.cli.options import complete_code, format_option


@click.command("explain")
@click.argument("name", metavar="CODE|ENV-ID", shell_complete=complete_code)
@click.option(
    "--matrix", metavar="MATRIX", help="Matrix of the environment (default: the project's and the shipped ones)."
)
@format_option
def command(name: str, matrix: str | None, form: str) -> None:
    from envbuilder.catalog.store import load
    from envbuilder.cli.output import finish
    from envbuilder.jobs.explain import as_text, explain

    finish(explain(name, matrix, Path.cwd(), load()), form, as_text)
