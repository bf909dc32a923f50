"""Show which environment is validated on which host class; run what is pending, or export it as jobs."""

import hashlib
import os
import platform
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.choice import Choice, choose, read_fleet
from envbuilder.compat.fleet import Cell, FleetHost, HostGroup, host_groups, is_of_class, place
from envbuilder.environment import Environment
from envbuilder.errors import ExitCode, UsageError
from envbuilder.host import describe
from envbuilder.jobs.fleet import job as fleet_job
from envbuilder.jobs.fleet.job import CODES, Job, ProofDocument, RowState, with_patience
from envbuilder.jobs.fleet.workers import DaskEngine, Dispatcher, check_address
from envbuilder.publish.tags import destination
from envbuilder.publish.verification import advising
from envbuilder.publish.verify_request import Registrar, openers_of
from envbuilder.registry.client import Repository
from envbuilder.support import decoding
from envbuilder.support.architectures import ARCHS
from envbuilder.support.console import Console
from envbuilder.support.templates import rendered, text_template
from envbuilder.support.terminal_text import duration
from envbuilder.support.threads import in_parallel
from envbuilder.validation import suite_plan
from envbuilder.validation.suite_plan import Profile
from envbuilder.verdict import HostClassState, HostRef
from envbuilder.workspace import Workspace, users_text, write_atomically


class FleetOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the commands; from ``profile`` on of `fleet run` or `fleet export` only."""

    matrix: str | None = None
    selectors: tuple[str, ...] = ()
    fleet: Path
    repository: str
    keys: tuple[Path, ...] = ()
    max_age: str = "90d"
    again: bool = False
    profile: Profile = "quick"
    dask: str = "local"
    build: bool = False
    timeout: str = "10m"
    insecure: bool = False
    scheduler: str = ""
    runner: str = ""
    pull_secret: str = ""
    output: Path = Path("out/fleet")


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
    """Result of `fleet plan`, `fleet status` and `fleet run`; ``suite`` and ``ran`` (what a run validated) are digests.

    ``states`` counts the rows by state, ``left`` the pending validations, ``left_here`` those for this host. ``next``
    is what to do about images that are not published.
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

    def survey(self, asked: Literal["plan", "status", "run"]) -> FleetDocument:
        to = self.registrar.repository.reference
        with advising(to):
            found = in_parallel(partial(self._rows, host_groups(self.hosts)), self.choice.environments)
        rows = tuple(row for same in found for row in same)
        states = Counter[str](row.state for row in rows)
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

    def _rows(self, groups: dict[HostGroup, FleetHost], environment: Environment) -> list[FleetRow]:
        """Return one row for each host class, a GPU model with a driver: first the compatible ones."""
        catalog, placed = self.choice.catalog, dict[tuple[str, str], list[tuple[HostGroup, Cell]]]()
        for group, cell in zip(groups, place((environment,), tuple(groups.values()), catalog), strict=True):
            driver, gpus = (group.driver or "").lstrip("Rr"), group.gpus if environment.flavor == "gpu" else ()
            models = dict.fromkeys((catalog.gpu_model(gpu) or gpu, driver) for gpu in gpus if driver)
            for host_class in models or (("", ""),):
                placed.setdefault(host_class, []).append((group, cell))
        works = [one for one, pairs in placed.items() if any(cell.compatible is not False for _, cell in pairs)]
        tag, suite, rows = environment.image_tag, suite_plan.digest(), []
        image = self.registrar.standing(environment.id, environment.flavor, works, tag) if works else None
        standings = {(one.gpu, one.driver): one for one in image.kinds} if image else {}
        for gpu, driver in dict.fromkeys((*works, *placed)):
            pairs, is_possible = placed[gpu, driver], (gpu, driver) in works
            hosts = [group for group, cell in pairs if (cell.compatible is not False) == is_possible]
            state: dict[str, Any] = {"state": "unpublished"}
            if not is_possible:
                state = {"state": "impossible", "why": pairs[0][1].why}
            elif image is not None and (standing := standings.get((gpu, driver))):
                left = fleet_job.is_pending(standing, suite, again=self.options.again)
                state = {**msgspec.structs.asdict(standing), "digest": image.digest, "left": left}
            names = [one.name for one in self.host.gpus]
            fits = is_of_class(gpu, driver, self.host.driver, names, catalog) if gpu else environment.flavor == "cpu"
            kind = f"{gpu}/{driver}" if gpu else "any host" if environment.flavor == "cpu" else "no GPU"
            row = FleetRow(
                **state | {"kind": kind, "gpu": gpu, "driver": driver},
                environment=environment.id,
                hosts=tuple(name for host in hosts for name in host.hosts),
                count=sum(host.count for host in hosts),
                here=fits and environment.arch == self.arch,
                exit_code=CODES.get(state["state"], ExitCode.NO_CLAIM),
            )
            rows.append(row)
        return rows

    def jobs(self, document: FleetDocument, *, build: bool = False, local: bool = False) -> dict[tuple[str, str], Job]:
        """Return the job of each pending validation, or of each missing image; with ``local`` those for this host.

        Raises UsageError if this folder lacks the record of an environment.
        """
        options, jobs = self.options, {}
        environments = {environment.id: environment for environment in self.choice.environments}
        record = cache(lambda name: fleet_job.packed(environments[name], Workspace.here(options.matrix)))
        trusted = tuple(sorted(map(users_text, options.keys)))  # public keys, never a private one
        for row in document.rows:
            environment = environments[row.environment]
            is_here = environment.arch == self.arch if build else row.here
            if not (row.state == "unpublished" if build else row.left) or (local and not is_here):
                continue
            image = {"digest": row.digest, "gpu": row.gpu, "driver": row.driver}
            work: dict[str, Any] = {"matrix": self.choice.matrix} if build else image
            jobs[row.environment, row.kind] = Job(
                repository=document.repository,
                environment=row.environment,
                level=environment.flavor,
                arch=environment.arch,
                suite=document.suite,
                record=record(row.environment),
                max_age_s=self.registrar.max_age_s,
                trusted=trusted,
                profile=options.profile,
                again=options.again,
                **work,
            )
        return jobs


def open_fleet(options: FleetOptions, catalog: Catalog) -> FleetQuery:
    openers = openers_of(options.keys, None, None)
    repository = Repository(destination(options.repository), os.environ)
    choice = choose(options.matrix, options.selectors, Workspace.here(), catalog)
    registrar = Registrar(repository, openers, catalog.gpu_names, duration(options.max_age))
    return FleetQuery(options, choice, read_fleet(options.fleet, catalog), registrar, describe())


def run(options: FleetOptions, catalog: Catalog) -> FleetDocument:
    """Run what is pending, on this host or on Dask's workers, and return the state after; first missing builds."""
    say, is_local = Console().say, options.dask == "local"
    if not is_local:
        check_address(options.dask, insecure=options.insecure)
    fleet, ends, attached = open_fleet(options, catalog), dict[tuple[str, str], ProofDocument](), dict[str, None]()
    look = partial(with_patience, partial(fleet.survey, "run"), say)
    with ExitStack() as stack:
        if is_local:
            fleet_job.trusted_signer(fleet.registrar.openers)
        else:
            engine = stack.enter_context(closing(DaskEngine(options.dask, say)))
            dispatcher = Dispatcher(engine, say, duration(options.timeout))
        for build in (True, False) if options.build else (False,):
            jobs = fleet.jobs(look(), build=build, local=is_local)
            unique = {job.name: job for job in jobs.values()}
            if is_local:
                ended = {name: fleet_job.prove(job.data, catalog) for name, job in unique.items()}
            else:
                ended = dispatcher.run(unique)
            ends |= {place: ended[job.name] for place, job in jobs.items()}
            attached |= {job.digest: None for name, job in unique.items() if ended[name].did == "attached"}
        document: FleetDocument = look()
    rows = {(row.environment, row.kind): row for row in document.rows}
    for key, row in rows.items():  # why its job changed nothing: the reasons of a verdict, or an error
        if (end := ends.get(key)) is not None and (row.left or row.state == "unpublished"):
            code = end.exit_code if end.exit_code in set(ExitCode) else ExitCode.INFRASTRUCTURE
            said: dict[str, Any] = {"error": "; ".join(end.reasons), "exit_code": code}
            if end.did in ("attached", "stands", "published"):
                said = {"why": "; ".join((*end.reasons, row.why))}
            rows[key] = msgspec.structs.replace(row, **said)
    return msgspec.structs.replace(document, rows=tuple(rows.values()), ran=tuple(attached))


_SCHEDULERS = {"slurm": ("slurm.sbatch", "constraint"), "kubernetes": ("kubernetes-job.yaml", "labels")}
"""The template of a scheduler, and the field of the fleet file that selects its nodes."""


def render_jobs(
    name: str, jobs: Iterable[Job], hosts: Mapping[str, Sequence[FleetHost]], *, runner: str, **values: str
) -> dict[str, str]:
    """Return a file for each host class, by its name. Raises UsageError if its ``hosts`` do not select nodes."""
    if name == "kubernetes" and not runner:
        hint = "--runner IMAGE; docs/how-to/validate-a-fleet.md shows how to build it"
        raise UsageError("Kubernetes needs an image that contains envbuilder", hint=hint)
    by_class: dict[str, dict[str, Job]] = {}
    for job in jobs:
        by_class.setdefault(job.host_class, {})[job.name] = job
    source, field = _SCHEDULERS[name]
    template = text_template(f"{source}.j2", {"quote": shlex.quote})
    files = {}
    for host_class, same in by_class.items():
        first = next(iter(same.values()))
        of_class = hosts[host_class] if first.gpu else ()
        nodes: Any = next(filter(None, (getattr(host, field) for host in of_class)), {})
        if first.gpu and not nodes:
            text = f"no row of the fleet file has {field} for {host_class}: any node of {name.title()} would take it"
            hint = f"add {field} to {of_class[0].name}: docs/how-to/validate-a-fleet.md shows where they are"
            raise UsageError(text, hint=hint)
        file = "-".join(re.findall(r"[a-zA-Z0-9.]+", host_class)) + Path(source).suffix
        # Named by its content: a scheduler that does not change a job takes the next export as well.
        key = hashlib.sha256("\n".join(same).encode()).hexdigest()[:12]
        work = {"job_name": f"{first.name.rpartition('-')[0]}-{key}", "first": first, "nodes": nodes}
        arch = next(docker for docker, arch in ARCHS.items() if arch == first.arch)
        specs = [decoding.lossy(job.data) for job in same.values()]
        files[file] = template.render(file=file, specs=specs, arch=arch, runner=runner, **work, **values)
    return files


def answer(asked: Literal["plan", "status", "run", "export"], options: FleetOptions, catalog: Catalog) -> FleetDocument:
    if asked == "run":
        return run(options, catalog)
    fleet = open_fleet(options, catalog)
    document = fleet.survey("status" if asked == "status" else "plan")
    if asked == "export":
        hosts = {row.kind: [one for one in fleet.hosts if one.name in row.hosts] for row in document.rows if row.left}
        cluster = {"matrix": document.matrix, "runner": options.runner, "pull_secret": options.pull_secret}
        files = render_jobs(options.scheduler, fleet.jobs(document).values(), hosts, **cluster)
        for name, content in files.items():
            write_atomically(options.output / name, content.encode())
            Console().say(f"wrote {options.output / name}")
        if not files:
            Console().say("nothing is left to validate: no file is written")
    return document


def as_text(document: FleetDocument) -> str:
    return rendered("jobs/fleet", document=document)
