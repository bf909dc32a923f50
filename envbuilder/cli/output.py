"""Print the one document that a command answers with, in the form that was asked for, and end with its exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn, TypeVar

import click

from envbuilder import errors, exits
from envbuilder.errors import printable
from envbuilder.schemas import json_pieces

_Document = TypeVar("_Document", bound=exits.Document)


def finish(
    document: _Document,
    form: str,
    as_text: Callable[[_Document], str],
    as_markdown: Callable[[_Document], str] | None = None,
) -> NoReturn:
    """Print a document as ``table`` (by ``as_text``), ``json`` or ``markdown``, and end the command."""
    match form:
        case "json":
            _print_parts(json_pieces(document))
        case "markdown" if as_markdown is not None:
            _print(as_markdown(document))
        case _:
            _print(as_text(document))
    raise click.exceptions.Exit(exits.of(document))


def _print(text: str) -> None:
    """Print an answer; see `_print_parts`."""
    _print_parts([printable.text(text)])


def _print_parts(parts: Iterable[str]) -> None:
    """Print what is fit to print, part by part.

    Raises InfrastructureError where it cannot be written, but for a reader that has gone.
    """
    try:
        for part in parts:
            click.echo(part, nl=False)
        click.echo()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise errors.of_system(error, "write the answer to standard output") from error
