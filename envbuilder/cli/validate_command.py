"""``envbuilder validate``: run the suite in an image, or in a Python of this host."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from envbuilder.cli.options import (
    format_option,
    gpus_option,
    keyless_option,
    profile_option,
    read_options,
    sign_option,
)


@click.command("validate")
@click.argument("target", required=False, metavar="[ENV-ID|IMAGE]")
@click.option(
    "--attach",
    is_flag=True,
    help="Sign the verdict and attach it to REGISTRY/IMAGE@sha256:…, which is pulled if necessary.",
)
@sign_option
@keyless_option
@click.option("--here", is_flag=True, help="Validate a Python of this host, without a container.")
@click.option("--python", default=None, metavar="PATH", help="With --here: the Python to validate.")
@click.option("--matrix", default=None, metavar="MATRIX", help="Matrix of the environment.")
@profile_option
@gpus_option
@click.option(
    "--simulate",
    default=None,
    metavar="PROFILE",
    help="Use a simulated driver: driver=470.57.02,gpu=A100. The verdict says so and is never PASSED.",
)
@click.option("--fresh", is_flag=True, help="Validate again even if nothing changed.")
@format_option
def command(form: str, *, attach: bool, keys: tuple[Path, ...], keyless: bool, **values: Any) -> None:  # noqa: ANN401 - click's values
    r"""Run the validation suite and print the verdict.

    ENV-ID is a built environment of the matrix; its verdict is stored in out/ENV-ID/. Otherwise the argument is a local
    image that contains TensorFlow.

    --attach adds the verdict to the image in its registry, where `envbuilder verify IMAGE --on CLASSES` reads the
    verdicts of all hosts. A FAILED or INCONCLUSIVE verdict is attached too, a simulated one is not.

    \b
    Examples:
      envbuilder validate tf2.20.0-py311-cpu-bookworm
      envbuilder validate some/image:tag --profile full --format json
      envbuilder validate --here --python /opt/venv/bin/python
      envbuilder validate tf2.20.0-py311-cu12.5-cudnn9.3-bookworm --simulate driver=470.57.02,gpu=A100
      envbuilder validate registry.example.org/ml/tensorflow@sha256:… --attach --key ~/.envbuilder/envbuilder.key
    """
    from envbuilder.catalog.store import load
    from envbuilder.cli.output import finish
    from envbuilder.engine.docker import connect
    from envbuilder.errors import UsageError
    from envbuilder.host import describe
    from envbuilder.publish.attestation import (
        Attachment,
        PublishSession,
        ValidationTerms,
        attach_verdict,
        by_digest,
        tools_for,
    )
    from envbuilder.publish.publish_all import sealer_of
    from envbuilder.support.console import Console
    from envbuilder.validation.validate_request import ValidateOptions, as_text, validate_target
    from envbuilder.workspace import Workspace

    options = read_options(ValidateOptions, values)
    workspace, console, catalog = Workspace(Path.cwd()), Console(), load()
    if not attach:
        if keys or keyless:
            raise UsageError("--key and --keyless need --attach", hint="add --attach, or omit them")
        finish(validate_target(options, workspace, console, catalog), form, as_text)
    if options.here or options.simulate is not None:
        raise UsageError(
            "--attach needs an image with a digest and a real driver", hint="omit --here and --simulate, or --attach"
        )
    reference = by_digest(options.target)
    sealer = sealer_of(keys, keyless=keyless, environment=os.environ, say=console.say)
    session = PublishSession(connect(), workspace, console.say, dict(os.environ), describe())
    terms = ValidationTerms(session.host, options.profile, options.gpus)
    attachment = Attachment(reference, workspace.attached(reference.digest), terms, options.fresh)
    tools = tools_for(
        reference,
        session,
        sealer,
        lambda image: validate_target(replace(options, target=str(image)), workspace, console, catalog),
    )
    finish(attach_verdict(attachment, tools), form, as_text)
