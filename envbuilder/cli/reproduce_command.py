"""``envbuilder reproduce``: from a user's report to the environment, the cause and the fix."""

from __future__ import annotations

from pathlib import Path

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
    from envbuilder.catalog.store import load
    from envbuilder.cli.output import finish
    from envbuilder.reproduce.render import as_markdown, as_text
    from envbuilder.reproduce.reproduce_request import ReproduceOptions, reproduce_report
    from envbuilder.support.console import Console
    from envbuilder.workspace import Workspace

    options = ReproduceOptions(report, dry_run=dry_run, prove=prove)
    finish(reproduce_report(options, Workspace(Path.cwd()), Console(), load()), form, as_text, as_markdown)
