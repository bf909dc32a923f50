"""Print a command's document in the requested format, and exit with its code; documents of errors."""

import json
import operator
import os
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import Enum
from itertools import pairwise, takewhile
from pathlib import Path
from typing import NoReturn, TypeVar, cast

import click
import msgspec

from envbuilder import errors
from envbuilder.catalog.model import Catalog
from envbuilder.cli import exit_codes, termination
from envbuilder.cli.options import CMD
from envbuilder.errors import EnvbuilderError, ExitCode, InputError
from envbuilder.support import console, decoding, terminal_text
from envbuilder.workspace import write_atomically, writing

_Document = TypeVar("_Document", bound=exit_codes.Document)


def write_output(text: str, output: Path | None) -> None:
    """Print a text, or write it to a file that the user named: a device or pipe is written to, and a link stays."""
    if output is None:
        click.echo(text, nl=not text.endswith("\n"))
    elif output.exists() and not output.is_file():
        with writing(output):
            output.write_bytes(text.encode())
    else:
        write_atomically(Path(os.path.realpath(output)), text.encode())


def finish(
    document: _Document,
    form: str,
    as_text: Callable[[_Document], str],
    as_markdown: Callable[[_Document], str] | None = None,
    *,
    allow: tuple[str, ...] = (),
) -> NoReturn:
    """Print a document as ``table`` (by ``as_text``), ``json`` or ``markdown``, and end the command.

    ``allow`` has "inconclusive" if the user accepts the exit code of INCONCLUSIVE.
    """
    match form:
        case "json":
            _print(as_json(document))
        case "markdown" if as_markdown is not None:
            _print(terminal_text.text(as_markdown(flattened(document))))
        case _:
            _print(coloured(terminal_text.text(as_text(flattened(document)))))
    code = exit_codes.of(document)
    if allow and code == ExitCode.NO_CLAIM:
        click.echo("INCONCLUSIVE: not proven here, and accepted by --allow inconclusive", err=True)
        code = ExitCode.DONE
    raise click.exceptions.Exit(code)


def flattened(document: _Document) -> _Document:
    """Return a document with each text on one line, so that no text adds a line to the answer.

    The text of a file (``matrix`` next to ``commands``) keeps its lines.
    """
    return cast("_Document", _flat(document))


def _flat(value: object) -> object:
    match value:
        case Enum():
            return value
        case str():
            return terminal_text.flat(value)
        case msgspec.Struct():
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            file = "matrix" if "commands" in fields else ""
            found = {name: terminal_text.text(str(one)) if name == file else _flat(one) for name, one in fields.items()}
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


def as_json(document: object) -> str:
    """Write a document as indented JSON, in the field order of its type."""
    return terminal_text.json_text(json.dumps(json.loads(decoding.to_json(document)), indent=2, ensure_ascii=False))


def coloured(text: str) -> str:
    """Return a text with colours in its verdicts, wherever a folded table has them."""
    words = rf"\b(?:{'|'.join(console.COLOURS)})\b"
    return re.sub(words, lambda word: click.style(word[0], fg=console.COLOURS[word[0]], bold=True), text)


def _print(text: str) -> None:
    """Print an answer. Raises InfrastructureError if it cannot be written, except if the reader closed the pipe."""
    try:
        click.echo(text, color=False if "NO_COLOR" in os.environ else None)  # None: none in a pipe
    except BrokenPipeError:
        raise
    except OSError as error:
        termination.drop(1)  # the last flush would fail again
        raise errors.of_system(error, "write the answer to standard output") from error


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
    where = None
    match error:
        case EnvbuilderError():
            message, step = terminal_text.without_keys(error.message), error.hint
            problems = error.problems if isinstance(error, InputError) else ()
            where = next((f"{problem.path}:{problem.line}" for problem in problems if problem.line), None)
        case click.ClickException():
            context = getattr(error, "ctx", None)
            step, names = f"{_command(context)} --help", [one.name for one in context.command.params] if context else []
            if isinstance(error, click.NoSuchOption) and CMD in names:
                step += "; put -- before CMD"
            message = terminal_text.without_keys(errors.redacted(error.format_message()))
        case KeyboardInterrupt() | click.Abort():
            message, step = "interrupted", "run the same command again to continue"
        case _:
            message = f"a bug in envbuilder: {type(error).__name__}: {error}"
            step = "report it with the traceback on standard error"
    return ErrorDocument(exit_code=exit_code, message=message, next=step, where=where)


def _command(context: click.Context | None) -> str:
    """Return a command as users type it."""
    if context is None or context.parent is None:
        return "envbuilder"
    return f"{_command(context.parent)} {context.info_name}"


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


def warn_of_age(catalog: Catalog, now: datetime | None = None) -> Catalog:
    """Return the catalogue; warn if it was read more than 90 days ago. ``now`` None is the clock."""
    from envbuilder.compat.unknown import newer_than

    day = (now or datetime.now(UTC)).date().isoformat()
    for finding in newer_than(catalog.read_on, day):
        if finding.severity == "warning":
            console.warn(f"{finding.message} {finding.fix}")
    return catalog
