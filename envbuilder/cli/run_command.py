"""``envbuilder run``: the main job, from a matrix to verdicts."""

from __future__ import annotations

from pathlib import Path

import click

from envbuilder.cli.options import (
    format_option,
    gpus_option,
    jobs_option,
    matrix_argument,
    profile_option,
    pull_option,
    select_option,
)


@click.command("run")
@matrix_argument
@select_option
@format_option
@jobs_option
@profile_option
@gpus_option
@pull_option
@click.option("--fresh", is_flag=True, help="Validate again even where nothing changed.")
def command(
    matrix: str | None,
    selectors: tuple[str, ...],
    form: str,
    jobs: int,
    profile: str,
    gpus: str,
    pull: bool,  # noqa: FBT001
    fresh: bool,  # noqa: FBT001
) -> None:
    r"""Plan, lock, render, build, validate and judge every selected environment; a table at the end.

    MATRIX is a file, or the name of one that ships (default: quickstart). An interrupted run goes on where it
    stopped; what is unchanged is not redone.

    \b
    Examples:
      envbuilder run
      envbuilder run matrices/tensorflow.yaml -s 'tf2.20.0-py311-*'
      envbuilder run tensorflow -s flavor=cpu -j 4 --format json
    """
    from envbuilder.catalog.store import load
    from envbuilder.choice import choose
    from envbuilder.cli.output import finish
    from envbuilder.engine.docker import connect
    from envbuilder.jobs.run import RunOptions, run
    from envbuilder.jobs.run_text import run_text
    from envbuilder.pypi.open_index import open_index
    from envbuilder.support.console import Console
    from envbuilder.workspace import Workspace

    workspace, console = Workspace(Path.cwd()), Console()
    choice = choose(matrix, selectors, workspace, load())
    options = RunOptions(
        jobs=jobs,
        profile="full" if profile == "full" else "quick",
        gpus=gpus,
        fresh=fresh,
        pull=pull,
        index=open_index(),
    )
    document = run(choice, workspace, connect(), console, options)
    for row in document.rows if form == "table" else ():
        for reason in row.reasons:
            click.echo(f"{row.environment}: {reason}", err=True)
    finish(document, form, run_text)
