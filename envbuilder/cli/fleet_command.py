"""``envbuilder fleet``: validate environments on the host classes of a fleet, and show the state.

The texts of its options are in ``help.yaml``.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import click

from envbuilder.catalog.store import load
from envbuilder.cli import options as common
from envbuilder.cli.output import finish
from envbuilder.support.console import Console
from envbuilder.workspace import write_atomically

_FILE = common.FilePath(path_type=Path)

_fleet = common.together(
    common.matrix_argument,
    common.select_option,
    click.option("--fleet", required=True, type=_FILE, metavar="FILE"),
    click.option("--from", "repository", required=True, metavar="HOST/REPOSITORY"),
    click.option("--key", "keys", multiple=True, type=_FILE),
    click.option("--identity", default=""),
    click.option("--issuer", default=""),
    click.option("--max-age", default="90d", show_default=True, metavar="AGE"),
    click.option("--again", is_flag=True),
    common.format_option,
)
"""The options of every command that reads a fleet's state."""

_signing = common.together(click.option("--sign", "signers", multiple=True, type=_FILE), common.keyless_option)

_insecure = click.option("--insecure", is_flag=True)


@click.group("fleet")
def command() -> None: ...


def _show(asked: Any, form: str, **values: Any) -> None:  # noqa: ANN401 - click's values
    from envbuilder.jobs.fleet.run import FleetOptions, as_text, open_fleet

    finish(open_fleet(common.read_options(FleetOptions, values), load()).survey(asked), form, as_text)


for _asked in ("plan", "status"):
    command.command(_asked)(_fleet(partial(_show, _asked)))


@command.command("run")
@_fleet
@_signing
@common.profile_option
@common.gpus_option
@click.option("--dask", default="local", metavar="local|ADDRESS")
@click.option("--build", is_flag=True)
@click.option("--timeout", default="10m", show_default=True, metavar="AGE")
@_insecure
def run_command(form: str, **values: Any) -> None:  # noqa: ANN401 - click's values
    from envbuilder.jobs.fleet.run import FleetOptions, as_text, run

    finish(run(common.read_options(FleetOptions, values), load()), form, as_text)


@command.command("prove")
@click.argument("spec", type=click.File("rb"), metavar="FILE|-")
@_signing
@common.format_option
def prove_command(spec: BinaryIO, form: str, **signing: Any) -> None:  # noqa: ANN401 - click's values
    from envbuilder.jobs.fleet.prove import Signing, as_text, prove

    finish(prove(spec.read(), common.read_options(Signing, signing), load()), form, as_text)


@command.command("worker")
@click.argument("address")
@click.option("--name", default="")
@_insecure
def worker(address: str, name: str, *, insecure: bool) -> None:
    from envbuilder.jobs.fleet.prove import worker_command
    from envbuilder.jobs.fleet.workers import check_address

    check_address(address, insecure=insecure)
    words = worker_command(address, name, load())
    os.execv(words[0], words)  # noqa: S606 - this Python, without a shell


@command.command("export")
@click.argument("scheduler", type=click.Choice(["slurm", "kubernetes"]), metavar="slurm|kubernetes")
@_fleet
@common.profile_option
@click.option("--runner", default="", metavar="IMAGE")
@click.option("--pull-secret", default="")
@click.option("-o", "--output", type=common.FilePath(path_type=Path, file_okay=False), default=Path("out/fleet"))
def export(scheduler: str, form: str, runner: str, pull_secret: str, output: Path, **values: Any) -> None:  # noqa: ANN401 - click's values
    from envbuilder.jobs.fleet.export import render_jobs
    from envbuilder.jobs.fleet.run import FleetOptions, as_text, open_fleet

    fleet = open_fleet(common.read_options(FleetOptions, values), load())
    document = fleet.survey("plan")
    files = render_jobs(scheduler, fleet.jobs(document).values(), document.matrix, runner, pull_secret)
    for name, content in files.items():
        write_atomically(output / name, content.encode())
        Console().say(f"wrote {output / name}")
    if not files:
        Console().say("nothing is left to validate: no file is written")
    finish(document, form, as_text)
