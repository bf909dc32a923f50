"""Plan, show, export and run a fleet's pending validations: on this host, or on the workers of a Dask scheduler."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.choice import choose, read_fleet
from envbuilder.compat.fleet import advertised
from envbuilder.errors import ExitCode, UsageError
from envbuilder.host import describe
from envbuilder.jobs.fleet.job import BuildSpec, Job, ValidationSpec, required
from envbuilder.jobs.fleet.prove import SIGNING_KEY, Signing, prove
from envbuilder.jobs.fleet.survey import FleetDocument, FleetQuery, FleetRow, level_of, survey
from envbuilder.jobs.fleet.workers import Attempts, DaskEngine, Dispatcher, check_address, with_patience
from envbuilder.publish.tags import destination
from envbuilder.publish.verify_request import Registrar, duration, openers_of, trusting
from envbuilder.registry.client import Repository
from envbuilder.support.console import Console
from envbuilder.validation import suite_plan
from envbuilder.validation.checks import Profile
from envbuilder.workspace import Workspace, users_text


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

    def terms(self) -> dict[str, Any]:
        """Return what all jobs of a run have in common. They include public keys, never a private one."""
        return {
            "repository": destination(self.repository).name,
            "suite": suite_plan.digest(),
            "profile": self.profile,
            "gpus": self.gpus,
            "again": self.again,
            "max_age_s": duration(self.max_age),
            "trusted": tuple(sorted(users_text(path) for path in self.keys)),
            "identity": self.identity or "",
            "issuer": self.issuer or "",
        }


class FleetRunOptions(FleetOptions, frozen=True, kw_only=True):
    """Options of `fleet run`."""

    signers: tuple[Path, ...] = ()
    keyless: bool = False
    dask: str | None = None
    build: bool = False
    timeout: str = "10m"
    insecure: bool = False


def show(asked: Literal["plan", "status"], options: FleetOptions, catalog: Catalog) -> FleetDocument:
    return survey(asked, opened(options, catalog))


def pending_jobs(options: FleetOptions, catalog: Catalog) -> tuple[FleetDocument, tuple[Job, ...]]:
    """Return a fleet's state and the jobs of its pending validations, for export."""
    query = opened(options, catalog)
    document = survey("plan", query)
    return document, tuple(_jobs_of(document, query, options).values())


def opened(options: FleetOptions, catalog: Catalog) -> FleetQuery:
    openers = openers_of(options.keys, options.identity, options.issuer)
    to = destination(options.repository)
    return FleetQuery(
        choose(options.matrix, options.selectors, Workspace.here(), catalog),
        read_fleet(options.fleet, catalog),
        Registrar(Repository(to, os.environ), openers, catalog.gpu_model, duration(options.max_age)),
        describe(),
        matrix=options.matrix or "",
        again=options.again,
    )


def run(options: FleetRunOptions, catalog: Catalog) -> FleetDocument:
    """Run pending validations on this host, or on a Dask scheduler's workers. Raises UsageError for wrong options."""
    say = Console().say
    if options.dask is None:
        query, signing = opened(options, catalog), Signing(options.signers, options.keyless)
        trusting(signing.sealer(), query.registrar.openers)

        def run_here(jobs: Iterable[Job]) -> Mapping[str, Attempts]:
            return {job.name: Attempts(job, end=prove(job.data, signing, catalog)) for job in jobs}

        return _run_jobs(options, query, run_here, say)
    if options.signers or options.keyless:
        raise UsageError("with --dask the workers sign", hint=f"set {SIGNING_KEY} to the path of the key there")
    check_address(options.dask, insecure=options.insecure)
    query = opened(options, catalog)
    with DaskEngine(options.dask, say) as engine:
        return _run_jobs(options, query, Dispatcher(engine, say, duration(options.timeout)).run, say)


def host_classes(catalog: Catalog) -> dict[str, int]:
    host = describe()
    return advertised(host.driver, (gpu.name for gpu in host.gpus), platform.machine(), catalog)


_Place = tuple[str, str]


def _run_jobs(
    options: FleetRunOptions,
    query: FleetQuery,
    execute: Callable[[Iterable[Job]], Mapping[str, Attempts]],
    say: Callable[[str], None],
) -> FleetDocument:
    """Run what is pending as jobs, first the builds of missing images if that is wanted, and return the state after."""
    outcomes: dict[_Place, Attempts] = {}
    look = partial(with_patience, partial(survey, "run", query), say)
    for build in (True, False) if options.build else (False,):
        jobs = _jobs_of(look(), query, options, build=build, local=options.dask is None)
        ended = execute(jobs.values())
        outcomes |= {place: ended[job.name] for place, job in jobs.items()}
    document = look()
    rows = tuple(_with_outcome(row, outcomes.get((row.environment, row.kind))) for row in document.rows)
    attached = (
        one.job.spec.digest
        for one in outcomes.values()
        if isinstance(one.job.spec, ValidationSpec) and one.end is not None and one.end.did == "attached"
    )
    return msgspec.structs.replace(document, rows=rows, ran=tuple(dict.fromkeys(attached)))


def _jobs_of(
    document: FleetDocument, query: FleetQuery, options: FleetOptions, *, build: bool = False, local: bool = False
) -> dict[_Place, Job]:
    """Return the job of each pending validation, or of each missing image; with ``local`` only those for this host.

    The records of the environments are those of this folder. Raises UsageError if it lacks one that is necessary.
    """
    environments = {environment.id: environment for environment in query.choice.environments}
    record = cache(lambda name: required(environments[name], Workspace.here()))
    terms, jobs = options.terms(), dict[_Place, Job]()
    for row in document.rows:
        environment = environments[row.environment]
        is_here = environment.arch == query.arch if build else row.here
        if not (row.state == "unpublished" if build else row.left) or (local and not is_here):
            continue
        common = {**terms, "environment": row.environment, "arch": environment.arch, "record": record(row.environment)}
        spec: ValidationSpec | BuildSpec
        if build:
            spec = BuildSpec(**common, matrix=query.choice.matrix)
        else:
            common |= {"digest": row.digest, "gpu": row.gpu, "driver": row.driver}
            spec = ValidationSpec(**common, level=level_of(environment))
        hosts = tuple(host for host in query.fleet if host.name in row.hosts)
        jobs[row.environment, row.kind] = Job(spec, hosts)
    return jobs


def _with_outcome(row: FleetRow, outcome: Attempts | None) -> FleetRow:
    """Report on a pending row why its job changed nothing: the reasons of a verdict, or an error."""
    if outcome is None or not (row.left or row.state == "unpublished"):
        return row
    end = outcome.end
    if end is not None and end.did in ("attached", "stands", "published"):
        return msgspec.structs.replace(row, why="; ".join((*end.reasons, row.why)))
    error = outcome.error or ("; ".join(end.reasons) if end else "nothing is known about its end")
    code = end.exit_code if end is not None and end.exit_code in set(ExitCode) else ExitCode.INFRASTRUCTURE
    return msgspec.structs.replace(row, error=error, exit_code=code)
