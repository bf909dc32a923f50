"""``envbuilder fleet``: which environment is proven on which kind of host, what is left, and what fits this host."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from envbuilder.cli.options import (
    format_option,
    gpus_option,
    keyless_option,
    matrix_argument,
    profile_option,
    select_option,
)

if TYPE_CHECKING:
    from envbuilder.jobs.fleet_proofs import Survey
    from envbuilder.publish.proven import Registrar

_Command = TypeVar("_Command", bound=Callable[..., Any])


@click.group("fleet")
def command() -> None:
    r"""Prove every environment on every kind of host that it is for.

    The fleet file names the hosts; the registry holds what each has proven, as signed verdicts on an image's digest.
    Nothing else is shared, and nothing is run twice for the same digest, suite and kind.

    \b
    Examples:
      kubectl get nodes -o json | envbuilder fleet hosts kubernetes - > fleet.yaml
      envbuilder fleet plan tensorflow --fleet fleet.yaml --from registry.example.org/ml/tensorflow --key team.pub
    """


def _asked(function: _Command) -> _Command:
    """Add what plan, status and run are all asked with."""
    options = (
        matrix_argument,
        select_option,
        click.option(
            "--fleet",
            required=True,
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="YAML list of hosts: name, driver, gpus, and how many are alike (count).",
        ),
        click.option(
            "--from", "repository", required=True, metavar="HOST/REPOSITORY", help="Where the images were published."
        ),
        click.option(
            "--key", "keys", multiple=True, type=click.Path(path_type=Path), help="A trusted public key (PEM)."
        ),
        click.option("--identity", help="A trusted Sigstore identity; with --issuer."),
        click.option("--issuer", help="Who vouches for --identity, such as a CI system's token service."),
        click.option(
            "--max-age", default="90d", show_default=True, metavar="AGE", help="How old a PASSED may be: 90d, 12h."
        ),
        click.option("--again", is_flag=True, help="Count as left what this suite judged and came to no answer."),
        format_option,
    )
    for option in reversed(options):
        function = option(function)
    return function


@command.command("plan")
@_asked
def plan(form: str, **given: Any) -> None:  # noqa: ANN401 - the options that all three take
    r"""Show which environment has to be proven on which kind of host, what stands already, and what is left.

    \b
    Example:
      envbuilder fleet plan tensorflow --fleet fleets/example.yaml \
          --from registry.example.org/ml/tensorflow --key team.pub
    """
    _survey("plan", form, given)


@command.command("status")
@_asked
def status(form: str, **given: Any) -> None:  # noqa: ANN401 - likewise
    r"""Say the same, and exit by it: 0 where all is proven, 1 where something FAILED, 8 where something is left.

    \b
    Example:
      envbuilder fleet status tensorflow --fleet fleets/example.yaml \
          --from registry.example.org/ml/tensorflow --key team.pub
    """
    _survey("status", form, given)


def _survey(purpose: Literal["plan", "status"], form: str, given: dict[str, Any]) -> None:
    from envbuilder.cli.output import finish
    from envbuilder.jobs.fleet_proofs import survey
    from envbuilder.jobs.fleet_text import as_text

    what, registrar = _prepared(**given)
    finish(survey(purpose, what, registrar.standing), form, as_text)


@command.command("run")
@_asked
@click.option(
    "--sign", "signers", multiple=True, type=click.Path(path_type=Path), help="A private key that signs the verdicts."
)
@keyless_option
@profile_option
@gpus_option
def run(
    form: str,
    signers: tuple[Path, ...],
    keyless: bool,  # noqa: FBT001
    profile: str,
    gpus: str,
    **given: Any,  # noqa: ANN401 - likewise
) -> None:
    r"""Run what is left and fits this host: each digest once, its verdict signed and attached. Then say how all stands.

    Interrupted, the same command goes on. It signs with --sign, whose public half has to be among the trusted --key.

    \b
    Example:
      envbuilder fleet run tensorflow --fleet fleets/example.yaml --from registry.example.org/ml/tensorflow \
          --key ~/.envbuilder/envbuilder.pub --sign ~/.envbuilder/envbuilder.key
    """
    from envbuilder.cli.output import finish
    from envbuilder.console import Console
    from envbuilder.engine.docker import connect
    from envbuilder.jobs.fleet_proofs import run_here
    from envbuilder.jobs.fleet_text import as_text
    from envbuilder.publish.attach_verdict import Attachment, attach_verdict, tools_for
    from envbuilder.publish.proven import check_believed
    from envbuilder.publish.publish_all import Session, sealer_of
    from envbuilder.publish.stating import Terms
    from envbuilder.validation.validate_request import ValidateOptions, validate_target
    from envbuilder.workspace import Workspace

    what, registrar = _prepared(**given)
    workspace, console = Workspace(Path.cwd()), Console()
    sealer = sealer_of(signers, keyless=keyless, environment=os.environ, say=console.say)
    check_believed(sealer, registrar.openers)
    session = Session(connect(), workspace, console.say, dict(os.environ), what.host)
    terms = Terms(session.host, profile, gpus)

    def attach(digest: str) -> object:
        reference = registrar.repository.reference.at(digest)
        attachment = Attachment(reference, workspace.attached(digest), terms)
        options = ValidateOptions(str(reference), False, None, None, profile, gpus, None, False)
        tools = tools_for(
            reference, session, sealer, lambda _: validate_target(options, workspace, console, what.choice.catalog)
        )
        return attach_verdict(attachment, tools)

    finish(run_here(what, registrar.standing, attach), form, as_text)


@command.command("export")
@click.argument("scheduler", type=click.Choice(["slurm"]))
@_asked
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, file_okay=False), default=Path("out/fleet"), show_default=True
)
def export(scheduler: str, form: str, output: Path, **given: Any) -> None:  # noqa: ANN401, ARG001 - likewise; one so far
    r"""Write what is left as jobs of a scheduler: a file a kind of host, a task an image.

    Slurm: arrays for `sbatch`, on nodes that have a container engine. Each task validates a digest where it is and
    attaches the verdict, signed by the key whose path ENVBUILDER_SIGNING_KEY names; no key and no login is in a file.
    A task that a node took with it is queued again; one that FAILED is not.

    \b
    Example:
      envbuilder fleet export slurm tensorflow --fleet fleet.yaml \
          --from registry.example.org/ml/tensorflow --key team.pub -o jobs
    """
    from envbuilder.cli.output import finish
    from envbuilder.console import Console
    from envbuilder.jobs.fleet_proofs import survey
    from envbuilder.jobs.fleet_slurm import batches, write_batches
    from envbuilder.jobs.fleet_text import as_text

    what, registrar = _prepared(**given)
    document = survey("plan", what, registrar.standing)
    for path in write_batches(batches(document, what.fleet), output):
        Console().say(f"wrote {path}")
    finish(document, form, as_text)


@command.command("hosts")
@click.argument("cluster", type=click.Choice(["kubernetes", "slurm"]))
@click.argument("file", type=click.File("rb"))
def hosts(cluster: str, file: Any) -> None:  # noqa: ANN401 - click's own type of an open file
    r"""Write a fleet file from what a cluster says of its nodes: FILE, or - for standard input.

    Kubernetes: the output of `kubectl get nodes -o json`, with the labels of GPU feature discovery. Slurm: that of
    `sinfo -h -N -o '%N|%G|%f'`, where a feature such as driver-535.104.05 names the driver: Slurm itself knows none.
    A node whose GPU or driver nobody told is left out, and named on standard error.

    \b
    Examples:
      kubectl get nodes -o json | envbuilder fleet hosts kubernetes - > fleet.yaml
      sinfo -h -N -o '%N|%G|%f' | envbuilder fleet hosts slurm - > fleet.yaml
    """
    from envbuilder.console import Console
    from envbuilder.jobs.fleet_hosts import as_yaml, of_kubernetes, of_slurm

    data = file.read()
    found = of_kubernetes(data) if cluster == "kubernetes" else of_slurm(data)
    for left_out in found.left_out:
        Console().say(f"left out: {left_out}")
    click.echo(as_yaml(found.fleet), nl=False)


def _prepared(  # noqa: PLR0913, PLR0917 - one parameter an option
    matrix: str | None,
    selectors: tuple[str, ...],
    fleet: Path,
    repository: str,
    keys: tuple[Path, ...],
    identity: str | None,
    issuer: str | None,
    max_age: str,
    again: bool,  # noqa: FBT001
) -> tuple[Survey, Registrar]:
    """Read what is asked about, and say who is believed."""
    from envbuilder.catalog.store import load
    from envbuilder.choice import choose, read_fleet
    from envbuilder.host import describe
    from envbuilder.jobs.fleet_proofs import Survey
    from envbuilder.publish.proven import registrar_of
    from envbuilder.publish.tag_names import destination
    from envbuilder.publish.verify_request import duration, openers_of
    from envbuilder.validation.checks import suite_plan
    from envbuilder.workspace import Workspace

    catalog = load()
    to = destination(repository)
    registrar = registrar_of(to, os.environ, openers_of(keys, identity, issuer), catalog.gpu_model, duration(max_age))
    choice = choose(matrix, selectors, Workspace(Path.cwd()), catalog)
    what = Survey(choice, read_fleet(fleet), to.name, suite_plan.digest(), describe(), platform.machine(), again)
    return what, registrar
