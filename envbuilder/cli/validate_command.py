"""``envbuilder validate``: run the suite in an image, or in a Python of this host."""

import os
import sys
from functools import partial
from typing import Any

from envbuilder.cli import options as common


@common.declared("validate")
def command(form: str, **values: Any) -> None:  # noqa: ANN401 - click's values
    from envbuilder.catalog.store import load
    from envbuilder.cli.output import finish
    from envbuilder.errors import UsageError
    from envbuilder.validation.suite_session import progress_of
    from envbuilder.validation.validate import ValidationRequest, simulation, validate_here
    from envbuilder.validation.validate_request import as_text, validate_target
    from envbuilder.workspace import Workspace

    console, catalog, workspace = common.console_of(values), load(), Workspace.here(values["matrix"])
    validate = partial(validate_target, workspace=workspace, console=console, catalog=catalog)
    if values["attach"]:
        from envbuilder.engine.docker import connect
        from envbuilder.host import describe
        from envbuilder.publish.attestation import PublishSession, by_digest, validate_and_attach
        from envbuilder.publish.publish_all import sealer_of

        if values["here"] or values["simulate"]:
            hint = "omit --here and --simulate, or --attach"
            raise UsageError("--attach needs an image with a digest and a real driver", hint=hint)
        reference = by_digest(values["image"])
        sealer = sealer_of(values["keys"], keyless=values["keyless"], environment=os.environ, say=console.say)
        session = PublishSession(connect(), workspace, console.say, dict(os.environ), describe())
        verdict = validate_and_attach(
            common.read_options(ValidationRequest, values), reference, session, sealer, validate
        )
    elif values["keys"] or values["keyless"]:
        raise UsageError("--key and --keyless need --attach", hint="add --attach, or omit them")
    elif values["here"]:
        if values["image"] or values["simulate"]:
            raise UsageError("--here takes no image and no simulated driver", hint="leave one of them out")
        with console.live(), console.task("here") as task:
            python = values["python"] or sys.executable
            verdict = validate_here(catalog, python, values["profile"], progress_of(task))
    elif values["image"] is None:
        raise UsageError("nothing to validate", hint="name an environment or an image, or use --here")
    else:
        if values["simulate"] is not None:
            values["simulate"] = simulation(values["simulate"], catalog)
        verdict = validate(common.read_options(ValidationRequest, values), matrix=values["matrix"])
    finish(verdict, form, as_text, allow=values["allow"])
