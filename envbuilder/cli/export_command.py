"""``envbuilder export``: verdicts for other tools."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from envbuilder.cli.options import FilePath, moment, select_option


@click.command("export")
@click.argument("form", type=click.Choice(["junit", "markdown", "prometheus"]), metavar="FORMAT")
@click.argument("files", nargs=-1, type=FilePath(path_type=Path, dir_okay=False), metavar="[VERDICT.json]…")
@select_option
@click.option("--store", type=FilePath(path_type=Path, dir_okay=False), help="Take verdicts from this history.")
@click.option("--since", metavar="TIME", help="Take verdicts from the history, since a date or an age (30d).")
@click.option("-o", "--output", type=FilePath(path_type=Path, dir_okay=False), help="Write to this file.")
def command(
    form: str,
    files: tuple[Path, ...],
    selectors: tuple[str, ...],
    store: Path | None,
    since: str | None,
    output: Path | None,
) -> None:
    from envbuilder.report.export import export_verdicts
    from envbuilder.workspace import Workspace, write_atomically

    workspace = Workspace(Path.cwd())
    start = moment(since, datetime.now(UTC)) if since else None
    text = export_verdicts(form, workspace, files, store, start, selectors)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_atomically(output, text.encode())
