"""``envbuilder report``: the verdicts as a page."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click

from envbuilder.cli.options import FilePath


@click.command("report")
@click.argument("matrices", nargs=-1, metavar="[MATRIX]…")
@click.option(
    "-o", "--output", type=FilePath(path_type=Path, file_okay=False), default=Path("out/report"), show_default=True
)
@click.option("--store", type=FilePath(path_type=Path, dir_okay=False), help="The history (out/history.sqlite3).")
@click.option("--since", metavar="TIME", help="Only verdicts since a date (2026-11-20) or an age (30d).")
@click.option("--from", "repository", metavar="HOST/REPOSITORY", help="Add the verdicts that are published there.")
@click.option("--key", "keys", multiple=True, type=FilePath(path_type=Path), help="For --from: a trusted public key.")
@click.option(
    "--on", metavar="KINDS", help="With --from: how each image stands on kinds of host, 'H100/535, A100/550'."
)
@click.option(
    "--max-age", default="90d", show_default=True, metavar="AGE", help="With --on: how old a PASSED may be: 90d, 12h."
)
def command(
    matrices: tuple[str, ...],
    output: Path,
    store: Path | None,
    since: str | None,
    repository: str | None,
    keys: tuple[Path, ...],
    on: str | None,
    max_age: str,
) -> None:
    r"""Write every verdict as one page that opens from a file, with no network.

    The page shows the matrices (default: those that ship) as a grid, each environment's start-up, layers, checks,
    findings and history, the negative controls and the upgrade comparisons. Verdicts in out/ are added to the
    history, in which nothing is ever overwritten; several people may share one with --store, or the registry that
    they publish to with --from.

    \b
    Examples:
      envbuilder report
      envbuilder report tensorflow --since 30d -o public
      envbuilder report --store /shared/envbuilder/history.sqlite3
      envbuilder report --from registry.example.org/ml/tensorflow --key envbuilder.pub
      envbuilder report --from registry.example.org/ml/tensorflow --key envbuilder.pub --on 'H100/535, A100/550'
    """
    from envbuilder.catalog.store import load
    from envbuilder.choice import VETTED
    from envbuilder.errors import UsageError
    from envbuilder.publish.verify_request import fetch, standings
    from envbuilder.report.page import write
    from envbuilder.report.report_data import collect
    from envbuilder.support.console import Console
    from envbuilder.validation.verdict_store import History, moment
    from envbuilder.workspace import Workspace

    now = datetime.now(UTC)
    start = moment(since, now) if since else None
    workspace = Workspace(Path.cwd())
    catalog = load()
    if on is not None and repository is None:
        raise UsageError("--on is asked of a registry", hint="say which with --from HOST/REPOSITORY")
    found = fetch(repository, keys, Console().say) if repository is not None else None
    if found is not None:
        History(store or workspace.history).add(found.verdicts)
    material = collect(workspace, matrices or VETTED, store, start, catalog)
    if found is not None:
        material = replace(material, standings=standings(found, on, max_age, catalog.gpu_model))
    click.echo(write(material, output, now))
