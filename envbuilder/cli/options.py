"""Options that several commands share, so that they read and behave alike; help.yaml has their help texts."""

import os
import re
from collections.abc import Callable, Iterable
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
from envbuilder.workspace import cache, cache_dir, cached, project_folder, settings_of

CMD = "command"
"""The argument with a command of the user, which follows ``--``."""

_Options = TypeVar("_Options")
_Command = TypeVar("_Command", bound=Callable[..., Any])


def read_options(kind: type[_Options], values: dict[str, Any]) -> _Options:
    """Return a command's values as its options; ``kind`` may leave out some of them."""
    return decoding.converted(values, kind)


def moment(text: str, now: datetime) -> datetime:
    """Read ``2026-11-20``, a full ISO 8601 time, or ``30d`` before now. Raises UsageError for anything else."""
    try:
        if text.endswith("d") and text[:-1].isdigit():
            return now - timedelta(days=int(text[:-1]))
        time = datetime.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{text!r} is not a time", hint="a date (2026-11-20) or an age in days (30d)") from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


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


def refuse_empty(parameter: click.Parameter) -> None:
    if isinstance(parameter, click.Option) and parameter.type is click.STRING and not parameter.multiple:
        parameter.type = GivenText()


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


complete_matrix, complete_environment, complete_gpu, complete_explained = map(
    _completed, (_matrices, _environments, _gpus, _explained)
)


def together(*options: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    """Return a decorator that adds these options, in this order."""

    def add(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


matrix_argument = click.argument("matrix", required=False, metavar="[MATRIX]", shell_complete=complete_matrix)

matrices_argument = click.argument("matrices", nargs=-1, metavar="[MATRIX]...", shell_complete=complete_matrix)

matrix_option = click.option("--matrix", metavar="MATRIX", shell_complete=complete_matrix)


select_option = click.option(
    "-s",
    "--select",
    "selectors",
    multiple=True,
    metavar="SELECTOR",
    default=lambda: settings_of(Path.cwd()).select,
    shell_complete=complete_environment,
)

format_option = click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True
)


def _use_repository(_context: click.Context, _option: click.Parameter, name: str | None) -> None:
    if name is not None:
        os.environ[REPOSITORY] = repository(name)


repository_option = click.option("--repository", metavar="NAME", expose_value=False, callback=_use_repository)

jobs_option = click.option(
    "-j", "--jobs", type=click.IntRange(1, 64), default=min(2, os.cpu_count() or 1), show_default=True
)

profile_option = click.option("--profile", type=click.Choice(["quick", "full"]), default="quick", show_default=True)

_GPUS = re.compile(r"(?:auto|none|all|[0-9]+(?:,[0-9]+)*)\Z")


def _checked_gpus(_context: click.Context, _option: click.Parameter, gpus: str) -> str:
    """Refuse wrong GPUs before anything is built."""
    if not _GPUS.match(gpus):
        raise UsageError(f"--gpus {gpus!r} is not valid", hint="use auto, none, all or numbers: --gpus 0,1")
    return gpus


gpus_option = click.option(
    "--gpus", callback=_checked_gpus, default="auto", show_default=True, metavar="auto|none|all|0,1"
)

allow_option = click.option("--allow", multiple=True, type=click.Choice(["inconclusive"]))


def _checked_cache(_context: click.Context, _option: click.Parameter, name: str | None) -> str | None:
    from envbuilder.registry.reference import parse

    return parse(name).name if name is not None else None


cache_option = click.option("--cache", callback=_checked_cache, metavar="HOST/REPOSITORY")
progress_options = together(
    click.option("--progress", type=click.Choice(get_args(Mode)), default="auto", show_default=True),
    click.option("-v", "--verbose", is_flag=True),
)


def console_of(values: dict[str, Any]) -> Console:
    """Return the console that ``progress_options`` ask for, with the times of steps that an earlier command stored."""
    path = cache_dir() / "step-times"
    stored = decoding.from_json(cached(path) or b"{}", dict[str, float])
    mode, verbose = values.pop("progress"), values.pop("verbose")
    return Console(mode, verbose=verbose, stored=stored, store=lambda times: cache(path, decoding.to_json(times)))


sign_option = click.option("--key", "keys", multiple=True, type=FilePath(path_type=Path))

keyless_option = click.option("--keyless", is_flag=True)

gpu_option = click.option("--gpu", "gpus", multiple=True, metavar="NAME", shell_complete=complete_gpu)

choice_options = together(
    gpu_option,
    click.option("--driver", metavar="VERSION"),
    click.option("--tensorflow", default="", metavar="SPEC"),
    click.option("--python", metavar="VERSION"),
    click.option("--os", metavar="NAME"),
    click.option("--flavor", type=click.Choice(["cpu", "gpu"])),
    click.option(
        "--variant",
        "--form",
        "variant",
        type=click.Choice(["runtime", "devel", "notebook"]),
        default="runtime",
        show_default=True,
    ),
    repository_option,
)
"""The options of `choose` that narrow the choice of an environment."""
