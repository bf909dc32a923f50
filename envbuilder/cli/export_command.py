"""``envbuilder export``: verdicts and build plans for other tools."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from envbuilder.cli.options import select_option


@click.command("export")
@click.argument("form", type=click.Choice(["junit", "sarif", "markdown", "openmetrics", "bake"]), metavar="FORMAT")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, dir_okay=False), metavar="[VERDICT.json]…")
@select_option
@click.option("--store", type=click.Path(path_type=Path, dir_okay=False), help="Take verdicts from this history.")
@click.option("--since", metavar="TIME", help="Take verdicts from the history, since a date or an age (30d).")
@click.option("--matrix", help="For bake: the matrix whose environments are built.")
@click.option("--to", metavar="HOST/REPOSITORY", help="For bake: where the images go.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="A file instead of the output.")
def command(  # noqa: PLR0913, PLR0917 - one parameter an option
    form: str,
    files: tuple[Path, ...],
    selectors: tuple[str, ...],
    store: Path | None,
    since: str | None,
    matrix: str | None,
    to: str | None,
    output: Path | None,
) -> None:
    r"""Write verdicts as FORMAT: junit, sarif, markdown or openmetrics; or a build plan as bake.

    \b
    Examples:
      envbuilder export junit -o junit.xml
      envbuilder export markdown >> "$GITHUB_STEP_SUMMARY"
      envbuilder export sarif out/*/verdict.json -o envbuilder.sarif
      envbuilder export openmetrics --store /shared/history.sqlite3 -o /var/lib/node_exporter/envbuilder.prom
      envbuilder export bake --to registry.example.org/ml/tensorflow -o docker-bake.json
    """
    from envbuilder.catalog.store import load
    from envbuilder.report.export import Source, export_bake, export_verdicts
    from envbuilder.validation.history import moment
    from envbuilder.workspace import Workspace, write_atomically

    workspace = Workspace(Path.cwd())
    if form == "bake":
        text = export_bake(matrix, selectors, to, workspace, load())
    else:
        start = moment(since, datetime.now(UTC)) if since else None
        text = export_verdicts(form, Source(files, store, start), selectors, workspace)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_atomically(output, text.encode())
