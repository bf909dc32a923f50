"""``envbuilder validate``: the suite in an environment's image, in any image, or here."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import click

from envbuilder.cli.options import format_option, gpus_option, keyless_option, profile_option, sign_option


@click.command("validate")
@click.argument("target", required=False, metavar="[ENV-ID|IMAGE]")
@click.option(
    "--attach",
    is_flag=True,
    help="Sign the verdict and attach it to the image, which is REGISTRY/IMAGE@sha256:…, pulled where it is not here.",
)
@sign_option
@keyless_option
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
def command(
    target: str | None,
    attach: bool,  # noqa: FBT001
    keys: tuple[Path, ...],
    keyless: bool,  # noqa: FBT001
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

    With --attach the verdict travels: whoever asks `envbuilder verify IMAGE --on KINDS` adds up what each host said of
    that digest. A FAILED or INCONCLUSIVE is attached too; what was simulated never is.

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

    options = ValidateOptions(target, here, python, matrix, profile, gpus, simulate, fresh)
    workspace, console, catalog = Workspace(Path.cwd()), Console(), load()
    if not attach:
        if keys or keyless:
            raise UsageError("--key and --keyless sign what is attached", hint="add --attach, or leave them out")
        finish(validate_target(options, workspace, console, catalog), form, as_text)
    if here or simulate is not None:
        raise UsageError("only what ran on a real driver, in an image with a digest, is attached", hint=_REAL)
    reference = by_digest(target)
    sealer = sealer_of(keys, keyless=keyless, environment=os.environ, say=console.say)
    session = PublishSession(connect(), workspace, console.say, dict(os.environ), describe())
    terms = ValidationTerms(session.host, profile, gpus)
    attachment = Attachment(reference, workspace.attached(reference.digest), terms, fresh)
    tools = tools_for(
        reference,
        session,
        sealer,
        lambda asked: validate_target(replace(options, target=str(asked)), workspace, console, catalog),
    )
    finish(attach_verdict(attachment, tools), form, as_text)


_REAL = "leave --here and --simulate out"
