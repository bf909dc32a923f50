"""``envbuilder check``: check whether a combination of versions, driver and GPU works."""

from typing import Any

import click

from envbuilder.cli.options import format_option, gpu_option


@click.command("check")
@click.option("--tensorflow", default="", metavar="SPEC")
@click.option(
    "--package",
    "distributions",
    multiple=True,
    type=click.Choice(["tensorflow", "tensorflow-gpu", "tensorflow-cpu", "tf-nightly"]),
)
@click.option("--python", metavar="VERSION")
@click.option("--cuda", metavar="VERSION")
@click.option("--cudnn", metavar="VERSION")
@click.option("--driver", metavar="VERSION")
@gpu_option
@click.option("--compute-capability", "capabilities", multiple=True, metavar="X.Y")
@click.option("--install", type=click.Choice(["and-cuda", "plain", "system"]))
@click.option("--base-image", metavar="IMAGE")
@click.option("--os", metavar="NAME")
@click.option("--arch", type=click.Choice(["x86_64", "aarch64"]))
@click.option("--with", "packages", multiple=True, metavar="NAME==VERSION")
@click.option("--numpy", metavar="VERSION")
@click.option("--protobuf", metavar="VERSION")
@click.option("--no-avx", is_flag=True)
@click.option("--as-of", metavar="DAY")
@format_option
def command(form: str, distributions: tuple[str, ...], *, no_avx: bool, **values: Any) -> None:  # noqa: ANN401 - click's values
    from envbuilder.catalog.store import load
    from envbuilder.cli.output import finish, warn_of_age
    from envbuilder.compat.check_text import as_text
    from envbuilder.compat.question import QuestionOptions, question
    from envbuilder.jobs.choose import check_with_image

    package, beside = next(reversed(distributions), None), distributions[:-1]
    asked = question(QuestionOptions(avx=not no_avx, package=package, beside=beside, **values))
    finish(check_with_image(asked, load() if asked.as_of else warn_of_age(load())), form, as_text)
