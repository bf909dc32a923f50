"""``envbuilder reproduce``: from a user's report to the environment, the cause and the fix."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import click


@click.command("reproduce")
@click.argument("report", metavar="REPORT|-", default="-")
@click.option("--dry-run", is_flag=True, help="Stop before anything is built.")
@click.option("--prove", is_flag=True, help="Build and validate the nearest environment too.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "markdown"]),
    default="table",
    show_default=True,
    help="table for people, json for scripts, markdown for a reply to post.",
)
def command(report: str, *, dry_run: bool, prove: bool, form: str) -> None:
    r"""Say what a reporter had, why it fails, and what works instead; rebuild it and show that.

    REPORT is a pasted issue, a log or the output of `envbuilder capture`; - reads standard input. Exits 0 where it
    was reproduced (or, with --dry-run, explained), 1 where something else came of it, 8 where it cannot be known
    here.

    \b
    Examples:
      envbuilder reproduce issue.txt --dry-run           cause and fix, without an engine
      envbuilder reproduce issue.txt --prove             the same message from the real TensorFlow, and the way out
      envbuilder reproduce - --format markdown < log     a comment to post
    """
    from envbuilder.console import Console
    from envbuilder.reproduce.reproduce import Options
    from envbuilder.reproduce.reproduce_request import Form, Words, answer, told
    from envbuilder.workspace import Workspace

    words = Words(report, Options(dry_run=dry_run, prove=prove))
    document = answer(words, Workspace(Path.cwd()), Console())
    click.echo(told(document, cast("Form", form)))
    raise click.exceptions.Exit(document.exit_code)
