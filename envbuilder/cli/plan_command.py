"""``envbuilder plan``: what a matrix comes to, why some of it is rejected, and which host runs what."""

from __future__ import annotations

from pathlib import Path

import click

from envbuilder.cli.options import format_option, matrix_argument, select_option

_UNSATISFIABLE = 4


@click.command("plan")
@matrix_argument
@select_option
@click.option(
    "--fleet", type=click.Path(path_type=Path), metavar="FILE", help="YAML list of hosts: name, driver, gpus."
)
@click.option("--newest", is_flag=True, help="Only name the newest TensorFlow for the hosts (or --driver and --gpu).")
@click.option("--driver", metavar="VERSION", help="With --newest: this host's driver.")
@click.option("--gpu", "gpus", multiple=True, metavar="NAME", help="With --newest: a GPU of this host.")
@format_option
def command(  # noqa: PLR0913, PLR0917 - one parameter an option
    matrix: str | None,
    selectors: tuple[str, ...],
    fleet: Path | None,
    newest: bool,  # noqa: FBT001
    driver: str | None,
    gpus: tuple[str, ...],
    form: str,
) -> None:
    r"""Show the environments of a matrix, its rejections with the nearest that works, and which host runs what.

    Exits 4 where nothing of the matrix can work.

    \b
    Examples:
      envbuilder plan
      envbuilder plan tensorflow -s 'tf2.1[89]*' --format json
      envbuilder plan tensorflow --fleet fleets/example.yaml
      envbuilder plan --newest --driver 470.57.02 --gpu V100
    """
    from envbuilder.jobs.plan_matrix import (
        newest_document,
        newest_table,
        plan_document,
        plan_table,
        the_hosts,
    )
    from envbuilder.schemas import as_json

    if newest or driver or gpus:
        answer = newest_document(the_hosts(fleet, driver, gpus))
        click.echo(as_json(answer) if form == "json" else newest_table(answer.hosts, answer.newest))
        raise click.exceptions.Exit(0 if any(row.tensorflow for row in answer.newest) else _UNSATISFIABLE)
    document = plan_document(matrix, selectors, fleet, Path.cwd())
    click.echo(as_json(document) if form == "json" else plan_table(document))
    raise click.exceptions.Exit(0 if document.environments else _UNSATISFIABLE)
