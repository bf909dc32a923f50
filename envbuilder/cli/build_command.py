"""``envbuilder build``: the images of a matrix, without validating them."""

from __future__ import annotations

from pathlib import Path

import click

from envbuilder.cli.options import format_option, jobs_option, matrix_argument, pull_option, select_option


@click.command("build")
@matrix_argument
@select_option
@format_option
@jobs_option
@pull_option
@click.option("--no-cache", is_flag=True, help="Run every step again, even where nothing changed.")
def command(
    matrix: str | None,
    selectors: tuple[str, ...],
    form: str,
    jobs: int,
    pull: bool,  # noqa: FBT001
    no_cache: bool,  # noqa: FBT001
) -> None:
    r"""Lock, render and build the selected environments; an image that stands is not built again.

    Each image is tagged envbuilder/tensorflow:ID, and its build.log and image.json are in out/ID/.

    \b
    Examples:
      envbuilder build
      envbuilder build tensorflow -s flavor=gpu -j 1
    """
    from envbuilder.catalog.store import load
    from envbuilder.choice import choose
    from envbuilder.cli.output import finish
    from envbuilder.engine.docker import connect
    from envbuilder.jobs.run import RunOptions, build_rows
    from envbuilder.jobs.run_text import build_text
    from envbuilder.pypi.open_index import open_index
    from envbuilder.support.console import Console
    from envbuilder.workspace import Workspace

    workspace = Workspace(Path.cwd())
    choice = choose(matrix, selectors, workspace, load())
    options = RunOptions(jobs=jobs, no_cache=no_cache, pull=pull, index=open_index())
    finish(build_rows(choice, workspace, connect(), Console(), options), form, build_text)
