"""What the commands of `fleet` share: their options, who is asked, and what validates and attaches."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from click.core import ParameterSource
from msgspec.structs import replace

from envbuilder.cli.options import FilePath, format_option, matrix_argument, select_option

if TYPE_CHECKING:
    from envbuilder.attest.envelope import Opener, Sealer
    from envbuilder.catalog.model import Catalog
    from envbuilder.choice import Choice
    from envbuilder.engine.port import Engine
    from envbuilder.jobs.fleet_document import FleetDocument
    from envbuilder.jobs.fleet_kubernetes import Cluster
    from envbuilder.jobs.fleet_make import MakeOrder
    from envbuilder.jobs.fleet_proofs import Survey
    from envbuilder.jobs.fleet_run import ProofTerms
    from envbuilder.jobs.fleet_task import Executor, Task
    from envbuilder.jobs.served_suite import Runtime
    from envbuilder.publish.proven import Registrar
    from envbuilder.publish.results import PublishDocument
    from envbuilder.registry.reference import Reference
    from envbuilder.validation.checks import Profile
    from envbuilder.verdict import HostRef, Verdict
    from envbuilder.workspace import Workspace

_Command = TypeVar("_Command", bound=Callable[..., Any])


def asked(function: _Command) -> _Command:
    """Add what plan, status and run are all asked with."""
    options = (
        matrix_argument,
        select_option,
        click.option(
            "--fleet",
            required=True,
            type=FilePath(path_type=Path),
            metavar="FILE",
            help="YAML list of hosts: name, driver, gpus, and how many are alike (count).",
        ),
        click.option(
            "--from", "repository", required=True, metavar="HOST/REPOSITORY", help="Where the images were published."
        ),
        click.option("--key", "keys", multiple=True, type=FilePath(path_type=Path), help="A trusted public key (PEM)."),
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


def runtime_option(function: _Command) -> _Command:
    """Add what runs images on Slurm's nodes."""
    from envbuilder.jobs.served_suite import RUNTIMES

    return click.option(
        "--in",
        "runtime",
        type=click.Choice(RUNTIMES),
        default=RUNTIMES[0],
        show_default=True,
        help="Slurm: what runs the image on a node.",
    )(function)


def in_cluster(function: _Command) -> _Command:
    """Add what Kubernetes is told beside the proof: whose image judges, and by which names it keeps the rest."""
    options = (
        click.option(
            "--runner", default="", metavar="IMAGE", help="Kubernetes: an image of yours with envbuilder in it."
        ),
        click.option(
            "--key-secret",
            default="envbuilder-signing-key",
            show_default=True,
            help="Kubernetes: holds envbuilder.key.",
        ),
        click.option("--pull-secret", default="", help="Kubernetes: the registry's login, for pulling and attaching."),
        click.option(
            "--gpu-claim",
            default="",
            metavar="TEMPLATE",
            help="Kubernetes: a ResourceClaimTemplate, not nvidia.com/gpu.",
        ),
        click.option("--namespace", default="", help="Kubernetes: where the Jobs go."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def prepared(
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
    from envbuilder.publish.tags import destination
    from envbuilder.publish.verify_request import duration, openers_of
    from envbuilder.validation import suite_plan
    from envbuilder.workspace import Workspace

    catalog = load()
    to = destination(repository)
    registrar = registrar_of(to, os.environ, openers_of(keys, identity, issuer), catalog.gpu_model, duration(max_age))
    choice = choose(matrix, selectors, Workspace(Path.cwd()), catalog)
    what = Survey(choice, read_fleet(fleet), to.name, suite_plan.digest(), describe(), platform.machine(), again)
    return what, registrar


def terms_of(given: dict[str, Any], *, profile: str, gpus: str, rehearse: bool) -> ProofTerms:
    """Say by what every proof of a run is done: the public keys go with each order, a private one never does."""
    from envbuilder.jobs.fleet_run import ProofTerms
    from envbuilder.publish.verify_request import duration
    from envbuilder.workspace import users_text

    return ProofTerms(
        max_age_s=duration(given["max_age"]),
        trusted=tuple(users_text(path) for path in given["keys"]),
        identity=given["identity"] or "",
        issuer=given["issuer"] or "",
        profile=profile,
        gpus=gpus,
        rehearse=rehearse,
    )


def trusting(pems: tuple[str, ...], identity: str, issuer: str) -> tuple[Opener, ...]:
    """Return who is trusted, by what an order says."""
    from envbuilder.publish.verify_request import openers_of
    from envbuilder.workspace import temporary_folder, write_atomically

    with temporary_folder("trusted") as folder:
        paths = [folder / f"{number}.pub" for number in range(len(pems))]
        for path, pem in zip(paths, pems, strict=True):
            write_atomically(path, pem.encode())
        return openers_of(tuple(paths), identity or None, issuer or None)


def attacher(
    registrar: Registrar,
    sealer: Sealer,
    host: HostRef,
    catalog: Catalog,
    *,
    profile: str,
    gpus: str,
    simulate: str | None = None,
) -> Callable[[str], Verdict]:
    """Return what validates a digest on this host and attaches the verdict; a rehearsal where a driver is played."""
    from envbuilder.engine.docker import connect
    from envbuilder.publish.attestation import Attachment, PublishSession, ValidationTerms, attach_verdict, tools_for
    from envbuilder.support.console import Console
    from envbuilder.validation.validate_request import ValidateOptions, validate_target
    from envbuilder.workspace import Workspace

    workspace, console = Workspace(Path.cwd()), Console()
    session = PublishSession(connect(), workspace, console.say, dict(os.environ), host)
    terms, rehearsal = ValidationTerms(host, profile, gpus), simulate is not None

    def attach(digest: str) -> Verdict:
        reference = registrar.repository.reference.at(digest)
        folder = workspace.rehearsed(digest, simulate) if simulate is not None else workspace.attached(digest)
        attachment = Attachment(reference, folder, terms, rehearsal, rehearsal)
        options = ValidateOptions(str(reference), False, None, None, profile, gpus, simulate, False)
        tools = tools_for(reference, session, sealer, lambda _: validate_target(options, workspace, console, catalog))
        return attach_verdict(attachment, tools)

    return attach


def executor_of(dask: str | None, cluster: Cluster | None, runtime: Runtime, workspace: Workspace) -> Executor:
    """Return the executor that was asked for: a Dask scheduler's workers, a cluster's Jobs, else Slurm's nodes."""
    from envbuilder.jobs.dask_executor import DaskExecutor
    from envbuilder.jobs.kubernetes_executor import KubernetesExecutor
    from envbuilder.jobs.slurm_executor import SlurmExecutor

    if dask is not None:
        return DaskExecutor(dask)
    return SlurmExecutor(workspace.fleet_logs, runtime) if cluster is None else KubernetesExecutor(cluster)


def check_ours(executor: str, parameters: Iterable[str]) -> None:
    """Refuse what was given for an executor that was not asked for: nothing would heed it. Raises UsageError."""
    from envbuilder.errors import UsageError

    context = click.get_current_context()
    unsaid = (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)
    for option in context.command.params:
        if option.name in parameters and context.get_parameter_source(option.name) not in unsaid:
            raise UsageError(f"{option.opts[0]} is for {executor} alone", hint=f"leave it out, or ask for {executor}")


_IN_CLUSTER = ("runner", "key_secret", "pull_secret", "gpu_claim", "namespace")


def cluster_of(given: dict[str, Any], executor: str, *, is_asked: bool) -> Cluster | None:
    """Take what `in_cluster` added out of the options; ``executor`` is how a user asks for whom they are.

    Raises UsageError where a cluster has nobody to judge, and for such an option where no cluster is asked for.
    """
    from envbuilder.errors import UsageError
    from envbuilder.jobs.fleet_kubernetes import Cluster

    if not is_asked:
        check_ours(executor, _IN_CLUSTER)
    runner, key, login, claim, namespace = (given.pop(name) for name in _IN_CLUSTER)
    if is_asked and not runner:
        raise UsageError("no image with envbuilder in it is named", hint="--runner IMAGE")
    return Cluster(runner, key, login, namespace, claim) if is_asked else None


def run_with(
    executor: Executor, what: Survey, registrar: Registrar, terms: ProofTerms, workspace: Workspace, *, build: bool
) -> FleetDocument:
    """Do what is left wherever an executor finds a host of its kind; what the registry lacks first, where asked."""
    from envbuilder.jobs.fleet_make import make_tasks
    from envbuilder.jobs.fleet_run import run_on
    from envbuilder.support.console import Console

    def make(document: FleetDocument) -> Iterable[Task]:
        if not build:
            return ()
        return make_tasks(document, what.choice, workspace, profile=terms.profile, gpus=terms.gpus)

    return run_on(executor, what, registrar.standing, terms, say=Console().say, make=make)


def own_key(*, keyless: bool) -> tuple[Path, ...]:
    """Return the key that this host signs with by its own word, where it has one."""
    named = os.environ.get("ENVBUILDER_SIGNING_KEY", "")
    return (Path(named),) if named and not keyless else ()


def made(order: MakeOrder, choice: Choice, workspace: Workspace, sealer: Sealer) -> PublishDocument:
    """Build an order's environment and publish it, unless the repository has it by now.

    What went wrong is its row: the exit code tells a build that failed from a host that did.
    """
    from envbuilder.engine.docker import connect
    from envbuilder.host import describe
    from envbuilder.jobs.run import RunOptions, build_rows
    from envbuilder.publish.attestation import PublishSession
    from envbuilder.publish.publish_all import PublishOptions, publish_all
    from envbuilder.publish.results import PublishDocument, PublishRow
    from envbuilder.publish.tags import destination
    from envbuilder.pypi.open_index import open_index
    from envbuilder.registry.client import Repository
    from envbuilder.support.console import Console

    to, console = destination(order.repository), Console()
    there = Repository(to, dict(os.environ)).manifest(order.environment)
    bare = PublishRow(environment=order.environment, repository=to.name)
    if there is not None:
        return PublishDocument(rows=(replace(bare, published=True, digest=there.digest),))
    engine = connect()
    built = build_rows(choice, workspace, engine, console, RunOptions(index=open_index())).rows[0]
    if built.error:
        return PublishDocument(rows=(replace(bare, error=built.error, exit_code=built.exit_code),))
    wish = PublishOptions(
        to, allow=("inconclusive",), profile="full" if order.profile == "full" else "quick", gpus=order.gpus
    )
    session = PublishSession(engine, workspace, console.say, dict(os.environ), describe())
    return publish_all(choice, wish, sealer, session)


def attacher_beside(
    registrar: Registrar, sealer: Sealer, exchange: Path, *, profile: str, gpus: int
) -> Callable[[str], Verdict]:
    """Return what has the container beside this one run the suite, judges what it says, and attaches the verdict."""
    from envbuilder.errors import PublishError
    from envbuilder.host import describe
    from envbuilder.publish.attestation import Attachment, PublishSession, ValidationTerms, attach_verdict, tools_for
    from envbuilder.publish.registry_image import RegistryImages
    from envbuilder.registry.client import Repository
    from envbuilder.support.console import Console
    from envbuilder.validation.validate import validate_beside
    from envbuilder.workspace import Workspace

    workspace, console = Workspace(Path.cwd()), Console()

    def attach(digest: str) -> Verdict:
        reference = registrar.repository.reference.at(digest)
        images = RegistryImages(Repository(reference, dict(os.environ)))

        def judge(asked: Reference) -> Verdict:
            image = images.image(str(asked))
            if image is None:
                raise PublishError(f"the registry has no {asked}")
            chosen = cast("Profile", profile)
            return validate_beside(exchange, image, str(asked), digest, profile=chosen, gpus=gpus)

        # Stating looks an image up and pulls it, and does nothing else with an engine.
        session = PublishSession(cast("Engine", images), workspace, console.say, dict(os.environ), describe())
        attachment = Attachment(reference, workspace.attached(digest), ValidationTerms(session.host, profile))
        return attach_verdict(attachment, tools_for(reference, session, sealer, judge))

    return attach


@contextmanager
def closing_beside(exchange: Path | None) -> Iterator[None]:
    """Tell the container beside this one that it is over, however this ends: it waits for a word."""
    from envbuilder.validation.suite_launcher import close

    try:
        yield
    finally:
        if exchange is not None:
            close(exchange)
