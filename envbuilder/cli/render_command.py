"""``envbuilder render``: write images/, check that it is up to date, or write one self-contained folder."""

from pathlib import Path

import click

from envbuilder.cli.options import declared


@declared("render")
def command(matrices: tuple[str, ...], selectors: tuple[str, ...], *, check: bool, standalone: Path | None) -> None:
    from envbuilder.catalog.store import load
    from envbuilder.choice import choose_all
    from envbuilder.jobs.prepare import prepare_all, stale_all, write_standalone
    from envbuilder.support.console import Console
    from envbuilder.workspace import Workspace

    if standalone is not None and len(matrices) == 1 and not selectors:
        matrices, selectors = (), matrices
    workspace = Workspace.here(*matrices)
    choices = choose_all(matrices, selectors, workspace.root, load())
    if standalone is not None:
        name = write_standalone(choices, workspace, standalone)
        click.echo(f"{standalone} builds {name}: docker build --build-arg BASE=IMAGE {standalone}")
        return
    if not check:
        click.echo(
            f"{sum(prepare_all(choices, workspace, Console()))} build contexts are current in {workspace.images}"
        )
        return
    differences = stale_all(choices, workspace, whole=not matrices and not selectors)
    for difference in differences:
        click.echo(difference.diff, nl=False)
    if differences:
        click.echo(f"stale: {len(differences)} files; run `{workspace.command('render', *selectors)}`", err=True)
        raise click.exceptions.Exit(1)
    click.echo(f"{sum(len(choice.environments) for choice in choices)} build contexts are current")
