"""``envbuilder check``: check whether a combination of versions, driver and GPU works."""

from typing import Any

import click

from envbuilder.cli.options import format_option, gpu_option


@click.command("check")
@click.option(
    "--tensorflow",
    default="",
    metavar="SPEC",
    help="2.20.0, 2.20 (its newest), latest, or a range such as ~=2.19; default: the newest that works.",
)
@click.option(
    "--package",
    "distributions",
    multiple=True,
    type=click.Choice(["tensorflow", "tensorflow-gpu", "tensorflow-cpu", "tf-nightly"]),
    help="Distribution on the package index; default: the one that fits. Several: installed in this order.",
)
@click.option("--python", metavar="VERSION", help="Python, such as 3.11.")
@click.option("--cuda", metavar="VERSION", help="Loaded CUDA toolkit, such as 12.5.")
@click.option("--cudnn", metavar="VERSION", help="Loaded cuDNN, such as 9.3.")
@click.option("--driver", metavar="VERSION", help="Linux driver, such as 535.104.05, or its branch, such as 535.")
@gpu_option()
@click.option(
    "--compute-capability",
    "capabilities",
    multiple=True,
    metavar="X.Y",
    help="A GPU by its compute capability.",
)
@click.option(
    "--install",
    type=click.Choice(["and-cuda", "plain", "system"]),
    help="and-cuda: the unpinned extra; plain: only the package, unpinned; system: CUDA of the system.",
)
@click.option(
    "--base-image",
    metavar="IMAGE",
    help="Image to install in, such as nvidia/cuda:12.6.3-cudnn-..., or tensorflow/tensorflow:2.15.0-gpu.",
)
@click.option("--os", metavar="NAME", help="System, such as debian-bookworm, or windows, wsl2, macos.")
@click.option("--arch", type=click.Choice(["x86_64", "aarch64"]), help="Machine; default: that of the GPU, or x86_64.")
@click.option("--with", "packages", multiple=True, metavar="NAME==VERSION", help="A further installed package.")
@click.option("--numpy", metavar="VERSION", help="Short for --with numpy==VERSION.")
@click.option("--protobuf", metavar="VERSION", help="Short for --with protobuf==VERSION.")
@click.option("--no-avx", is_flag=True, help="The processor has no AVX.")
@click.option("--as-of", metavar="DAY", help="Day of the installation, such as 2026-11-20.")
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
