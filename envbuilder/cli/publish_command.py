"""``envbuilder publish``: push, validate by digest, state, sign and promote."""

import os
from datetime import UTC, datetime
from typing import Any

import click
from click.core import ParameterSource

from envbuilder.cli import options as common

_OF_NOTICES = ("withdraw", "answer", "reason", "keys", "keyless", "form", "progress", "verbose")


@common.declared("publish")
def command(matrix: str | None, selectors: tuple[str, ...], form: str, **values: Any) -> None:  # noqa: ANN401 - click's values
    from envbuilder.catalog.store import load
    from envbuilder.choice import choose
    from envbuilder.cli.output import finish
    from envbuilder.engine.docker import connect
    from envbuilder.errors import UsageError
    from envbuilder.host import describe
    from envbuilder.publish.attestation import PublishSession, publish_notice
    from envbuilder.publish.publish_all import PublishOptions, plan_all, publish_all, sealer_of
    from envbuilder.publish.results import as_text
    from envbuilder.publish.tags import check_moving, destination
    from envbuilder.workspace import Workspace

    console = common.console_of(values)
    say = console.say
    notices = [*([(values["withdraw"], ())] if values["withdraw"] is not None else []), *_answers(values["answer"])]
    if notices:
        if len(notices) > 1:
            raise UsageError("one image is withdrawn or answered at a time", hint="give --withdraw or --answer")
        context = click.get_current_context()
        others = [one for one in context.command.params if one.name not in _OF_NOTICES]
        given = [one for one in others if context.get_parameter_source(one.name or "") is ParameterSource.COMMANDLINE]
        if given:
            text = f"{given[0].get_error_hint(context)} does not belong to --withdraw or --answer, which sign at once"
            raise UsageError(text, hint="leave it out; a reason of several words needs quotes")
        sealer = sealer_of(values["keys"], keyless=values["keyless"], environment=os.environ, say=say)
        now = datetime.now(UTC)
        finish(publish_notice(*notices[0], values["reason"], sealer, os.environ, now, say), form, as_text)
    if values["reason"] is not None:
        raise UsageError("--reason belongs to --withdraw or --answer", hint="--withdraw IMAGE@DIGEST --reason TEXT")
    if values["to"] is None:
        raise UsageError("--to is missing", hint="--to registry.example.org/team/image")
    to = destination(values["to"])
    workspace = Workspace.here(matrix)
    choice = choose(matrix, selectors, workspace, load())
    check_moving(values["moving"], to, {one.tensorflow for one in choice.environments})
    values |= {"to": to, "allow": tuple(dict.fromkeys(values["allow"])), "sbom": not values["no_sbom"]}
    options = common.read_options(PublishOptions, values)
    session = PublishSession(connect(), workspace, say, dict(os.environ), describe())
    if not values["dry_run"] or values["keys"] or values["keyless"]:
        sealer = sealer_of(values["keys"], keyless=values["keyless"], environment=os.environ, say=say)
    if values["dry_run"]:
        finish(plan_all(choice, options, session), form, as_text)
    finish(publish_all(choice, options, sealer, session, console), form, as_text)


def _answers(pairs: tuple[tuple[str, str], ...]) -> list[tuple[str, tuple[str, ...]]]:
    """Return each image with its answered statements."""
    images = dict.fromkeys(image for image, _ in pairs)
    return [(image, tuple(dict.fromkeys(name for one, name in pairs if one == image))) for image in images]
