"""``envbuilder completion``: the completion script for a shell."""

import click
from click.shell_completion import get_completion_class

from envbuilder.cli import COMPLETION, root
from envbuilder.cli.options import declared


@declared("completion")
def command(shell: str) -> None:
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - click has each of the three
    click.echo(kind(root, {}, "envbuilder", COMPLETION).source())
