"""``envbuilder plan``: what a matrix comes to, why some of it is rejected, and which host runs what."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from envbuilder.cli.options import FilePath, format_option, matrix_argument, select_option


@click.command("plan")
@matrix_argument
@select_option
@click.option("--fleet", type=FilePath(path_type=Path), metavar="FILE", help="YAML list of hosts: name, driver, gpus.")
@click.option("--all", "everything", is_flag=True, help="List each rejection, however many there are.")
@click.option("--newest", is_flag=True, help="Only name the newest TensorFlow for the hosts (or --driver and --gpu).")
@click.option("--driver", metavar="VERSION", help="With --newest: this host's driver.")
@click.option("--gpu", "gpus", multiple=True, metavar="NAME", help="With --newest: a GPU of this host.")
@format_option
def command(
    matrix: str | None,
    selectors: tuple[str, ...],
    fleet: Path | None,
    everything: bool,  # noqa: FBT001
    newest: bool,  # noqa: FBT001
    driver: str | None,
    gpus: tuple[str, ...],
    form: str,
) -> None:
    r"""Show the environments of a matrix, its rejections with the nearest that works, and which host runs what.

    Exits 4 where nothing of the matrix, or no release for the host, can work; 8 where the catalogue cannot say.

    \b
    Examples:
      envbuilder plan
      envbuilder plan tensorflow -s 'tf2.1[89]*' --format json
      envbuilder plan tensorflow --fleet fleets/example.yaml
      envbuilder plan --newest --driver 470.57.02 --gpu V100
    """
    from envbuilder.catalog.store import load
    from envbuilder.cli.age import warn_of_age
    from envbuilder.cli.output import finish
    from envbuilder.jobs.plan_matrix import NewestOptions, PlanOptions, newest_for, plan_matrix
    from envbuilder.jobs.plan_text import newest_text, plan_text

    catalog = warn_of_age(load())
    if newest or driver or gpus:
        finish(newest_for(NewestOptions(fleet, driver, gpus), catalog), form, newest_text)
    document = plan_matrix(PlanOptions(matrix, selectors, fleet), Path.cwd(), catalog)
    finish(document, form, partial(plan_text, everything=everything))
