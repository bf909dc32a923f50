"""Options of the fleet commands, and what each command does with them."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.choice import choose, read_fleet
from envbuilder.compat.fleet import advertised
from envbuilder.engine.docker import connect
from envbuilder.errors import InfrastructureError, UsageError
from envbuilder.host import describe
from envbuilder.image.bases import NEEDED, ask_for_room
from envbuilder.jobs.fleet.build import build_and_publish, build_jobs
from envbuilder.jobs.fleet.dask_engine import LOCAL, DaskEngine, check_address
from envbuilder.jobs.fleet.dispatch import Dispatcher, Worker
from envbuilder.jobs.fleet.document import FleetDocument, FleetRow
from envbuilder.jobs.fleet.job import BuildSpec, HostSpec, Job, JobTerms, ValidationSpec, job_of
from envbuilder.jobs.fleet.prove import LocalHost, ProofDocument, check_host, check_suite, prove
from envbuilder.jobs.fleet.record import required, unpacked
from envbuilder.jobs.fleet.run import is_still_pending, jobs_of, run_here, run_jobs
from envbuilder.jobs.fleet.survey import FleetQuery, Lookup, survey
from envbuilder.publish.attestation import PublishSession, validate_and_attach
from envbuilder.publish.publish_all import sealer_of
from envbuilder.publish.results import PublishDocument
from envbuilder.publish.tags import destination
from envbuilder.publish.verify_request import MAX_SKEW_S, Registrar, duration, openers_of, registrar_of, trusting
from envbuilder.support import decoding
from envbuilder.support.console import Console
from envbuilder.validation import suite_plan
from envbuilder.validation.checks import Profile
from envbuilder.validation.validate import ValidationRequest
from envbuilder.validation.validate_request import of_record, validate_target
from envbuilder.verdict import HostRef, ImageStanding, Level, Verdict
from envbuilder.workspace import Workspace, temporary_folder, users_text, write_atomically

_Spec = TypeVar("_Spec", ValidationSpec, BuildSpec, HostSpec)

SIGNING_KEY = "TF_ENVBUILDER_SIGNING_KEY"
"""The variable with the path of a host's private key."""


class FleetOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of every command that reads a fleet's state."""

    matrix: str | None = None
    selectors: tuple[str, ...] = ()
    fleet: Path
    repository: str
    keys: tuple[Path, ...] = ()
    identity: str | None = None
    issuer: str | None = None
    max_age: str = "90d"
    again: bool = False
    profile: Profile = "quick"
    gpus: str = "auto"

    @property
    def terms(self) -> JobTerms:
        """The terms of each job: they include public keys, never a private one."""
        return JobTerms(
            max_age_s=duration(self.max_age),
            trusted=tuple(sorted(users_text(path) for path in self.keys)),
            identity=self.identity or "",
            issuer=self.issuer or "",
            profile=self.profile,
            gpus=self.gpus,
            again=self.again,
        )


class FleetRunOptions(FleetOptions, frozen=True, kw_only=True):
    """Options of `fleet run`."""

    signers: tuple[Path, ...] = ()
    keyless: bool = False
    dask: str | None = None
    build: bool = False
    timeout: str = "10m"
    insecure: bool = False


def host_classes(catalog: Catalog) -> dict[str, int]:
    host = describe()
    return advertised(host.driver, (gpu.name for gpu in host.gpus), platform.machine(), catalog)


def show(asked: Literal["plan", "status"], options: FleetOptions, catalog: Catalog) -> FleetDocument:
    query, registrar = _opened(options, catalog)
    return with_next(survey(asked, query, _lookup(query, registrar)), options)


def with_next(document: FleetDocument, options: FleetOptions) -> FleetDocument:
    """Add the commands that publish what is not published yet."""
    if not document.states.get("unpublished"):
        return document
    matrix = f" {options.matrix}" if options.matrix else ""
    text = f"envbuilder run{matrix}, then envbuilder publish{matrix} --to {document.repository} --key PRIVATE_KEY"
    return msgspec.structs.replace(document, next=f"{text}; or fleet run with --dask ADDRESS --build")


def pending_jobs(options: FleetOptions, catalog: Catalog) -> tuple[FleetDocument, tuple[Job, ...]]:
    """Return a fleet's state and the jobs of its pending validations, for export."""
    query, registrar = _opened(options, catalog)
    document = with_next(survey("plan", query, _lookup(query, registrar)), options)
    return document, tuple(jobs_of(document, query, options.terms, Workspace(Path.cwd())).values())


def run(options: FleetRunOptions, catalog: Catalog) -> FleetDocument:
    """Run pending validations on this host, or on a Dask scheduler's workers. Raises UsageError for wrong options."""
    if options.dask is not None:
        return with_next(_run_with_dask(options, options.dask, catalog), options)
    if options.build:
        raise UsageError(
            "--build needs --dask", hint="use --dask local, or run `envbuilder build` and `envbuilder publish`"
        )
    query, registrar = _opened(options, catalog)
    signing = Signing(options.signers, options.keyless)
    attach = _attacher(registrar, signing, query.host, query.choice.catalog, options)
    environments = {environment.id: environment for environment in query.choice.environments}

    def validate(row: FleetRow) -> Verdict:
        required(environments[row.environment], Workspace(Path.cwd()))
        return attach(row.digest, row.environment, Workspace(Path.cwd()))

    return with_next(run_here(query, _lookup(query, registrar), validate), options)


def _run_with_dask(options: FleetRunOptions, address: str, catalog: Catalog) -> FleetDocument:
    if options.signers or options.keyless:
        raise UsageError("with --dask the workers sign", hint=f"set {SIGNING_KEY} to the path of the key there")
    if address == LOCAL and not os.environ.get(SIGNING_KEY):
        raise UsageError("no signing key for the local worker", hint=f"set {SIGNING_KEY} to the path of its key")
    check_address(address, insecure=options.insecure)
    query, registrar = _opened(options, catalog)
    lookup, is_local = _lookup(query, registrar), address == LOCAL

    def builds(document: FleetDocument) -> Iterable[Job]:
        jobs = build_jobs(document, query.choice, Path.cwd(), profile=options.profile, gpus=options.gpus)
        return (job for job in jobs if not is_local or job.arch == query.arch)

    with DaskEngine(address, host_classes(catalog) if is_local else {}) as engine:
        dispatcher = Dispatcher(
            engine,
            partial(is_still_pending, query=query, lookup=lookup),
            Console().say,
            partial(_check_job, query=query, terms=options.terms),
            duration(options.timeout),
        )
        return run_jobs(
            dispatcher,
            query,
            lookup,
            options.terms,
            Workspace(Path.cwd()),
            build_jobs=builds if options.build else lambda _: (),
            local=is_local,
        )


def _check_job(worker: Worker, query: FleetQuery, terms: JobTerms) -> Job:
    """Return the job that a worker has to pass before its first other job, with the time of now."""
    spec = HostSpec(
        repository=query.repository,
        suite=query.suite,
        now=time.time(),
        worker=worker.address,
        **msgspec.structs.asdict(terms),
    )
    return job_of(spec, query.arch)


def check_spec(data: bytes | None, signing: Signing, catalog: Catalog) -> None:
    """Check that this host can run jobs: key, engine and disk, and with a specification suite, clock and registry.

    Raises UsageError or InfrastructureError for the first problem.
    """
    console = Console()
    sealer = sealer_of(signing.keys, keyless=signing.keyless, environment=os.environ, say=console.say)
    if data is not None:
        spec = _spec(data, HostSpec)
        check_suite(spec.suite, suite_plan.digest())
        if abs(late := time.time() - spec.now) > MAX_SKEW_S:
            raise InfrastructureError(
                f"this host's clock differs by {abs(late):.0f} s from that of the host that started the run",
                hint="set the clock; verdicts with a wrong time are refused",
            )
        registrar = _registrar(spec, catalog)
        trusting(sealer, registrar.openers)
        registrar.repository.manifest("envbuilder-check")
    ask_for_room("a validation", NEEDED["cpu"], connect())


def _opened(options: FleetOptions, catalog: Catalog) -> tuple[FleetQuery, Registrar]:
    to = destination(options.repository)
    openers = openers_of(options.keys, options.identity, options.issuer)
    registrar = registrar_of(to, os.environ, openers, catalog.gpu_model, duration(options.max_age))
    query = FleetQuery(
        choose(options.matrix, options.selectors, Workspace(Path.cwd()), catalog),
        read_fleet(options.fleet, catalog),
        to.name,
        suite_plan.digest(),
        describe(),
        platform.machine(),
        options.again,
    )
    return query, registrar


def _lookup(query: FleetQuery, registrar: Registrar) -> Lookup:
    """Return the state of images by the tags under which the matrix publishes them."""
    tags = {environment.id: environment.image_tag for environment in query.choice.environments}

    def lookup(environment: str, level: Level, kinds: Iterable[tuple[str, str]]) -> ImageStanding | None:
        return registrar.standing(environment, level, kinds, tags[environment])

    return lookup


class Signing(msgspec.Struct, frozen=True):
    """Keys that sign; without any, the key of this host's variable, or this CI job's identity with ``keyless``."""

    signers: tuple[Path, ...] = ()
    keyless: bool = False

    @property
    def keys(self) -> tuple[Path, ...]:
        own = os.environ.get(SIGNING_KEY, "")
        return self.signers or ((Path(own),) if own and not self.keyless else ())


def prove_spec(data: bytes, signing: Signing, catalog: Catalog) -> ProofDocument:
    """Run the validation of a job specification (JSON) on this host."""
    spec = _spec(data, ValidationSpec)
    host = describe()
    registrar = _registrar(spec, catalog)
    local = LocalHost(host, platform.machine(), suite_plan.digest(), catalog)
    check_host(spec, local)
    attach = _attacher(registrar, signing, host, catalog, spec)
    with temporary_folder("record") as folder:
        record = unpacked(spec.record, folder)
        return prove(spec, local, registrar.standing, lambda: attach(spec.digest, spec.environment, record))


def _registrar(spec: ValidationSpec | HostSpec, catalog: Catalog) -> Registrar:
    """Return the repository of a specification, with the signers that it trusts."""
    with temporary_folder("trusted") as folder:
        paths = tuple(folder / f"{number}.pub" for number in range(len(spec.trusted)))
        for path, pem in zip(paths, spec.trusted, strict=True):
            write_atomically(path, pem.encode())
        openers = openers_of(paths, spec.identity or None, spec.issuer or None)
    return registrar_of(destination(spec.repository), os.environ, openers, catalog.gpu_model, spec.max_age_s)


def make_spec(data: bytes, signing: Signing, catalog: Catalog) -> PublishDocument:
    """Build and publish the image of a job specification (JSON) on this host."""
    return build_and_publish(_spec(data, BuildSpec), Path.cwd(), catalog, signing.keys, keyless=signing.keyless)


def _spec(data: bytes, kind: type[_Spec]) -> _Spec:
    try:
        return decoding.from_json(data, kind)
    except decoding.DamagedError as error:
        raise UsageError(
            f"not a job specification: {error}", hint="`envbuilder fleet run` and `envbuilder fleet export` write them"
        ) from error


def _attacher(
    registrar: Registrar, signing: Signing, host: HostRef, catalog: Catalog, terms: FleetOptions | ValidationSpec
) -> Callable[[str, str, Workspace], Verdict]:
    """Return a function that validates a digest on this host and attaches the verdict.

    Its arguments are the digest, the environment, and the workspace with the environment's record.

    Raises UsageError if the key that signs is not among the trusted ones.
    """
    workspace, console = Workspace(Path.cwd()), Console()
    signer = sealer_of(signing.keys, keyless=signing.keyless, environment=os.environ, say=console.say)
    sealer = trusting(signer, registrar.openers)
    session = PublishSession(connect(), workspace, console.say, dict(os.environ), host)
    request = ValidationRequest(profile=terms.profile, gpus=terms.gpus)
    validate = partial(validate_target, workspace=workspace, console=console, catalog=catalog)

    def attach(digest: str, environment: str, record: Workspace) -> Verdict:
        reference = registrar.repository.reference.at(digest)
        return validate_and_attach(of_record(request, environment, record), reference, session, sealer, validate)

    return attach
