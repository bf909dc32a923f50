"""``envbuilder fleet``: which environment is proven on which kind of host, what is left, and what fits this host."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import click

from envbuilder.cli.fleet_ports import (
    asked,
    attacher,
    attacher_beside,
    check_ours,
    closing_beside,
    cluster_of,
    executor_of,
    in_cluster,
    made,
    own_key,
    prepared,
    run_with,
    runtime_option,
    terms_of,
    trusting,
)
from envbuilder.cli.options import FilePath, format_option, gpus_option, keyless_option, profile_option

if TYPE_CHECKING:
    from envbuilder.jobs.fleet_document import FleetDocument
    from envbuilder.jobs.fleet_proofs import Survey
    from envbuilder.jobs.prove import ProofDocument
    from envbuilder.jobs.served_suite import Runtime
    from envbuilder.publish.proven import Registrar
    from envbuilder.verdict import Verdict

_SIGN = "A private key that signs the verdict; else that at the path ENVBUILDER_SIGNING_KEY."


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


@command.command("plan")
@asked
def plan(form: str, **given: Any) -> None:  # noqa: ANN401 - the options that all three take
    r"""Show which environment has to be proven on which kind of host, what stands already, and what is left.

    \b
    Example:
      envbuilder fleet plan tensorflow --fleet fleets/example.yaml \
          --from registry.example.org/ml/tensorflow --key team.pub
    """
    _survey("plan", form, given)


@command.command("status")
@asked
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

    what, registrar = prepared(**given)
    finish(survey(purpose, what, registrar.standing), form, as_text)


@command.command("run")
@asked
@click.option(
    "--sign", "signers", multiple=True, type=FilePath(path_type=Path), help="A private key that signs the verdicts."
)
@keyless_option
@profile_option
@gpus_option
@click.option("--slurm", is_flag=True, help="Run on a Slurm cluster's nodes: a job a proof, by this user's own sbatch.")
@click.option("--dask", metavar="ADDRESS", help="Run on the workers of a Dask scheduler, which `fleet worker` started.")
@click.option("--kubernetes", is_flag=True, help="Run as Jobs of a cluster, by this user's own kubectl; with --runner.")
@runtime_option
@in_cluster
@click.option("--build", is_flag=True, help="With --slurm or --dask: build and publish there what the registry lacks.")
@click.option(
    "--rehearse", is_flag=True, help="Play each kind's driver by a simulated one: it proves nothing, and says so."
)
def run(
    form: str,
    signers: tuple[Path, ...],
    keyless: bool,  # noqa: FBT001
    profile: str,
    gpus: str,
    slurm: bool,  # noqa: FBT001
    dask: str | None,
    kubernetes: bool,  # noqa: FBT001
    runtime: Runtime,
    build: bool,  # noqa: FBT001
    rehearse: bool,  # noqa: FBT001
    **given: Any,  # noqa: ANN401 - likewise
) -> None:
    r"""Run what is left and fits this host: each digest once, its verdict signed and attached. Then say how all stands.

    Interrupted, the same command goes on. It signs with --sign, whose public half has to be among the trusted --key.

    With --slurm, --dask or --kubernetes everything that is left is run, each proof on a host of its kind. Those hosts
    sign, with the key whose path is their ENVBUILDER_SIGNING_KEY, or the one of --key-secret. A task whose host was
    lost is begun again; one that came to an answer never is.

    \b
    Examples:
      envbuilder fleet run tensorflow --fleet fleets/example.yaml --from registry.example.org/ml/tensorflow \
          --key ~/.envbuilder/envbuilder.pub --sign ~/.envbuilder/envbuilder.key
      ENVBUILDER_SIGNING_KEY=~/.envbuilder/envbuilder.key envbuilder fleet run tensorflow --slurm \
          --fleet fleet.yaml --from registry.example.org/ml/tensorflow --key ~/.envbuilder/envbuilder.pub
    """
    from envbuilder.cli.output import finish
    from envbuilder.jobs.fleet_text import as_text
    from envbuilder.workspace import Workspace

    asked_for = {"--slurm": slurm, "--dask": dask is not None, "--kubernetes": kubernetes}
    executors = [name for name, is_asked in asked_for.items() if is_asked]
    _check_executor(executors, runtime, signs=bool(signers) or keyless, build=build, rehearse=rehearse)
    cluster = cluster_of(given, "--kubernetes", is_asked=kubernetes)
    what, registrar = prepared(**given)
    if executors:
        workspace = Workspace(Path.cwd())
        terms = terms_of(given, profile=profile, gpus=gpus, rehearse=rehearse)
        chosen = executor_of(dask, cluster, runtime, workspace)
        document = run_with(chosen, what, registrar, terms, workspace, build=build)
    else:
        _check_here(build=build, rehearse=rehearse)
        document = _run_here(what, registrar, signers, keyless=keyless, profile=profile, gpus=gpus)
    finish(document, form, as_text)


def _check_executor(executors: list[str], runtime: Runtime, *, signs: bool, build: bool, rehearse: bool) -> None:
    """Raise UsageError where what is asked for does not go with who is to run it."""
    from envbuilder.errors import UsageError

    if len(executors) > 1:
        raise UsageError(f"{' and '.join(executors)} are {len(executors)} executors", hint="give one of them")
    if executors and signs:
        raise UsageError("the hosts sign, not this one", hint="ENVBUILDER_SIGNING_KEY on each names its key's path")
    if executors == ["--kubernetes"] and (build or rehearse):
        raise UsageError(
            f"no pod {'builds' if build else 'plays a driver'}", hint="--slurm or --dask, whose hosts have an engine"
        )
    if executors != ["--slurm"]:
        check_ours("--slurm", ("runtime",))
    if runtime != "engine" and (build or rehearse):
        raise UsageError(f"--in {runtime} is for proofs alone", hint="nothing is built or rehearsed without an engine")


def _check_here(*, build: bool, rehearse: bool) -> None:
    """Raise UsageError for what an executor alone does."""
    from envbuilder.errors import UsageError

    if build:
        raise UsageError("--build is an executor's", hint="--slurm or --dask; here, envbuilder build and publish")
    if rehearse:
        raise UsageError("a rehearsal is an executor's", hint="--slurm or --dask; here, envbuilder validate --simulate")


def _run_here(
    what: Survey, registrar: Registrar, signers: tuple[Path, ...], *, keyless: bool, profile: str, gpus: str
) -> FleetDocument:
    from envbuilder.jobs.fleet_run import run_here
    from envbuilder.publish.proven import check_believed
    from envbuilder.publish.publish_all import sealer_of
    from envbuilder.support.console import Console

    sealer = sealer_of(signers, keyless=keyless, environment=os.environ, say=Console().say)
    check_believed(sealer, registrar.openers)
    attach = attacher(registrar, sealer, what.host, what.choice.catalog, profile=profile, gpus=gpus)
    return run_here(what, registrar.standing, attach)


@command.command("prove")
@click.argument("order", type=click.File("rb"), metavar="FILE|-")
@click.option("--sign", "signers", multiple=True, type=FilePath(path_type=Path), help=_SIGN)
@keyless_option
@click.option(
    "--beside",
    type=FilePath(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="The image runs in another container, which shares this folder: a pod of `fleet export kubernetes`.",
)
@format_option
def prove(order: Any, signers: tuple[Path, ...], keyless: bool, beside: Path | None, form: str) -> None:  # noqa: ANN401, FBT001 - click's
    r"""Do one proof on this host, as an order asks for it: what the jobs of `fleet run` and `fleet export` call.

    Nothing is run where a trusted key has said it already. A host that is not of the kind that is asked for, by its own
    driver and GPUs, runs nothing either.

    \b
    Example:
      envbuilder fleet prove - --sign ~/.envbuilder/envbuilder.key < order.json
    """
    from envbuilder.cli.output import finish
    from envbuilder.jobs.prove import as_text

    with closing_beside(beside):  # whatever refuses it: the image beside this waits for a word, on a node of its own
        document = _proven(order, signers, beside, keyless=keyless)
    finish(document, form, as_text)


def _proven(order: BinaryIO, signers: tuple[Path, ...], beside: Path | None, *, keyless: bool) -> ProofDocument:
    from envbuilder.catalog.store import load
    from envbuilder.errors import UsageError
    from envbuilder.host import describe
    from envbuilder.jobs.fleet_task import ProofOrder
    from envbuilder.jobs.prove import Here, check_host
    from envbuilder.jobs.prove import prove as do
    from envbuilder.publish.proven import check_believed, registrar_of
    from envbuilder.publish.publish_all import sealer_of
    from envbuilder.publish.tags import destination
    from envbuilder.support import decoding
    from envbuilder.support.console import Console
    from envbuilder.validation import suite_plan

    try:
        asked_for = decoding.from_json(order.read(), ProofOrder)
    except decoding.DamagedError as error:
        raise UsageError(
            f"this is no order: {error}", hint="`envbuilder fleet run` and `fleet export` write them"
        ) from error
    signers = signers or own_key(keyless=keyless)
    catalog, to = load(), destination(asked_for.repository)
    openers = trusting(asked_for.trusted, asked_for.identity, asked_for.issuer)
    registrar = registrar_of(to, os.environ, openers, catalog.gpu_model, asked_for.max_age_s)
    host = describe()
    here = Here(None if beside else host, platform.machine(), suite_plan.digest(), catalog)
    check_host(asked_for, here)
    sealer = sealer_of(signers, keyless=keyless, environment=os.environ, say=Console().say)
    check_believed(sealer, openers)

    def attach() -> Verdict:
        how = {"profile": asked_for.profile}
        if beside is not None:
            ready = attacher_beside(registrar, sealer, beside, gpus=1 if asked_for.gpu else 0, **how)
        else:
            played = asked_for.simulate or None
            ready = attacher(registrar, sealer, host, catalog, gpus=asked_for.gpus, simulate=played, **how)
        return ready(asked_for.digest)

    return do(asked_for, here, registrar.standing, attach)


@command.command("make")
@click.argument("order", type=click.File("rb"), metavar="FILE|-")
@click.option("--sign", "signers", multiple=True, type=FilePath(path_type=Path), help=_SIGN)
@keyless_option
@format_option
def make(order: Any, signers: tuple[Path, ...], keyless: bool, form: str) -> None:  # noqa: ANN401, FBT001 - click's
    r"""Build, validate and publish one image on this host, as an order asks for it: what `fleet run --build` calls.

    Where the repository has it by now, nothing is built. A GPU image that was built where no GPU is has a verdict that
    is INCONCLUSIVE: it is published as that, to be proven on each kind of host.

    \b
    Example:
      envbuilder fleet make - --sign ~/.envbuilder/envbuilder.key < order.json
    """
    from envbuilder.catalog.store import load
    from envbuilder.cli.output import finish
    from envbuilder.errors import UsageError
    from envbuilder.jobs.fleet_make import MakeOrder, lay_out
    from envbuilder.publish.publish_all import sealer_of
    from envbuilder.publish.results import as_text
    from envbuilder.support import decoding
    from envbuilder.support.console import Console

    try:
        asked_for = decoding.from_json(order.read(), MakeOrder)
    except decoding.DamagedError as error:
        raise UsageError(f"this is no order: {error}", hint="`envbuilder fleet run --build` writes them") from error
    say = Console().say
    sealer = sealer_of(signers or own_key(keyless=keyless), keyless=keyless, environment=os.environ, say=say)
    choice, workspace = lay_out(asked_for, Path.cwd(), load())
    finish(made(asked_for, choice, workspace, sealer), form, as_text)


@command.command("worker")
@click.argument("address")
@click.option("--name", default="", help="What the scheduler calls this worker; its address where none is given.")
def worker(address: str, name: str) -> None:
    r"""Become a worker of the Dask scheduler at ADDRESS, which hears which kinds of host it is by its driver and GPUs.

    It does one task at a time, since validation measures, and signs with the key at ENVBUILDER_SIGNING_KEY. TLS is
    Dask's own: its configuration names the certificates, and the address begins with tls://.

    \b
    Example:
      ENVBUILDER_SIGNING_KEY=~/.envbuilder/envbuilder.key envbuilder fleet worker tls://scheduler:8786
    """
    from envbuilder.catalog.store import load
    from envbuilder.compat.fleet import advertised
    from envbuilder.errors import UsageError
    from envbuilder.host import describe
    from envbuilder.jobs.dask_executor import check_installed, worker_command
    from envbuilder.support.console import Console

    if not os.environ.get("ENVBUILDER_SIGNING_KEY"):
        raise UsageError("this worker could sign nothing", hint="ENVBUILDER_SIGNING_KEY names its key's path")
    check_installed()
    host = describe()
    kinds = advertised(host.driver, (gpu.name for gpu in host.gpus), platform.machine(), load())
    Console().say(f"this host is {', '.join(kinds)}")
    words = worker_command(address, kinds, name)
    # Where this envbuilder lies, tasks find it, though nobody put it on the PATH.
    os.environ["PATH"] = f"{os.environ.get('PATH', os.defpath)}:{Path(sys.executable).parent}"
    os.execv(words[0], words)  # noqa: S606 - our own Python, without a shell


@command.command("export")
@click.argument("scheduler", type=click.Choice(["slurm", "kubernetes"]))
@asked
@profile_option
@runtime_option
@in_cluster
@click.option(
    "-o", "--output", type=FilePath(path_type=Path, file_okay=False), default=Path("out/fleet"), show_default=True
)
def export(
    scheduler: str,
    form: str,
    profile: str,
    runtime: Runtime,
    output: Path,
    **given: Any,  # noqa: ANN401 - likewise
) -> None:
    r"""Write what is left as jobs of a scheduler, each proof on a host of its kind, the verdict attached to the digest.

    Slurm: a script a kind of host, a task an image, for `sbatch`, on nodes that have a container engine, or what --in
    names. The key is the
    one whose path ENVBUILDER_SIGNING_KEY names; no key and no login is in a file. A task that a node took with it is
    queued again; one that FAILED is not.

    Kubernetes: a Job a proof, for `kubectl apply`. The image under test runs the suite and holds no secret; a container
    of --runner beside it judges, signs with the key of --key-secret and attaches.

    \b
    Examples:
      envbuilder fleet export slurm tensorflow --fleet fleet.yaml \
          --from registry.example.org/ml/tensorflow --key team.pub -o jobs
      envbuilder fleet export kubernetes tensorflow --fleet fleet.yaml --from registry.example.org/ml/tensorflow \
          --key team.pub --runner registry.example.org/ml/envbuilder --pull-secret registry-login -o jobs
    """
    from envbuilder.cli.output import finish
    from envbuilder.jobs.fleet_kubernetes import manifests, write_manifests
    from envbuilder.jobs.fleet_proofs import survey
    from envbuilder.jobs.fleet_run import tasks_of
    from envbuilder.jobs.fleet_slurm import batches, write_batches
    from envbuilder.jobs.fleet_text import as_text
    from envbuilder.support.console import Console

    if scheduler != "slurm":
        check_ours("fleet export slurm", ("runtime",))
    cluster = cluster_of(given, "fleet export kubernetes", is_asked=scheduler == "kubernetes")
    what, registrar = prepared(**given)
    document = survey("plan", what, registrar.standing)
    tasks = [
        task for _, task in tasks_of(document, what, terms_of(given, profile=profile, gpus="auto", rehearse=False))
    ]
    if cluster is not None:
        written = write_manifests(manifests(tasks, cluster), output)
    else:
        written = iter(write_batches(batches(tasks, document.matrix, runtime), output))
    for path in written:
        Console().say(f"wrote {path}")
    finish(document, form, as_text)


@command.command("hosts")
@click.argument("cluster", type=click.Choice(["kubernetes", "slurm", "dask"]))
@click.argument("source", metavar="FILE|ADDRESS")
def hosts(cluster: str, source: str) -> None:
    r"""Write a fleet file from what a cluster says of its nodes: FILE, or - for standard input; a scheduler's ADDRESS.

    Kubernetes: the output of `kubectl get nodes -o json`, with the labels of GPU feature discovery. Slurm: that of
    `sinfo -h -N -o '%N|%G|%f'`, where a feature such as driver-535.104.05 names the driver: Slurm itself knows none.
    Dask: what the workers of `fleet worker` say of themselves. A node whose GPU or driver nobody told is left out, and
    named on standard error.

    \b
    Examples:
      kubectl get nodes -o json | envbuilder fleet hosts kubernetes - > fleet.yaml
      sinfo -h -N -o '%N|%G|%f' | envbuilder fleet hosts slurm - > fleet.yaml
    """
    from envbuilder.jobs.dask_executor import kinds_advertised
    from envbuilder.jobs.fleet_hosts import as_yaml, of_dask, of_kubernetes, of_slurm
    from envbuilder.support.console import Console
    from envbuilder.workspace import read_users

    if cluster == "dask":
        found = of_dask(kinds_advertised(source))
    else:
        data = sys.stdin.buffer.read() if source == "-" else read_users(Path(source))
        found = of_kubernetes(data) if cluster == "kubernetes" else of_slurm(data)
    for left_out in found.left_out:
        Console().say(f"left out: {left_out}")
    click.echo(as_yaml(found.fleet), nl=False)
