"""``envbuilder controls``: prove that the validation suite finds what it is there to find."""

from __future__ import annotations

from pathlib import Path

import click

from envbuilder.cli.options import format_option, profile_option


@click.command("controls")
@click.argument("names", nargs=-1, metavar="[CONTROL]...")
@click.option("--list", "listed", is_flag=True, help="Only list the controls and what each must lead to.")
@profile_option
@format_option
def command(names: tuple[str, ...], listed: bool, profile: str, form: str) -> None:  # noqa: FBT001
    r"""Break good environments on purpose, for real, and demand that each fails with exactly its own finding.

    Exit code 1 where one passes, fails for another reason, or has anything else red beside it. The good
    environments are among the controls: nothing may be red in them.

    \b
    Examples:
      envbuilder controls
      envbuilder controls older-cudnn two-cuda-stacks
      envbuilder controls --list
    """
    from typing import cast

    from envbuilder.console import Console, table
    from envbuilder.controls.control_run import Controller, table_rows
    from envbuilder.controls.table import named
    from envbuilder.engine.docker import connect
    from envbuilder.pypi.open_index import open_index
    from envbuilder.schemas import as_json
    from envbuilder.validation.checks.specification import Profile
    from envbuilder.workspace import Workspace

    controls = named(names)
    if listed:
        rows = [(one.name, one.base, one.code or "nothing red", one.broken) for one in controls]
        click.echo(table(("control", "of", "must find", "broken"), rows))
        return
    controller = Controller(Workspace(Path.cwd()), connect(), open_index(), Console(), cast("Profile", profile))
    document = controller.run(controls)
    if form == "json":
        click.echo(as_json(document))
    else:
        click.echo(table(("control", "must find", "found", "verdict", "time", ""), table_rows(document)))
    raise click.exceptions.Exit(document.exit_code)
