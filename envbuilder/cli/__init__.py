"""The command line: commands are loaded lazily, and errors become exit codes."""

import errno
import importlib
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import click

from envbuilder import __version__
from envbuilder.cli import termination
from envbuilder.cli.options import CMD, GivenText, flat
from envbuilder.errors import EnvbuilderError, ExitCode, InputError, UsageError, of_system
from envbuilder.support import console
from envbuilder.support.yaml_reader import read_yaml

_GROUPS = read_yaml(Path(__file__).with_name("commands.yaml"), dict[str, dict[str, tuple[str, ...]]])

COMMANDS = tuple((name, *row) for rows in _GROUPS.values() for name, row in rows.items())
"""Every command in the order of ``--help``: name, description, and types of its documents.

The module ``<name>_command`` contains the click command ``command``; a type is ``module:name`` in the package.
"""

COMPLETION = "_TF_ENVBUILDER_COMPLETE"
"""The variable by which a shell asks for completions."""


class LazyGroup(click.Group):
    """Imports a command's module when it is called, so that ``--help`` is fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return [name for name, *_ in COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"envbuilder.cli.{cmd_name}_command").command
        return _prepared(command, cmd_name)

    def make_context(self, *arguments: Any, **settings: Any) -> click.Context:  # noqa: ANN401 - click's signature
        with _output():
            return super().make_context(*arguments, **settings)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's signature
        with _output():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands by group, without importing any."""
        for group, rows in _GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name, does) for name, (does, *_) in rows.items()])


@contextmanager
def _output() -> Iterator[None]:
    """Distinguish a closed reader of standard output from other broken pipes: the engine's, a child's."""
    try:
        yield
    except BrokenPipeError as error:
        if termination.reader_has_gone():
            raise _OutputError(error) from error
        raise of_system(error) from error


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="envbuilder")
def root() -> None: ...


@cache
def help_texts() -> dict[str, str]:
    return read_yaml(Path(__file__).with_name("help.yaml"), dict[str, str])


@cache
def _prepared(command: click.Command, words: str) -> click.Command:
    """Refuse empty and lost values, and add the help texts, marked so that click keeps the lines of its examples."""
    command.help = re.sub(r"\n\n(?=Examples?:\n)", "\n\n\b\n", help_texts().get(words, "").strip())
    command.short_help = re.split(r"\.?(?:\n\n|$)", command.help, maxsplit=1)[0]
    command.parse_args = partial(_parse, command, command.parse_args)  # type: ignore[method-assign]
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.type is click.STRING and not parameter.multiple:
            parameter.type = GivenText()
        if isinstance(parameter, click.Option) and parameter.help is None:
            name = next(word for word in parameter.opts if word.startswith("--"))
            keys = (f"{words} {name}", f"{words.partition(' ')[0]} {name}", name)
            parameter.help = next((help_texts()[key] for key in keys if key in help_texts()), None)
    for child in command.commands.items() if isinstance(command, click.Group) else ():
        _prepared(child[1], f"{words} {child[0]}")
    return command


def _parse(
    command: click.Command,
    parse: Callable[[click.Context, list[str]], list[str]],
    context: click.Context,
    words: list[str],
) -> list[str]:
    """Parse a command line; click alone would use only the last value of an option, and take options out of CMD.

    Raises UsageError for an option without its value or with a second one, and for a CMD that does not follow ``--``.
    """
    if not context.resilient_parsing:
        values, _, order = command.make_parser(context).parse_args(list(takewhile("--".__ne__, words)))
        options = {one: times for one, times in Counter(order).items() if isinstance(one, click.Option)}
        names = {name for one in command.params if isinstance(one, click.Option) for name in one.opts}
        for option, times in options.items():
            if times > 1 and not (option.multiple or option.is_flag):
                text = f"{option.get_error_hint(context)} is given {times} times, and has one value"
                raise UsageError(text, hint="give it once")
            if taken := names.intersection(flat([values[option.name or ""]])):
                text = f"{option.get_error_hint(context)} lacks a value: {taken.pop()} is an option"
                raise UsageError(text, hint=f"give {option.make_metavar(context)} after it")
        if isinstance(values.get(CMD), tuple):
            raise UsageError("the command to run has to follow --", hint="put -- before CMD")
    return parse(context, words)


_prepared(root, "envbuilder")


def main(arguments: list[str] | None = None) -> Any:  # noqa: ANN401 - click's own return type
    """Run the command line and exit with its code.

    SIGTERM and a closed terminal have the effect of Ctrl-C: containers are removed, finished work stays. Under nohup a
    closed terminal has no effect.
    """
    termination.open_missing_streams()
    termination.end_on_signals()
    words = sys.argv[1:] if arguments is None else arguments
    try:
        code = root.main(words, standalone_mode=False, complete_var=COMPLETION)
    except click.exceptions.Exit as done:
        code = done.exit_code
    except _OutputError as error:
        code = termination.unwritten(error.cause)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the one place where everything is caught
        code = _report(error)
        _print_document(error, code, words)
    sys.exit(termination.flush(code if isinstance(code, int) else 0))


class _OutputError(Exception):
    """Standard output cannot be written. Not an OSError: click would exit with code 1, which means a verdict."""

    def __init__(self, cause: OSError) -> None:
        self.cause = cause
        super().__init__(str(cause))


def _report(error: BaseException) -> int:
    """Print an error to standard error and return its exit code."""
    match error:
        case _ if _is_interruption(error):
            console.complain("interrupted; run the same command again to continue")
            return ExitCode.INTERRUPTED
        case click.exceptions.NoArgsIsHelpError():
            console.complain(error.format_message())
            return ExitCode.USAGE
        case click.ClickException():
            from envbuilder.cli.output import document_of

            shown = document_of(error, ExitCode.USAGE)
            console.complain(f"error: {shown.message}\n  next: {shown.next}")
            return ExitCode.USAGE
        case EnvbuilderError():
            console.complain(f"error: {error}")
            for problem in error.problems if isinstance(error, InputError) else ():
                console.annotate(f"{problem.key}: {problem.message}".lstrip(": "), problem.path, problem.line)
            return error.exit_code
        case OSError():
            return _report(_of_system(error))
        case MemoryError():
            return _report(_of_system(OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))))
        case _:
            import traceback

            console.complain("".join(traceback.format_exception(error)).rstrip())
            return ExitCode.BUG


def _is_interruption(error: BaseException) -> bool:
    """Return True if an error is an interruption or a consequence of one.

    An interruption while a class is created becomes a RuntimeError, and the cleanup after one may fail too.
    """
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:  # an error may be its own cause
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    return any(isinstance(one, click.Abort | KeyboardInterrupt) for one in chain)


def _of_system(error: OSError) -> EnvbuilderError:
    """Describe an OSError. A missing working folder raises one without a path."""
    try:
        Path.cwd()
    except OSError as gone:
        return UsageError(f"the working folder cannot be used: {gone.strerror}", hint="change to an existing folder")
    return of_system(error)


def _print_document(error: BaseException, code: int, words: list[str]) -> None:
    """Print an error as JSON if the command was called with --format json; the exit code does not change."""
    with suppress(ImportError, OSError):  # a broken installation or a full disk is already the error
        from envbuilder.cli.output import as_json, document_of, wants_json

        if wants_json(root, words):
            click.echo(as_json(document_of(_of_system(error) if isinstance(error, OSError) else error, code)))
