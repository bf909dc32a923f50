"""``envbuilder build``: the images of a matrix, without validating them."""

from typing import Any

from envbuilder.cli.options import declared
from envbuilder.cli.run_command import run_matrix


@declared("build")
def command(form: str, *, allow: tuple[str, ...], **values: Any) -> None:  # noqa: ANN401 - click's values
    run_matrix(values, form, allow, validate=False)
