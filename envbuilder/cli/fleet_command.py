"""``envbuilder fleet``: validate environments on the host classes of a fleet, and show the state."""

import os
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import click

from envbuilder.catalog.store import load
from envbuilder.cli import options as common
from envbuilder.cli.output import finish

_FILE = common.FilePath(path_type=Path)

_fleet = common.together(
    common.matrix_argument,
    common.select_option,
    click.option("--fleet", required=True, type=_FILE, metavar="FILE"),
    click.option("--from", "repository", required=True, metavar="HOST/REPOSITORY"),
    click.option("--key", "keys", required=True, multiple=True, type=_FILE),
    click.option("--max-age", default="90d", show_default=True, metavar="AGE"),
    click.option("--again", is_flag=True),
    common.format_option,
)
_insecure = click.option("--insecure", is_flag=True)

_COMMANDS = {
    "plan": (_fleet,),
    "status": (_fleet,),
    "run": (
        _fleet,
        common.profile_option,
        click.option("--dask", default="local", metavar="local|ADDRESS"),
        click.option("--build", is_flag=True),
        click.option("--timeout", default="10m", show_default=True, metavar="AGE"),
        _insecure,
    ),
    "export": (
        click.argument("scheduler", type=click.Choice(["slurm", "kubernetes"]), metavar="slurm|kubernetes"),
        _fleet,
        common.profile_option,
        click.option("--runner", default="", metavar="IMAGE"),
        click.option("--pull-secret", default=""),
        click.option("-o", "--output", type=common.FilePath(path_type=Path, file_okay=False), default="out/fleet"),
    ),
}


@click.group("fleet")
def command() -> None: ...


def _answer(asked: Any, form: str, **values: Any) -> None:  # noqa: ANN401 - click's values
    from envbuilder.jobs.fleet.run import FleetOptions, answer, as_text

    finish(answer(asked, common.read_options(FleetOptions, values), load()), form, as_text)


for _asked, _parts in _COMMANDS.items():
    command.command(_asked)(common.together(*_parts)(partial(_answer, _asked)))


@command.command("prove")
@click.argument("spec", type=click.File("rb"), metavar="FILE|-")
@common.format_option
def prove_command(spec: BinaryIO, form: str) -> None:
    from envbuilder.jobs.fleet.job import as_text, prove

    finish(prove(spec.read(), load()), form, as_text)


@command.command("worker")
@click.argument("address")
@click.option("--name", default="")
@_insecure
def worker(address: str, name: str, *, insecure: bool) -> None:
    from envbuilder.jobs.fleet.workers import worker_command

    words = worker_command(address, name, load(), insecure=insecure)
    os.execv(words[0], words)  # noqa: S606 - this Python, without a shell
