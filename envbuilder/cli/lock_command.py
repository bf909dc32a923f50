"""``envbuilder lock``: pin every package of an environment with its hash."""

from __future__ import annotations

from pathlib import Path

import click

from envbuilder.cli.options import select_option


@click.command("lock")
@click.argument("matrices", nargs=-1, metavar="[MATRIX]...")
@select_option
def command(matrices: tuple[str, ...], selectors: tuple[str, ...]) -> None:
    from envbuilder.catalog.store import load
    from envbuilder.choice import choose_all
    from envbuilder.jobs.prepare import relock
    from envbuilder.support.console import Console
    from envbuilder.workspace import Workspace

    choices = choose_all(matrices, selectors, Path.cwd(), load())
    changed = relock(choices, Workspace(Path.cwd()), Console())
    click.echo(f"{changed.changed} locks changed, {changed.same} unchanged")
