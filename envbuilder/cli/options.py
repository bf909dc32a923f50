"""Options and arguments of commands: parameters.yaml declares them, and help.yaml has their help texts."""

import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar, get_args

import click
from click.core import ParameterSource

from envbuilder.errors import UsageError
from envbuilder.image.host_settings import REPOSITORY, repository
from envbuilder.support import decoding
from envbuilder.support.console import Console, Mode
from envbuilder.workspace import cache, cache_dir, cached, packaged_yaml, project_folder, settings_of

CMD = "command"
"""The argument with a command of the user, which follows ``--``."""

_Options = TypeVar("_Options")
_Decorator = Callable[[Any], Any]


def read_options(kind: type[_Options], values: dict[str, Any]) -> _Options:
    """Return a command's values as its options; ``kind`` may leave out some of them."""
    return decoding.converted(values, kind)


def moment(text: str, now: datetime) -> datetime:
    """Read ``2026-11-20``, a full ISO 8601 time, or ``30d`` before now. Raises UsageError for anything else."""
    try:
        if text.endswith("d") and text[:-1].isdigit():
            return now - timedelta(days=int(text[:-1]))
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{text!r} is not a time", hint="a date (2026-11-20) or an age in days (30d)") from error


class _Given:
    """Refuses an empty value, such as that of an unset shell variable.

    Otherwise ``verify --driver "$DRIVER"`` would accept any driver, and an empty path would be the working folder.
    """

    def __call__(self, value: Any, param: click.Parameter | None = None, ctx: click.Context | None = None) -> Any:  # noqa: ANN401
        """Read a value. Raises UsageError that names the option."""
        if value == "" and param and ctx and ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE:
            raise UsageError(
                f"{param.get_error_hint(ctx)} is empty",
                hint="give a value or omit the option; a shell variable may be unset",
            )
        return super().__call__(value, param, ctx)  # type: ignore[misc]  # click's types have it


class GivenText(_Given, click.types.StringParamType):
    """A text that is not empty."""


class FilePath(_Given, click.Path):
    """A path that is not empty."""


def _completed(names: Callable[[click.Context], Iterable[str]]) -> Callable[..., list[str]]:
    """Return click's function for the values that begin with a text; it gives none if they cannot be read."""

    def complete(context: click.Context, _parameter: click.Parameter, text: str) -> list[str]:
        found: list[str] = []
        with suppress(Exception):  # a shell cannot show an error
            found.extend(name for name in names(context) if name.lower().startswith(text.lower()))
        return found

    return complete


def _matrices(_context: click.Context) -> Iterable[str]:
    from envbuilder.choice import VETTED, local_matrices

    return (*local_matrices(project_folder()), *VETTED)


def _environments(context: click.Context) -> Iterable[str]:
    from envbuilder.catalog.store import load
    from envbuilder.choice import choose_all

    given = context.params.get("matrix") or context.params.get("matrices") or ()
    names = (given,) if isinstance(given, str) else given
    return (one.id for choice in choose_all(names, (), project_folder(), load()) for one in choice.environments)


def _gpus(_context: click.Context) -> Iterable[str]:
    from envbuilder.catalog.store import load

    # A shell does not quote what it completes.
    return (gpu.name.removeprefix("GeForce ").replace(" ", "-") for gpu in load().gpus)


def _explained(context: click.Context) -> Iterable[str]:
    from envbuilder.jobs.explain import NAMES

    yield from NAMES
    yield from _environments(context)


_COMPLETED = {"matrices": _matrices, "environments": _environments, "gpus": _gpus, "explained": _explained}


def _use_repository(_context: click.Context, _option: click.Parameter, name: str | None) -> None:
    if name is not None:
        os.environ[REPOSITORY] = repository(name)


_GPUS = re.compile(r"(?:auto|none|all|[0-9]+(?:,[0-9]+)*)\Z")


def _checked_gpus(_context: click.Context, _option: click.Parameter, gpus: str) -> str:
    """Refuse wrong GPUs before anything is built."""
    if not _GPUS.match(gpus):
        raise UsageError(f"--gpus {gpus!r} is not valid", hint="use auto, none, all or numbers: --gpus 0,1")
    return gpus


def _checked_cache(_context: click.Context, _option: click.Parameter, name: str | None) -> str | None:
    from envbuilder.registry.reference import parse

    return parse(name).name if name is not None else None


def _finite(_context: click.Context, _option: click.Parameter, size: float | None) -> float | None:
    """Reject NaN and infinity, which FloatRange accepts."""
    if size is not None and not math.isfinite(size):
        raise click.BadParameter(f"{size} is not a size.")
    return size


SHARED: Mapping[str, _Decorator] = {
    "cache": click.option("--cache", callback=_checked_cache, metavar="HOST/REPOSITORY"),
    "cache size": click.option("--cache", "cache_gb", type=click.FloatRange(min=0), callback=_finite, metavar="GB"),
    "command": click.argument(CMD, nargs=-1, type=click.UNPROCESSED, metavar="[-- CMD]..."),
    "gpus": click.option(
        "--gpus", callback=_checked_gpus, default="auto", show_default=True, metavar="auto|none|all|0,1"
    ),
    "jobs": click.option(
        "-j", "--jobs", type=click.IntRange(1, 64), default=min(2, os.cpu_count() or 1), show_default=True
    ),
    "python": click.option("--python", default=sys.executable, metavar="PATH|COMMAND"),
    "progress": click.option("--progress", type=click.Choice(get_args(Mode)), default="auto", show_default=True),
    "repository": click.option("--repository", metavar="NAME", expose_value=False, callback=_use_repository),
    "select": click.option(
        "-s",
        "--select",
        "selectors",
        multiple=True,
        metavar="SELECTOR",
        default=lambda: settings_of(Path.cwd()).select,
        shell_complete=_completed(_environments),
    ),
}
"""Options with a default or a check of their own."""

_MADE: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "choice": ("type", lambda names: click.Choice([*flat(names)])),
    "range": ("type", lambda bounds: click.IntRange(*bounds)),
    "path": ("type", lambda more: FilePath(**{"path_type": Path, **more})),
    "file": ("type", click.File),
    "complete": ("shell_complete", lambda name: _completed(_COMPLETED[name])),
}
"""Settings of parameters.yaml: click's name of each, and what makes its value."""


def declared(words: str, group: click.Group | None = None) -> Callable[[Callable[..., Any]], click.Command]:
    """Return a decorator that makes a command, of a group, with the parameters which parameters.yaml has for it."""
    rows = packaged_yaml("cli/parameters.yaml", dict[str, list[Any]])[words]

    def make(function: Callable[..., Any]) -> click.Command:
        for row in reversed(list(flat(rows))):
            function = _decorator(row)(function)
        return (group.command if group else click.command)(words.rpartition(" ")[2])(function)

    return make


def flat(rows: Iterable[Any]) -> Iterator[Any]:
    """Yield the values of a list, and of lists in it."""
    for row in rows:
        yield from flat(row) if isinstance(row, list | tuple) else (row,)


def _decorator(row: str | dict[str, dict[str, Any]]) -> _Decorator:
    if isinstance(row, str):
        return SHARED[row]
    ((words, settings),) = row.items()
    made = {_MADE[name][0]: _MADE[name][1](value) for name, value in settings.items() if name in _MADE}
    plain = {name: value for name, value in settings.items() if name not in _MADE}
    return (click.option if words.startswith("-") else click.argument)(*words.split(), **plain, **made)


def console_of(values: dict[str, Any]) -> Console:
    """Return the console that a command's options ask for, with the times of steps that an earlier command stored."""
    path = cache_dir() / "step-times"
    stored = decoding.from_json(cached(path) or b"{}", dict[str, float])
    mode, verbose = values.pop("progress"), values.pop("verbose")
    return Console(mode, verbose=verbose, stored=stored, store=lambda times: cache(path, decoding.to_json(times)))
