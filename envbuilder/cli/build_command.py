"""``envbuilder build``: the images of a matrix, without validating them."""

from __future__ import annotations

from typing import Any

import click

from envbuilder.cli import options as common


@click.command("build")
@common.matrix_argument
@common.select_option
@common.repository_option
@common.format_option
@common.jobs_option
@common.pull_option
@common.cache_option
@common.allow_option
@common.progress_options
@click.option("--no-cache", is_flag=True, help="Run every build step again even if nothing changed.")
def command(form: str, *, allow: tuple[str, ...], **values: Any) -> None:  # noqa: ANN401 - click's values
    from envbuilder.catalog.store import load
    from envbuilder.choice import choose
    from envbuilder.cli.output import finish
    from envbuilder.engine.docker import connect
    from envbuilder.jobs.run import RunOptions, run, run_text
    from envbuilder.pypi.client import open_index
    from envbuilder.workspace import Workspace

    workspace = Workspace.here(values["matrix"])
    choice = choose(values["matrix"], values["selectors"], workspace, load())
    options = common.read_options(RunOptions, values | {"validate": False})
    document = run(choice, workspace, connect(), common.console_of(values), options, open_index())
    finish(document, form, run_text, allow=allow)
