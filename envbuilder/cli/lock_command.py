"""``envbuilder lock``: pin every package of an environment with its hash."""

from typing import Any

import click

from envbuilder.cli.options import console_of, declared


@declared("lock")
def command(matrices: tuple[str, ...], selectors: tuple[str, ...], *, refresh: bool, **values: Any) -> None:  # noqa: ANN401 - click's values
    from envbuilder.catalog.store import load
    from envbuilder.choice import choose_all
    from envbuilder.jobs.prepare import prepare_all
    from envbuilder.workspace import Workspace

    console, workspace = console_of(values), Workspace.here(*matrices)
    choices = choose_all(matrices, selectors, workspace.root, load())
    with console.live(tuple(dict.fromkeys(one.id for choice in choices for one in choice.environments))):
        changed, same = prepare_all(choices, workspace, console, renew=True, refresh=refresh)
    click.echo(f"{changed} {'lock' if changed == 1 else 'locks'} changed, {same} unchanged")
