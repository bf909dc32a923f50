"""``envbuilder verify``: decide whether an image may be deployed."""

from pathlib import Path
from typing import Any

import click

from envbuilder.cli.options import FilePath, format_option, read_options


@click.command("verify")
@click.argument("image")
@format_option
@click.option("--key", "keys", multiple=True, type=FilePath(path_type=Path), help="A trusted public key (PEM).")
@click.option("--identity", help="A trusted Sigstore identity; with --issuer.")
@click.option("--issuer", help="The token service that certifies --identity, such as that of a CI system.")
@click.option(
    "--level",
    type=click.Choice(["static", "load", "cpu", "gpu", "multi-gpu"]),
    help="Require this level; default: cpu, and gpu with --on, --driver or --gpu.",
)
@click.option("--environment", metavar="ID", help="Require this environment; default: the tag if it is an id.")
@click.option("--tensorflow", metavar="VERSION", help="Require this TensorFlow: 2.20.0, or 2.20.")
@click.option("--driver", metavar="VERSION", help="Require a PASSED on this driver: 570, or 570.124.06.")
@click.option("--gpu", metavar="NAME", help="Require a PASSED on this GPU: H100, or 'H100 PCIe'.")
@click.option("--on", metavar="CLASSES", help="Require a PASSED on each of these host classes: 'H100/570, A100/550'.")
@click.option(
    "--threshold",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Require this many trusted signatures.",
)
@click.option(
    "--max-age", default="90d", show_default=True, metavar="AGE", help="Maximum age of the verdict: 90d, 12h."
)
def command(form: str, **values: Any) -> None:  # noqa: ANN401 - click's values
    from envbuilder.catalog.store import load
    from envbuilder.cli.output import finish
    from envbuilder.publish.verification import as_text
    from envbuilder.publish.verify_request import VerifyOptions, verify_image

    finish(verify_image(read_options(VerifyOptions, values), load().gpu_model), form, as_text)
