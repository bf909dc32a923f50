"""``envbuilder choose``: one environment for a host, its image, and lines to copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from envbuilder.cli.options import format_option, repository_option
from envbuilder.environment import Flavor, Variant


@click.command("choose")
@click.option("--gpu", "gpus", multiple=True, metavar="NAME", help="GPU, as its vendor or nvidia-smi names it.")
@click.option("--driver", metavar="VERSION", help="Linux driver, such as 535.104.05, or its branch, such as 535.")
@click.option("--tensorflow", default="", metavar="SPEC", help="2.20.0, latest, or a range such as '>=2.17,<2.21'.")
@click.option("--python", metavar="VERSION", help="Python, such as 3.11.")
@click.option("--os", metavar="NAME", help="System, such as debian-bookworm.")
@click.option("--flavor", type=click.Choice(["cpu", "gpu"]), help="Default: gpu, except on a host without a GPU.")
@click.option(
    "--form",
    "variant",
    type=click.Choice(["runtime", "devel"]),
    default="runtime",
    show_default=True,
    help="devel keeps the files that compile custom operations.",
)
@repository_option
@format_option
def command(form: str, *, flavor: Flavor | None, variant: Variant, **values: Any) -> None:  # noqa: ANN401 - click's
    from envbuilder.catalog.store import load
    from envbuilder.cli.age import warn_of_age
    from envbuilder.cli.output import finish
    from envbuilder.compat.question import QuestionOptions, question
    from envbuilder.jobs.choose import as_text, choose_environment

    asked = question(QuestionOptions(**values))
    finish(choose_environment(asked, flavor, variant, Path.cwd(), warn_of_age(load())), form, as_text)
