"""``envbuilder run``: from a matrix to verdicts."""

from __future__ import annotations

from typing import Any

import click

from envbuilder.cli.options import (
    allow_option,
    cache_option,
    console_of,
    format_option,
    gpus_option,
    jobs_option,
    matrix_argument,
    profile_option,
    progress_options,
    pull_option,
    read_options,
    repository_option,
    select_option,
)


@click.command("run")
@matrix_argument
@select_option
@repository_option
@format_option
@jobs_option
@profile_option
@gpus_option
@pull_option
@cache_option
@allow_option
@progress_options
@click.option(
    "--fresh", is_flag=True, help="Validate again even if nothing changed, and read the files of a known image."
)
def command(form: str, *, allow: tuple[str, ...], **values: Any) -> None:  # noqa: ANN401 - click's values
    from envbuilder.catalog.store import load
    from envbuilder.choice import choose
    from envbuilder.cli.output import finish
    from envbuilder.engine.docker import connect
    from envbuilder.jobs.run import RunOptions, run, run_text
    from envbuilder.pypi.client import open_index
    from envbuilder.workspace import Workspace

    workspace, console = Workspace.here(values["matrix"]), console_of(values)
    choice = choose(values["matrix"], values["selectors"], workspace, load())
    document = run(choice, workspace, connect(), console, read_options(RunOptions, values), open_index())
    for row in document.rows if form == "table" else ():
        for reason in row.reasons:
            click.echo(f"{row.environment}: {reason}", err=True)
    finish(document, form, run_text, allow=allow)
