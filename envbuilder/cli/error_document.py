"""Errors as JSON documents for ``--format json``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, takewhile

import click
import msgspec

from envbuilder.errors import EnvbuilderError, InputError


class ErrorDocument(msgspec.Struct, frozen=True, kw_only=True):
    """An error: exit code, message, next step ('' if unknown).

    ``where`` is ``path:line`` of the first problem in a user's file, or null.
    """

    schema: str = "envbuilder/error/v1"
    exit_code: int
    message: str
    next: str = ""
    where: str | None = None


def document_of(error: BaseException, exit_code: int) -> ErrorDocument:
    match error:
        case EnvbuilderError():
            return ErrorDocument(exit_code=exit_code, message=error.message, next=error.hint, where=_where(error))
        case click.ClickException():
            command = _command(getattr(error, "ctx", None))
            return ErrorDocument(exit_code=exit_code, message=error.format_message(), next=f"{command} --help")
        case KeyboardInterrupt() | click.Abort():
            return ErrorDocument(
                exit_code=exit_code, message="interrupted", next="run the same command again to continue"
            )
        case _:
            message = f"a bug in envbuilder: {type(error).__name__}: {error}"
            return ErrorDocument(
                exit_code=exit_code, message=message, next="report it with the traceback on standard error"
            )


def _command(context: click.Context | None) -> str:
    """Return a command as users type it."""
    if context is None or context.parent is None:
        return "envbuilder"
    return f"{_command(context.parent)} {context.info_name}"


def _where(error: EnvbuilderError) -> str | None:
    problems = error.problems if isinstance(error, InputError) else ()
    return next((f"{problem.path}:{problem.line}" for problem in problems if problem.line), None)


def wants_json(root: click.Group, arguments: Sequence[str]) -> bool:
    """Return True if a command line, even a wrong one, asks for JSON from a command that can print it."""
    own = list(takewhile(lambda word: word != "--", arguments))
    command: click.Command | None = root
    names = (word for word in own if not word.startswith("-"))
    while isinstance(command, click.Group):
        command = command.get_command(click.Context(command), next(names, ""))
    formats = [one.type for one in command.params if "--format" in one.opts] if command is not None else []
    if not any(isinstance(one, click.Choice) and "json" in one.choices for one in formats):
        return False
    words = [part for word in own for part in (word.split("=", 1) if word.startswith("--format=") else [word])]
    given = [value for flag, value in pairwise([*words, ""]) if flag == "--format"]
    return given[-1:] == ["json"]
