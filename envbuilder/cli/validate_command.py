"""``envbuilder validate``: the suite in an environment's image, in any image, or here."""

from __future__ import annotations

from pathlib import Path

import click

from envbuilder.cli.options import format_option, gpus_option, profile_option


@click.command("validate")
@click.argument("target", required=False, metavar="[ENV-ID|IMAGE]")
@click.option("--here", is_flag=True, help="Validate the environment at hand, with no container.")
@click.option("--python", default=None, metavar="PATH", help="With --here: the Python to validate.")
@click.option("--matrix", default=None, metavar="MATRIX", help="The matrix that the environment is in.")
@profile_option
@gpus_option
@click.option(
    "--simulate",
    default=None,
    metavar="PROFILE",
    help="Meet a simulated driver: driver=470.57.02,gpu=A100. The verdict says so and is never PASSED.",
)
@click.option("--fresh", is_flag=True, help="Validate again even where nothing changed.")
@format_option
def command(  # noqa: PLR0913, PLR0917 - one parameter an option
    target: str | None,
    here: bool,  # noqa: FBT001
    python: str | None,
    matrix: str | None,
    profile: str,
    gpus: str,
    simulate: str | None,
    fresh: bool,  # noqa: FBT001
    form: str,
) -> None:
    r"""Run the validation suite and judge what comes of it.

    ENV-ID is an environment of the matrix that has been built; its verdict is kept in out/ENV-ID/. Any other word is
    an image in the engine's store, ours or not, that has TensorFlow.

    \b
    Examples:
      envbuilder validate tf2.20.0-py311-cpu-bookworm
      envbuilder validate some/image:tag --profile full --format json
      envbuilder validate --here --python /opt/venv/bin/python
      envbuilder validate tf2.20.0-py311-cu12.5-cudnn9.3-bookworm --simulate driver=470.57.02,gpu=A100
    """
    from envbuilder.catalog.store import load
    from envbuilder.cli.output import finish
    from envbuilder.console import Console
    from envbuilder.validation.validate_request import ValidateOptions, as_text, validate_target
    from envbuilder.workspace import Workspace

    options = ValidateOptions(target, here, python, matrix, profile, gpus, simulate, fresh)
    finish(validate_target(options, Workspace(Path.cwd()), Console(), load()), form, as_text)
