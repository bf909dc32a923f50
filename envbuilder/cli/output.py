"""Print the one document that a command answers with, in the form that was asked for, and end with its exit code."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import NoReturn, TypeVar, cast

import click
import msgspec

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
            _print(as_markdown(flattened(document)))
        case _:
            _print(as_text(flattened(document)))
    raise click.exceptions.Exit(exits.of(document))


def flattened(document: _Document) -> _Document:
    """Return a document whose every text is on one line, so that none of them makes a line of its own in an answer.

    A text that is a file of ours (``matrix`` beside its ``commands``) keeps its lines. Numbers, words and keys stay.
    """
    return cast("_Document", _flat(document))


def _flat(value: object) -> object:
    match value:
        case Enum():
            return value
        case str():
            return printable.flat(value)
        case msgspec.Struct():
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            found = {name: _flat(one) for name, one in fields.items() if not _is_file(name, fields)}
            found |= {name: printable.text(str(one)) for name, one in fields.items() if _is_file(name, fields)}
            changed = {name: one for name, one in found.items() if one is not fields[name] and one != fields[name]}
            return msgspec.structs.replace(value, **changed) if changed else value
        case list() | tuple() if type(value) in (list, tuple):
            flat = type(value)(map(_flat, value))
            return value if all(map(operator.is_, flat, value)) else flat
        case dict():
            items = {_flat(key): _flat(one) for key, one in value.items()}
            return value if items == value else items
        case _:
            return value


def _is_file(name: str, fields: Mapping[str, object]) -> bool:
    return name == "matrix" and "commands" in fields


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
