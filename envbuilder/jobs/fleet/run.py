"""Show which environment is validated on which host class, and run what is pending: here, or on Dask's workers."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.choice import Choice, choose, read_fleet
from envbuilder.compat.fleet import FleetHost, HostGroup, host_groups, is_of_class, place
from envbuilder.environment import Environment
from envbuilder.errors import ExitCode, UsageError
from envbuilder.host import describe
from envbuilder.jobs.fleet.job import Job, JobSpec, ProofDocument, RowState, code_of, is_pending, packed
from envbuilder.jobs.fleet.prove import SIGNING_KEY, Signing, prove
from envbuilder.jobs.fleet.workers import DaskEngine, Dispatcher, check_address, with_patience
from envbuilder.publish.tags import destination
from envbuilder.publish.verification import advising
from envbuilder.publish.verify_request import Registrar, duration, openers_of, trusting
from envbuilder.registry.client import Repository
from envbuilder.support.console import Console
from envbuilder.support.templates import rendered
from envbuilder.support.threads import in_parallel
from envbuilder.validation import suite_plan
from envbuilder.validation.suite_plan import Profile
from envbuilder.verdict import HostClassState, HostRef, Level
from envbuilder.workspace import Workspace, users_text


class FleetOptions(Signing, frozen=True, kw_only=True):
    """Options of every command that reads a fleet's state; from ``dask`` on, and those that sign, of `fleet run`."""

    matrix: str | None = None
    selectors: tuple[str, ...] = ()
    fleet: Path
    repository: str
    keys: tuple[Path, ...] = ()
    identity: str = ""
    issuer: str = ""
    max_age: str = "90d"
    again: bool = False
    profile: Profile = "quick"
    gpus: str = "auto"
    dask: str = "local"
    build: bool = False
    timeout: str = "10m"
    insecure: bool = False


class FleetRow(HostClassState, frozen=True, kw_only=True):
    """One environment on one host class (``any host`` if it needs no GPU).

    ``hosts`` are names in the fleet file, ``count`` is how many hosts they are. ``left``: a validation is pending.
    ``here``: this host belongs to the class. ``error`` is why a run reached no verdict.
    """

    environment: str
    gpu: str = ""
    driver: str = ""
    state: RowState  # type: ignore[assignment]  # those without an image too
    hosts: tuple[str, ...]
    count: int
    digest: str = ""
    left: bool = False
    here: bool = False
    error: str = ""
    exit_code: int = 0


class FleetDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `fleet plan`, `fleet status` and `fleet run`; ``suite`` is the digest of the installed suite.

    ``states`` counts the rows by state, ``left`` the pending validations, ``left_here`` those for this host. ``ran``
    are the digests that `fleet run` validated, in order. ``next`` is what to do about images that are not published.
    """

    schema: str = "envbuilder/fleet/v1"
    asked: Literal["plan", "status", "run"]
    matrix: str
    repository: str
    suite: str
    rows: tuple[FleetRow, ...]
    states: dict[str, int] = {}
    left: int = 0
    left_here: int = 0
    ran: tuple[str, ...] = ()
    next: str = ""


@dataclass(frozen=True)
class FleetQuery:
    """A matrix's environments, a fleet's hosts, a repository, and this host."""

    options: FleetOptions
    choice: Choice
    hosts: tuple[FleetHost, ...]
    registrar: Registrar
    host: HostRef
    arch: str = platform.machine()

    def is_here(self, environment: Environment, gpu: str, driver: str) -> bool:
        """Return True if this host belongs to a class, by its own driver and GPUs."""
        names = [one.name for one in self.host.gpus]
        fits = is_of_class(gpu, driver, self.host.driver, names, self.choice.catalog)
        return environment.arch == self.arch and (fits if gpu else environment.flavor == "cpu")

    def survey(self, asked: Literal["plan", "status", "run"]) -> FleetDocument:
        to, groups = self.registrar.repository.reference, host_groups(self.hosts)
        with advising(to):
            found = in_parallel(partial(_rows, groups=groups, fleet=self), self.choice.environments)
        rows = tuple(row for same in found for row in same)
        states: Counter[str] = Counter(row.state for row in rows)
        name = f" {self.options.matrix}" if self.options.matrix else ""
        publish = f"envbuilder run{name}, then envbuilder publish{name} --to {to.name} --key PRIVATE_KEY"
        return FleetDocument(
            asked=asked,
            matrix=self.choice.matrix.name,
            repository=to.name,
            suite=suite_plan.digest(),
            rows=rows,
            states=dict(states),
            left=sum(row.left for row in rows),
            left_here=sum(row.left and row.here for row in rows),
            next=f"{publish}; or fleet run with --build" if states["unpublished"] else "",
        )

    def jobs(self, document: FleetDocument, *, build: bool = False, local: bool = False) -> dict[tuple[str, str], Job]:
        """Return the job of each pending validation, or of each missing image; with ``local`` only those for this host.

        The records of the environments are those of this folder. Raises UsageError if it lacks one that is necessary.
        """
        options, jobs = self.options, {}
        environments = {environment.id: environment for environment in self.choice.environments}
        record = cache(lambda name: packed(environments[name], Workspace.here(options.matrix)))
        terms = {name: getattr(options, name) for name in ("profile", "gpus", "again", "identity", "issuer")}
        trusted = tuple(sorted(map(users_text, options.keys)))  # public keys, never a private one
        for row in document.rows:
            environment = environments[row.environment]
            is_here = environment.arch == self.arch if build else row.here
            if not (row.state == "unpublished" if build else row.left) or (local and not is_here):
                continue
            image: dict[str, Any] = {"digest": row.digest, "gpu": row.gpu, "driver": row.driver}
            spec = JobSpec(
                repository=document.repository,
                environment=row.environment,
                level=_level(environment),
                arch=environment.arch,
                suite=document.suite,
                record=record(row.environment),
                max_age_s=self.registrar.max_age_s,
                trusted=trusted,
                **terms,
                **({"matrix": self.choice.matrix} if build else image),
            )
            jobs[row.environment, row.kind] = Job(spec, tuple(host for host in self.hosts if host.name in row.hosts))
        return jobs


def open_fleet(options: FleetOptions, catalog: Catalog) -> FleetQuery:
    openers = openers_of(options.keys, options.identity, options.issuer)
    repository = Repository(destination(options.repository), os.environ)
    choice = choose(options.matrix, options.selectors, Workspace.here(), catalog)
    registrar = Registrar(repository, openers, catalog.gpu_model, duration(options.max_age))
    return FleetQuery(options, choice, read_fleet(options.fleet, catalog), registrar, describe())


def _rows(environment: Environment, groups: dict[HostGroup, FleetHost], fleet: FleetQuery) -> list[FleetRow]:
    """Return one row for each host class: first the compatible ones, then the impossible ones."""
    catalog, why = fleet.choice.catalog, dict[tuple[str, str], str]()
    works, fails = dict[tuple[str, str], list[HostGroup]](), dict[tuple[str, str], list[HostGroup]]()
    for group, cell in zip(groups, place((environment,), tuple(groups.values()), catalog), strict=True):
        for host_class in _classes(environment, group, catalog):
            (fails if cell.compatible is False else works).setdefault(host_class, []).append(group)
            why.setdefault(host_class, cell.why)
    tag, suite, rows = environment.image_tag, suite_plan.digest(), []
    image = fleet.registrar.standing(environment.id, _level(environment), works, tag) if works else None
    standings = {(one.gpu, one.driver): one for one in image.kinds} if image else {}
    for gpu, driver in (*works, *(one for one in fails if one not in works)):
        hosts = works.get((gpu, driver)) or fails[gpu, driver]
        state: dict[str, Any] = {"state": "unpublished"}
        if (gpu, driver) not in works:
            state = {"state": "impossible", "why": why[gpu, driver]}
        elif image is not None and (standing := standings.get((gpu, driver))):
            left = is_pending(standing, suite, again=fleet.options.again)
            state = {**msgspec.structs.asdict(standing), "digest": image.digest, "left": left}
        kind = f"{gpu}/{driver}" if gpu else "any host" if environment.flavor == "cpu" else "no GPU"
        row = FleetRow(
            **state | {"kind": kind, "gpu": gpu, "driver": driver},
            environment=environment.id,
            hosts=tuple(name for host in hosts for name in host.hosts),
            count=sum(host.count for host in hosts),
            here=fleet.is_here(environment, gpu, driver),
            exit_code=code_of(state["state"]),
        )
        rows.append(row)
    return rows


def _level(environment: Environment) -> Level:
    """Return the level that an environment has to reach: a GPU environment has to compute on a GPU."""
    return "cpu" if environment.flavor == "cpu" else "gpu"


def _classes(environment: Environment, host: HostGroup, catalog: Catalog) -> tuple[tuple[str, str], ...]:
    """Return the classes (GPU, driver) of a host: one for each GPU model, or any host if no GPU is used."""
    if environment.flavor == "cpu" or host.driver is None or not host.gpus:
        return (("", ""),)
    driver = host.driver.lstrip("Rr")
    return tuple(dict.fromkeys((catalog.gpu_model(gpu) or gpu, driver) for gpu in host.gpus))


def run(options: FleetOptions, catalog: Catalog) -> FleetDocument:
    """Run pending validations on this host, or on a Dask scheduler's workers. Raises UsageError for wrong options."""
    say = Console().say
    if options.dask == "local":
        fleet = open_fleet(options, catalog)
        trusting(options.sealer(), fleet.registrar.openers)

        def run_here(jobs: Iterable[Job]) -> dict[str, ProofDocument]:
            return {job.name: prove(job.data, options, catalog) for job in jobs}

        return _run_jobs(fleet, run_here, say)
    if options.signers or options.keyless:
        raise UsageError("with --dask the workers sign", hint=f"set {SIGNING_KEY} to the path of the key there")
    check_address(options.dask, insecure=options.insecure)
    fleet = open_fleet(options, catalog)
    with DaskEngine(options.dask, say) as engine:
        return _run_jobs(fleet, Dispatcher(engine, say, duration(options.timeout)).run, say)


def _run_jobs(
    fleet: FleetQuery, execute: Callable[[Iterable[Job]], dict[str, ProofDocument]], say: Callable[[str], None]
) -> FleetDocument:
    """Run what is pending as jobs, first the builds of missing images if that is wanted, and return the state after."""
    ends: dict[tuple[str, str], ProofDocument] = {}
    attached: dict[str, None] = {}
    look = partial(with_patience, partial(fleet.survey, "run"), say)
    for build in (True, False) if fleet.options.build else (False,):
        jobs = fleet.jobs(look(), build=build, local=fleet.options.dask == "local")
        ended = execute(jobs.values())
        ends |= {place: ended[job.name] for place, job in jobs.items()}
        attached |= {job.spec.digest: None for job in jobs.values() if ended[job.name].did == "attached"}
    document = look()
    rows = tuple(_with_end(row, ends.get((row.environment, row.kind))) for row in document.rows)
    return msgspec.structs.replace(document, rows=rows, ran=tuple(attached))


def _with_end(row: FleetRow, end: ProofDocument | None) -> FleetRow:
    """Report on a pending row why its job changed nothing: the reasons of a verdict, or an error."""
    if end is None or not (row.left or row.state == "unpublished"):
        return row
    if end.did in ("attached", "stands", "published"):
        return msgspec.structs.replace(row, why="; ".join((*end.reasons, row.why)))
    code = end.exit_code if end.exit_code in set(ExitCode) else ExitCode.INFRASTRUCTURE
    return msgspec.structs.replace(row, error="; ".join(end.reasons), exit_code=code)


def as_text(document: FleetDocument) -> str:
    return rendered("jobs/fleet", document=document)
