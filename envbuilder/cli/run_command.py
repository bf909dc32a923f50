"""``envbuilder run``: from a matrix to verdicts."""

from typing import Any, NoReturn

import click

from envbuilder.cli import options as common


def run_matrix(values: dict[str, Any], form: str, allow: tuple[str, ...], *, validate: bool) -> NoReturn:
    from envbuilder.catalog.store import load
    from envbuilder.choice import choose
    from envbuilder.cli.output import finish
    from envbuilder.engine.docker import connect
    from envbuilder.jobs.run import Runner, RunOptions, run_text
    from envbuilder.pypi.client import open_index
    from envbuilder.workspace import Workspace

    workspace, console = Workspace.here(values["matrix"]), common.console_of(values)
    choice = choose(values["matrix"], values["selectors"], workspace, load())
    options = common.read_options(RunOptions, values | {"validate": validate})
    document = Runner(choice, workspace, connect(), console, options, open_index()).run()
    for row in document.rows if form == "table" else ():
        for reason in row.reasons:
            click.echo(f"{row.environment}: {reason}", err=True)
    finish(document, form, run_text, allow=allow)


@common.declared("run")
def command(form: str, *, allow: tuple[str, ...], **values: Any) -> None:  # noqa: ANN401 - click's values
    run_matrix(values, form, allow, validate=True)
