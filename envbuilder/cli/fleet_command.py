"""``envbuilder fleet``: validate environments on the host classes of a fleet, and show the state."""

import os
from functools import partial
from typing import Any, BinaryIO

import click

from envbuilder.catalog.store import load
from envbuilder.cli import options as common
from envbuilder.cli.output import finish


@click.group("fleet")
def command() -> None: ...


def _answer(asked: Any, form: str, **values: Any) -> None:  # noqa: ANN401 - click's values
    from envbuilder.jobs.fleet.run import FleetOptions, answer, as_text

    finish(answer(asked, common.read_options(FleetOptions, values), load()), form, as_text)


for _asked in ("plan", "status", "run", "export"):
    common.declared(f"fleet {_asked}", command)(partial(_answer, _asked))


@common.declared("fleet prove", command)
def prove_command(spec: BinaryIO, form: str) -> None:
    from envbuilder.jobs.fleet.job import as_text, prove

    finish(prove(spec.read(), load()), form, as_text)


@common.declared("fleet worker", command)
def worker(address: str, name: str, *, insecure: bool) -> None:
    from envbuilder.jobs.fleet.workers import worker_command

    words = worker_command(address, name, load(), insecure=insecure)
    os.execv(words[0], words)  # noqa: S606 - this Python, without a shell
