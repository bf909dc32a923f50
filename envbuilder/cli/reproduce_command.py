"""``envbuilder reproduce``: find the environment, the cause and the fix of a user's report."""

from __future__ import annotations

import click


@click.command("reproduce")
@click.argument("report", metavar="REPORT|-", default="-")
@click.option("--dry-run", is_flag=True, help="Stop before anything is built.")
@click.option("--prove", is_flag=True, help="Build and validate the closest compatible environment too.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "markdown"]),
    default="table",
    show_default=True,
    help="Print a table for people, JSON for scripts or Markdown for a reply.",
)
def command(report: str, *, dry_run: bool, prove: bool, form: str) -> None:
    from envbuilder.catalog.store import load
    from envbuilder.cli.output import finish
    from envbuilder.reproduce.job import reproduce_report
    from envbuilder.reproduce.render import as_markdown, as_text
    from envbuilder.support.console import Console
    from envbuilder.workspace import Workspace

    document = reproduce_report(report, Workspace.here(), Console(), load(), dry_run=dry_run, prove=prove)
    finish(document, form, as_text, as_markdown)
