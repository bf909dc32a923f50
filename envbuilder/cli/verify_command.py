"""``envbuilder verify``: decide whether an image may be deployed."""

from typing import Any

from envbuilder.cli.options import declared, read_options


@declared("verify")
def command(form: str, **values: Any) -> None:  # noqa: ANN401 - click's values
    from envbuilder.catalog.store import load
    from envbuilder.cli.output import finish
    from envbuilder.publish.verification import as_text
    from envbuilder.publish.verify_request import VerifyOptions, verify_image

    finish(verify_image(read_options(VerifyOptions, values), load().gpu_names), form, as_text)
