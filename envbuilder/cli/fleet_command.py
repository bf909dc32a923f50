"""``envbuilder fleet``: validate environments on the host classes of a fleet, and show the state."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar

import click

from envbuilder.catalog.store import load
from envbuilder.cli.options import (
    FilePath,
    format_option,
    gpus_option,
    keyless_option,
    matrix_argument,
    profile_option,
    read_options,
    select_option,
)
from envbuilder.cli.output import finish
from envbuilder.support.console import Console

_Command = TypeVar("_Command", bound=Callable[..., Any])


def fleet_options(function: _Command) -> _Command:
    """Add the options of every command that reads a fleet's state."""
    options = (
        matrix_argument,
        select_option,
        click.option(
            "--fleet",
            required=True,
            type=FilePath(path_type=Path),
            metavar="FILE",
            help="YAML list of hosts: name, driver, gpus, and the number of equal hosts (count).",
        ),
        click.option(
            "--from", "repository", required=True, metavar="HOST/REPOSITORY", help="Repository of the published images."
        ),
        click.option("--key", "keys", multiple=True, type=FilePath(path_type=Path), help="A trusted public key (PEM)."),
        click.option("--identity", help="A trusted Sigstore identity; with --issuer."),
        click.option("--issuer", help="The token service that certifies --identity, such as that of a CI system."),
        click.option(
            "--max-age", default="90d", show_default=True, metavar="AGE", help="Maximum age of a PASSED: 90d, 12h."
        ),
        click.option("--again", is_flag=True, help="Repeat validations that this suite ended without an answer."),
        format_option,
    )
    for option in reversed(options):
        function = option(function)
    return function


_signers = click.option(
    "--sign",
    "signers",
    multiple=True,
    type=FilePath(path_type=Path),
    help="A private key that signs the verdicts; default: the path in TF_ENVBUILDER_SIGNING_KEY.",
)


_insecure = click.option("--insecure", is_flag=True, help="Accept a scheduler on another host without TLS.")


@click.group("fleet")
def command() -> None: ...


@command.command("plan")
@fleet_options
def plan(form: str, **values: Any) -> None:  # noqa: ANN401 - click's values
    _show("plan", form, values)


@command.command("status")
@fleet_options
def status(form: str, **values: Any) -> None:  # noqa: ANN401 - click's values
    _show("status", form, values)


def _show(asked: Literal["plan", "status"], form: str, values: dict[str, Any]) -> None:
    from envbuilder.jobs.fleet.run import FleetOptions, show
    from envbuilder.jobs.fleet.survey import as_text

    finish(show(asked, read_options(FleetOptions, values), load()), form, as_text)


@command.command("run")
@fleet_options
@_signers
@keyless_option
@profile_option
@gpus_option
@click.option(
    "--dask",
    metavar="local|ADDRESS",
    help="Run on Dask workers: one on this host, or those of a scheduler (`envbuilder fleet worker ADDRESS`).",
)
@click.option("--build", is_flag=True, help="With --dask: first build and publish the images that the registry lacks.")
@click.option(
    "--timeout",
    default="10m",
    show_default=True,
    metavar="AGE",
    help="With --dask: how long a host class may lack workers.",
)
@_insecure
def run_command(form: str, **values: Any) -> None:  # noqa: ANN401 - click's values
    from envbuilder.jobs.fleet.run import FleetRunOptions, run
    from envbuilder.jobs.fleet.survey import as_text

    finish(run(read_options(FleetRunOptions, values), load()), form, as_text)


_spec = click.argument("spec", type=click.File("rb"), metavar="FILE|-")


@command.command("prove")
@_spec
@_signers
@keyless_option
@format_option
def prove_command(spec: BinaryIO, form: str, **signing: Any) -> None:  # noqa: ANN401 - click's values
    from envbuilder.jobs.fleet.prove import Signing, as_text, prove

    finish(prove(spec.read(), read_options(Signing, signing), load()), form, as_text)


@command.command("make")
@_spec
@_signers
@keyless_option
@format_option
def make_command(spec: BinaryIO, form: str, **signing: Any) -> None:  # noqa: ANN401 - click's values
    from envbuilder.jobs.fleet.prove import Signing, make
    from envbuilder.publish.results import as_text

    finish(make(spec.read(), read_options(Signing, signing), load()), form, as_text)


@command.command("check")
@click.argument("spec", type=click.File("rb"), required=False, metavar="[FILE|-]")
@_signers
@keyless_option
def check(spec: BinaryIO | None, **signing: Any) -> None:  # noqa: ANN401 - click's values
    from envbuilder.jobs.fleet.prove import Signing, check_host

    check_host(spec.read() if spec else None, read_options(Signing, signing), load())
    click.echo("this host can run jobs of a fleet")


@command.command("worker")
@click.argument("address")
@click.option("--name", default="", help="Name of this worker on the scheduler; default: its address.")
@_insecure
def worker(address: str, name: str, *, insecure: bool) -> None:
    from envbuilder.errors import UsageError
    from envbuilder.jobs.fleet.prove import SIGNING_KEY, Signing, check_host
    from envbuilder.jobs.fleet.run import host_classes
    from envbuilder.jobs.fleet.workers import check_address, check_installed, worker_command

    if not os.environ.get(SIGNING_KEY):
        raise UsageError("this worker has no signing key", hint=f"set {SIGNING_KEY} to the path of its key")
    check_installed()
    check_address(address, insecure=insecure)
    check_host(None, Signing(), load())
    advertised = host_classes(load())
    Console().say(f"this host is {', '.join(advertised)}")
    words = worker_command(address, advertised, name)
    os.execv(words[0], words)  # noqa: S606 - this Python, without a shell


@command.command("export")
@click.argument("scheduler", type=click.Choice(["slurm", "kubernetes"]))
@fleet_options
@profile_option
@click.option("--runner", default="", metavar="IMAGE", help="Kubernetes: an image that contains envbuilder.")
@click.option(
    "--key-secret",
    default="envbuilder-signing-key",
    show_default=True,
    help="Kubernetes: the secret with the signing key, as envbuilder.key.",
)
@click.option("--pull-secret", default="", help="Kubernetes: the secret with the registry's login.")
@click.option(
    "--gpu-claim", default="", metavar="TEMPLATE", help="Kubernetes: a ResourceClaimTemplate instead of nvidia.com/gpu."
)
@click.option("--namespace", default="", help="Kubernetes: the namespace of the Jobs.")
@click.option(
    "-o", "--output", type=FilePath(path_type=Path, file_okay=False), default=Path("out/fleet"), show_default=True
)
def export(scheduler: str, form: str, output: Path, **values: Any) -> None:  # noqa: ANN401 - click's values
    from envbuilder.jobs.fleet.export import ClusterOptions, export_jobs
    from envbuilder.jobs.fleet.run import FleetOptions, pending_jobs
    from envbuilder.jobs.fleet.survey import as_text

    cluster = read_options(ClusterOptions, values)
    document, jobs = pending_jobs(read_options(FleetOptions, values), load())
    written = tuple(export_jobs(scheduler, jobs, document.matrix, cluster, output))
    Console().say("\n".join(f"wrote {path}" for path in written) or "nothing is left to validate: no file is written")
    finish(document, form, as_text)


@command.command("hosts")
@click.argument("cluster", type=click.Choice(["kubernetes", "slurm", "dask"]))
@click.argument("source", metavar="FILE|ADDRESS")
def hosts(cluster: str, source: str) -> None:
    from envbuilder.jobs.fleet.hosts import as_yaml, of_dask, of_kubernetes, of_slurm
    from envbuilder.jobs.fleet.workers import DaskEngine
    from envbuilder.workspace import read_users

    if cluster == "dask":
        with DaskEngine(source) as engine:
            found = of_dask(worker.classes for worker in engine.workers())
    else:
        data = sys.stdin.buffer.read() if source == "-" else read_users(Path(source))
        found = of_kubernetes(data) if cluster == "kubernetes" else of_slurm(data)
    for reason in found.left_out:
        Console().say(f"left out: {reason}")
    click.echo(as_yaml(found.fleet), nl=False)
