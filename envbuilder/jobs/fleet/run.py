"""Plan, show, export and run a fleet's pending validations: on this host, or on the workers of a Dask scheduler."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Literal

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.choice import choose, read_fleet
from envbuilder.compat.fleet import advertised
from envbuilder.errors import EnvbuilderError, ExitCode, UsageError
from envbuilder.host import describe
from envbuilder.jobs.fleet.job import BuildSpec, HostSpec, Job, JobEnd, JobTerms, ValidationSpec, job_of
from envbuilder.jobs.fleet.prove import SIGNING_KEY, Signing, prove
from envbuilder.jobs.fleet.record import required
from envbuilder.jobs.fleet.survey import FleetDocument, FleetQuery, FleetRow, is_pending, level_of, survey
from envbuilder.jobs.fleet.workers import (
    LOCAL,
    Attempts,
    DaskEngine,
    Dispatcher,
    Worker,
    check_address,
    with_patience,
)
from envbuilder.publish.publish_all import sealer_of
from envbuilder.publish.tags import destination
from envbuilder.publish.verify_request import Registrar, duration, openers_of, registrar_of, trusting
from envbuilder.support import decoding
from envbuilder.support.console import Console
from envbuilder.validation import suite_plan
from envbuilder.validation.checks import Profile
from envbuilder.verdict import ImageStanding, Level
from envbuilder.workspace import Workspace, users_text

Execute = Callable[[Iterable[Job]], Mapping[str, Attempts]]
"""Runs jobs and returns their attempts by name."""


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


def show(asked: Literal["plan", "status"], options: FleetOptions, catalog: Catalog) -> FleetDocument:
    return _with_next(survey(asked, opened(options, catalog)[0]), options)


def pending_jobs(options: FleetOptions, catalog: Catalog) -> tuple[FleetDocument, tuple[Job, ...]]:
    """Return a fleet's state and the jobs of its pending validations, for export."""
    query, _ = opened(options, catalog)
    document = _with_next(survey("plan", query), options)
    return document, tuple(jobs_of(document, query, options.terms).values())


def run(options: FleetRunOptions, catalog: Catalog) -> FleetDocument:
    """Run pending validations on this host, or on a Dask scheduler's workers. Raises UsageError for wrong options."""
    if options.dask is not None:
        return _run_with_dask(options, options.dask, catalog)
    if options.build:
        raise UsageError(
            "--build needs --dask", hint="use --dask local, or run `envbuilder build` and `envbuilder publish`"
        )
    query, registrar = opened(options, catalog)
    signing = Signing(options.signers, options.keyless)
    trusting(sealer_of(signing.keys, keyless=signing.keyless, environment=os.environ), registrar.openers)

    def execute(jobs: Iterable[Job]) -> Mapping[str, Attempts]:
        return {job.name: Attempts(job, end=_end_here(job, signing, catalog)) for job in jobs}

    return run_jobs(options, query, execute, partial(survey, "run", query), local=True)


def _end_here(job: Job, signing: Signing, catalog: Catalog) -> JobEnd:
    try:
        document = prove(job.spec, signing, catalog)
    except EnvbuilderError as error:
        return JobEnd(error.exit_code, errors=f"error: {error}")
    return JobEnd(document.exit_code, msgspec.json.encode(document))


def _run_with_dask(options: FleetRunOptions, address: str, catalog: Catalog) -> FleetDocument:
    if options.signers or options.keyless:
        raise UsageError("with --dask the workers sign", hint=f"set {SIGNING_KEY} to the path of the key there")
    if address == LOCAL and not os.environ.get(SIGNING_KEY):
        raise UsageError("no signing key for the local worker", hint=f"set {SIGNING_KEY} to the path of its key")
    check_address(address, insecure=options.insecure)
    query, _ = opened(options, catalog)
    terms, say, local = options.terms, Console().say, address == LOCAL

    def check(worker: Worker) -> Job:
        """Return the job that a worker has to pass before its first other job, with the time of now."""
        spec = HostSpec(
            repository=query.repository,
            suite=query.suite,
            now=time.time(),
            worker=worker.address,
            **msgspec.structs.asdict(terms),
        )
        return job_of(spec, query.arch)

    with DaskEngine(address, host_classes(catalog) if local else {}) as engine:
        pending = partial(is_still_pending, query=query)
        dispatcher = Dispatcher(engine, pending, check, say, duration(options.timeout))
        look = partial(with_patience, partial(survey, "run", query), say)
        return run_jobs(options, query, dispatcher.run, look, local=local)


def host_classes(catalog: Catalog) -> dict[str, int]:
    host = describe()
    return advertised(host.driver, (gpu.name for gpu in host.gpus), platform.machine(), catalog)


def opened(options: FleetOptions, catalog: Catalog) -> tuple[FleetQuery, Registrar]:
    to = destination(options.repository)
    openers = openers_of(options.keys, options.identity, options.issuer)
    registrar = registrar_of(to, os.environ, openers, catalog.gpu_model, duration(options.max_age))
    choice = choose(options.matrix, options.selectors, Workspace(Path.cwd()), catalog)
    tags = {environment.id: environment.image_tag for environment in choice.environments}

    def lookup(environment: str, level: Level, kinds: Iterable[tuple[str, str]]) -> ImageStanding | None:
        return registrar.standing(environment, level, kinds, tags[environment])

    fleet = read_fleet(options.fleet, catalog)
    query = FleetQuery(
        choice, fleet, to.name, suite_plan.digest(), describe(), platform.machine(), lookup, options.again
    )
    return query, registrar


def _with_next(document: FleetDocument, options: FleetOptions) -> FleetDocument:
    """Add the commands that publish what is not published yet."""
    if not document.states.get("unpublished"):
        return document
    matrix = f" {options.matrix}" if options.matrix else ""
    text = f"envbuilder run{matrix}, then envbuilder publish{matrix} --to {document.repository} --key PRIVATE_KEY"
    return msgspec.structs.replace(document, next=f"{text}; or fleet run with --dask ADDRESS --build")


def run_jobs(
    options: FleetRunOptions,
    query: FleetQuery,
    execute: Execute,
    look: Callable[[], FleetDocument],
    *,
    local: bool,
) -> FleetDocument:
    """Run the pending validations, with ``local`` those for this host, as jobs and return the resulting state.

    Missing images are built and published before if that is wanted. ``look`` returns the state.
    """
    state, outcomes = look(), dict[_Place, Attempts]()
    if options.build:
        builds = {job.environment: job for job in build_jobs(state, query, options, local=local)}
        ended = execute(builds.values())
        outcomes |= {
            _place(row): ended[builds[row.environment].name] for row in state.rows if row.environment in builds
        }
        state = look() if builds else state
    jobs = jobs_of(state, query, options.terms, local=local)
    ended = execute(jobs.values())
    outcomes |= {place: ended[job.name] for place, job in jobs.items()}
    return _with_next(_with_outcomes(look(), outcomes), options)


_Place = tuple[str, str, str]


def _place(row: FleetRow) -> _Place:
    return row.environment, row.kind, row.digest


def build_jobs(
    document: FleetDocument, query: FleetQuery, options: FleetOptions, *, local: bool = False
) -> Iterable[Job]:
    """Yield a job for each environment that some host can run and that the repository lacks.

    Raises UsageError as `required` does: the hosts that validate the image later need the same record.
    """
    missing = {row.environment for row in document.rows if row.state == "unpublished"}
    for environment in query.choice.environments:
        if environment.id in missing and (not local or environment.arch == query.arch):
            spec = BuildSpec(
                repository=query.repository,
                environment=environment.id,
                matrix=query.choice.matrix,
                record=required(environment, Workspace(Path.cwd())),
                profile=options.profile,
                gpus=options.gpus,
            )
            yield job_of(spec, environment.arch)


def jobs_of(document: FleetDocument, query: FleetQuery, terms: JobTerms, *, local: bool = False) -> dict[_Place, Job]:
    """Return the job of each pending validation; with ``local`` only those for this host.

    The records of the environments are those of this folder. Raises UsageError if it lacks one that is necessary.
    """
    environments = {environment.id: environment for environment in query.choice.environments}
    record = cache(lambda name: required(environments[name], Workspace(Path.cwd())))
    jobs = {}
    for row in document.rows:
        if not row.left or (local and not row.here):
            continue
        environment = environments[row.environment]
        spec = ValidationSpec(
            repository=query.repository,
            digest=row.digest,
            environment=row.environment,
            level=level_of(environment),
            arch=environment.arch,
            gpu=row.gpu,
            driver=row.driver,
            suite=query.suite,
            record=record(row.environment),
            **msgspec.structs.asdict(terms),
        )
        jobs[_place(row)] = job_of(spec, environment.arch, (host for host in query.fleet if host.name in row.hosts))
    return jobs


def is_still_pending(job: Job, query: FleetQuery) -> bool:
    """Return True if a job's result is not in the registry; False if the tag names another digest by now."""
    if job.command == "make":
        return query.lookup(job.environment, "none", [("", "")]) is None
    spec = decoding.from_json(job.spec, ValidationSpec)
    image = query.lookup(spec.environment, spec.level, [(spec.gpu, spec.driver)])
    if image is None or image.digest != spec.digest:
        return False
    return is_pending(image.kinds[0], query.suite, again=query.again)


def _with_outcomes(document: FleetDocument, outcomes: Mapping[_Place, Attempts]) -> FleetDocument:
    """Report why jobs reached no verdict, and which digests were validated."""
    rows = (_with_outcome(row, outcomes.get(_place(row))) for row in document.rows)
    ran = (digest for (*_, digest), one in outcomes.items() if one.end is not None and one.end.answer.did == "attached")
    return msgspec.structs.replace(document, rows=tuple(rows), ran=tuple(dict.fromkeys(ran)))


def _with_outcome(row: FleetRow, outcome: Attempts | None) -> FleetRow:
    """Report on a pending row why its job changed nothing: the reasons of a verdict, or an error."""
    if outcome is None or not (row.left or row.state == "unpublished"):
        return row
    end = outcome.end
    if end is not None and end.answer.did:
        return msgspec.structs.replace(row, why="; ".join((*end.answer.reasons, row.why)))
    if end is not None and end.code == ExitCode.DONE:
        return row
    error = outcome.error or (end.reason if end is not None else "nothing is known about its end")
    code = end.code if end is not None and end.code in set(ExitCode) else ExitCode.INFRASTRUCTURE
    return msgspec.structs.replace(row, error=error, exit_code=code)
