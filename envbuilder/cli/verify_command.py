"""``envbuilder verify``: whether an image may be deployed."""

from __future__ import annotations

from pathlib import Path

import click

from envbuilder.cli.options import FilePath, format_option


@click.command("verify")
@click.argument("image")
@format_option
@click.option("--key", "keys", multiple=True, type=FilePath(path_type=Path), help="A trusted public key (PEM).")
@click.option("--identity", help="A trusted Sigstore identity; with --issuer.")
@click.option("--issuer", help="Who vouches for --identity, such as a CI system's token service.")
@click.option(
    "--level",
    type=click.Choice(["static", "load", "cpu", "gpu", "multi-gpu"]),
    help="The level that must have passed; default: cpu, and gpu with --on.",
)
@click.option("--environment", metavar="ID", help="The environment that is meant; default: the tag, where it is an id.")
@click.option("--tensorflow", metavar="VERSION", help="The TensorFlow that is meant: 2.20.0, or 2.20.")
@click.option("--driver", metavar="VERSION", help="The driver that it must have passed on: 535, or 535.104.05.")
@click.option("--gpu", metavar="NAME", help="The GPU that it must have passed on: H100.")
@click.option(
    "--on", metavar="KINDS", help="Kinds of host, on each of which it must have passed: 'H100/535, A100/550'."
)
@click.option("--threshold", type=int, default=1, show_default=True, help="How many trusted keys must have signed.")
@click.option(
    "--max-age", default="90d", show_default=True, metavar="AGE", help="How old the verdict may be: 90d, 12h."
)
def command(
    image: str,
    form: str,
    keys: tuple[Path, ...],
    identity: str | None,
    issuer: str | None,
    level: str | None,
    environment: str | None,
    tensorflow: str | None,
    driver: str | None,
    gpu: str | None,
    on: str | None,
    threshold: int,
    max_age: str,
) -> None:
    r"""Decide whether IMAGE, in its registry, has a fresh PASSED verdict that somebody trusted signed.

    Whatever cannot be shown is refused, with its reason; the exit code is 0 for accepted, 7 for refused, and 5 where
    the registry failed, so that nothing is known. It answers within half a minute.

    \b
    Examples:
      envbuilder verify registry.example.org/ml/tensorflow:tf2.20.0-py311-cpu-bookworm --key envbuilder.pub
      envbuilder verify registry.example.org/ml/tensorflow@sha256:… --key envbuilder.pub \
          --level gpu --driver 535 --gpu H100 --max-age 30d
      envbuilder verify registry.example.org/ml/tensorflow@sha256:… --key envbuilder.pub \
          --on 'H100/535, A100/550'
    """
    from envbuilder.catalog.store import load
    from envbuilder.cli.output import finish
    from envbuilder.publish.verification import as_text
    from envbuilder.publish.verify_request import VerifyOptions, verify_image

    options = VerifyOptions(
        image, keys, identity, issuer, level, driver, gpu, max_age, environment, tensorflow, threshold, on
    )
    catalog = load()
    finish(verify_image(options, catalog.gpu_model), form, as_text)
