"""Options that several commands share, so that they read and behave alike."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from envbuilder.errors import UsageError


class _Given:
    """Refuses an empty word on the command line: a variable of the shell that is not set, which asks for nothing.

    ``verify --driver "$DRIVER"`` would accept what never ran on that driver, and an empty path is the working folder.
    """

    def __call__(self, value: Any, param: click.Parameter | None = None, ctx: click.Context | None = None) -> Any:  # noqa: ANN401
        """Read a value. Raises UsageError that names the option."""
        if value == "" and param and ctx and ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE:
            raise UsageError(
                f"{param.get_error_hint(ctx)} is empty",
                hint="is a variable of the shell not set? Give a value, or leave it out",
            )
        return super().__call__(value, param, ctx)  # type: ignore[misc]  # click's types have it


class GivenText(_Given, click.types.StringParamType):
    """A text that is not empty: what `given` makes of every option that takes one value."""


class FilePath(_Given, click.Path):
    """A path that is not empty."""


def given(parameter: click.Parameter) -> None:
    """Have an option that takes one text refuse an empty one."""
    if isinstance(parameter, click.Option) and parameter.type is click.STRING and not parameter.multiple:
        parameter.type = GivenText()


matrix_argument = click.argument("matrix", required=False, metavar="[MATRIX]")

select_option = click.option(
    "-s",
    "--select",
    "selectors",
    multiple=True,
    metavar="SELECTOR",
    help="Only these environments: a glob on ids ('tf2.1[89]*') or key=value (tensorflow=2.20.0). Several are a union.",
)

format_option = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="table for people, json for scripts (one document on standard output).",
)

jobs_option = click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, 64),
    default=min(2, os.cpu_count() or 1),
    show_default=True,
    help="Builds at a time. Validation is always one at a time: it measures.",
)

profile_option = click.option(
    "--profile",
    type=click.Choice(["quick", "full"]),
    default="quick",
    show_default=True,
    help="quick answers within a few imports' time; full adds samples, stalls and all libraries' closure.",
)

_GPUS = re.compile(r"(?:auto|none|all|[0-9]+(?:,[0-9]+)*)\Z")


def _of_gpus(_context: click.Context, _option: click.Parameter, wish: str) -> str:
    """Refuse at once what no engine can be asked for: it would be found out after everything is built."""
    if not _GPUS.match(wish):
        raise UsageError(f"--gpus {wish!r} names no GPUs", hint="auto, none, all, or their numbers: 0,1")
    return wish


gpus_option = click.option(
    "--gpus",
    callback=_of_gpus,
    default="auto",
    show_default=True,
    metavar="auto|none|all|0,1",
    help="GPUs to hand to the container; auto takes all that the driver and the engine offer.",
)

pull_option = click.option(
    "--pull",
    is_flag=True,
    help="Renew the bases first, from the registry or Debian's packages of today; images follow where they changed.",
)

sign_option = click.option(
    "--key",
    "keys",
    multiple=True,
    type=FilePath(path_type=Path),
    help="A private key that signs (envbuilder keys new).",
)

keyless_option = click.option(
    "--keyless", is_flag=True, help="Sign by Sigstore with this CI job's identity instead of a key."
)
