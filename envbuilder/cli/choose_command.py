"""``envbuilder choose``: one environment for a host, its image, and lines to copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from envbuilder.cli.options import choice_options, format_option
from envbuilder.environment import Flavor, Variant


@click.command("choose")
@choice_options
@format_option
def command(form: str, *, flavor: Flavor | None, variant: Variant, **values: Any) -> None:  # noqa: ANN401 - click's
    from envbuilder.catalog.store import load
    from envbuilder.cli.output import finish, warn_of_age
    from envbuilder.compat.question import QuestionOptions, question
    from envbuilder.jobs.choose import as_text, choose_environment

    asked = question(QuestionOptions(**values))
    finish(choose_environment(asked, flavor, variant, Path.cwd(), warn_of_age(load())), form, as_text)
