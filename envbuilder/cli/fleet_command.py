"""``envbuilder fleet``: validate environments on the host classes of a fleet, and show the state."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, BinaryIO, Literal

import click

from envbuilder.catalog.store import load
from envbuilder.cli import options as common
from envbuilder.cli.output import finish
from envbuilder.support.console import Console

_FILE = common.FilePath(path_type=Path)

_fleet = common.together(
    common.matrix_argument,
    common.select_option,
    click.option(
        "--fleet",
        required=True,
        type=_FILE,
        metavar="FILE",
        help="YAML list of hosts: name, driver, gpus, and the number of equal hosts (count).",
    ),
    click.option(
        "--from", "repository", required=True, metavar="HOST/REPOSITORY", help="Repository of the published images."
    ),
    click.option("--key", "keys", multiple=True, type=_FILE, help="A trusted public key (PEM)."),
    click.option("--identity", help="A trusted Sigstore identity; with --issuer."),
    click.option("--issuer", help="The token service that certifies --identity, such as that of a CI system."),
    click.option(
        "--max-age", default="90d", show_default=True, metavar="AGE", help="Maximum age of a PASSED: 90d, 12h."
    ),
    click.option("--again", is_flag=True, help="Repeat validations that this suite ended without an answer."),
    common.format_option,
)
"""The options of every command that reads a fleet's state."""

_signing = common.together(
    click.option(
        "--sign",
        "signers",
        multiple=True,
        type=_FILE,
        help="A private key that signs the verdicts; default: the path in TF_ENVBUILDER_SIGNING_KEY.",
    ),
    common.keyless_option,
)

_insecure = click.option("--insecure", is_flag=True, help="Accept a scheduler on another host without TLS.")


@click.group("fleet")
def command() -> None: ...


@command.command("plan")
@_fleet
def plan(**values: Any) -> None:  # noqa: ANN401 - click's values
    _show("plan", **values)


@command.command("status")
@_fleet
def status(**values: Any) -> None:  # noqa: ANN401 - click's values
    _show("status", **values)


def _show(asked: Literal["plan", "status"], form: str, **values: Any) -> None:  # noqa: ANN401 - click's values
    from envbuilder.jobs.fleet.run import FleetOptions, as_text, open_fleet

    finish(open_fleet(common.read_options(FleetOptions, values), load()).survey(asked), form, as_text)


@command.command("run")
@_fleet
@_signing
@common.profile_option
@common.gpus_option
@click.option(
    "--dask",
    metavar="local|ADDRESS",
    callback=lambda _, __, value: None if value == "local" else value,
    help="Run on this host (local, the default), or on the workers of a Dask scheduler (`envbuilder fleet worker`).",
)
@click.option("--build", is_flag=True, help="First build and publish the images that the registry lacks.")
@click.option(
    "--timeout",
    default="10m",
    show_default=True,
    metavar="AGE",
    help="With --dask: how long a host class may lack workers.",
)
@_insecure
def run_command(form: str, **values: Any) -> None:  # noqa: ANN401 - click's values
    from envbuilder.jobs.fleet.run import FleetRunOptions, as_text, run

    finish(run(common.read_options(FleetRunOptions, values), load()), form, as_text)


@command.command("prove")
@click.argument("spec", type=click.File("rb"), metavar="FILE|-")
@_signing
@common.format_option
def prove_command(spec: BinaryIO, form: str, **signing: Any) -> None:  # noqa: ANN401 - click's values
    from envbuilder.jobs.fleet.prove import Signing, as_text, prove

    finish(prove(spec.read(), common.read_options(Signing, signing), load()), form, as_text)


@command.command("worker")
@click.argument("address")
@click.option("--name", default="", help="Name of this worker on the scheduler; default: its address.")
@_insecure
def worker(address: str, name: str, *, insecure: bool) -> None:
    from envbuilder.jobs.fleet.prove import ready_worker
    from envbuilder.jobs.fleet.workers import check_address, worker_command

    check_address(address, insecure=insecure)
    advertised = ready_worker(load())
    Console().say(f"this host is {', '.join(advertised)}")
    words = worker_command(address, advertised, name)
    os.execv(words[0], words)  # noqa: S606 - this Python, without a shell


@command.command("export")
@click.argument("scheduler", type=click.Choice(["slurm", "kubernetes", "dask"]), metavar="slurm|kubernetes")
@_fleet
@common.profile_option
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
    "-o",
    "--output",
    type=common.FilePath(path_type=Path, file_okay=False),
    default=Path("out/fleet"),
    show_default=True,
)
def export(scheduler: str, form: str, output: Path, **values: Any) -> None:  # noqa: ANN401 - click's values
    from envbuilder.errors import UsageError
    from envbuilder.jobs.fleet.export import export_jobs
    from envbuilder.jobs.fleet.run import FleetOptions, as_text, open_fleet

    if scheduler == "dask":
        raise UsageError("Dask needs no files", hint="fleet run with --dask ADDRESS and the same options")
    fleet = open_fleet(common.read_options(FleetOptions, values), load())
    document = fleet.survey("plan")
    jobs = fleet.jobs(document).values()
    written = tuple(export_jobs(scheduler, jobs, document.matrix, values, output))
    Console().say("\n".join(f"wrote {path}" for path in written) or "nothing is left to validate: no file is written")
    finish(document, form, as_text)
