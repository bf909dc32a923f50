"""``envbuilder render``: write the build contexts, or check that they are up to date."""

from __future__ import annotations

from pathlib import Path

import click

from envbuilder.cli.options import select_option


@click.command("render")
@click.argument("matrices", nargs=-1, metavar="[MATRIX]...")
@select_option
@click.option("--check", is_flag=True, help="Write nothing; exit 1 with a diff if images/ is out of date.")
def command(matrices: tuple[str, ...], selectors: tuple[str, ...], *, check: bool) -> None:
    r"""Write images/ID/ for the selected environments: a complete build context each.

    \b
    Examples:
      envbuilder render                    the vetted matrices
      envbuilder render --check            in CI: check the committed contexts
      envbuilder render my.yaml -s 'tf2.20*'
    """
    from envbuilder.catalog.store import load
    from envbuilder.choice import choose_all
    from envbuilder.jobs.prepare import prepare_all, stale_all
    from envbuilder.support.console import Console
    from envbuilder.workspace import Workspace

    choices = choose_all(matrices, selectors, Path.cwd(), load())
    workspace = Workspace(Path.cwd())
    if not check:
        count = prepare_all(choices, workspace, Console())
        click.echo(f"{count} build contexts are current in {workspace.images}")
        return
    differences = stale_all(choices, workspace, whole=not matrices and not selectors)
    for difference in differences:
        click.echo(difference.diff, nl=False)
    if differences:
        click.echo(f"stale: {len(differences)} files; run `envbuilder render`", err=True)
        raise click.exceptions.Exit(1)
    click.echo(f"{sum(len(choice.environments) for choice in choices)} build contexts are current")
