"""``envbuilder verify``: decide whether an image may be deployed."""

from pathlib import Path
from typing import Any

import click

from envbuilder.cli.options import FilePath, format_option, read_options


@click.command("verify")
@click.argument("image")
@format_option
@click.option("--key", "keys", multiple=True, type=FilePath(path_type=Path))
@click.option("--identity")
@click.option("--issuer")
@click.option("--level", type=click.Choice(["static", "load", "cpu", "gpu", "multi-gpu"]))
@click.option("--environment", metavar="ID")
@click.option("--tensorflow", metavar="VERSION")
@click.option("--driver", metavar="VERSION")
@click.option("--gpu", metavar="NAME")
@click.option("--on", metavar="CLASSES")
@click.option("--threshold", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--max-age", default="90d", show_default=True, metavar="AGE")
def command(form: str, **values: Any) -> None:  # noqa: ANN401 - click's values
    from envbuilder.catalog.store import load
    from envbuilder.cli.output import finish
    from envbuilder.publish.verification import as_text
    from envbuilder.publish.verify_request import VerifyOptions, verify_image

    finish(verify_image(read_options(VerifyOptions, values), load().gpu_model), form, as_text)
