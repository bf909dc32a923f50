"""Which environment is validated on which host class of a fleet, and which validations are pending."""

from __future__ import annotations

import platform
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.choice import Choice
from envbuilder.compat.fleet import Cell, FleetHost, HostGroup, host_groups, is_of_class, place
from envbuilder.environment import Environment
from envbuilder.errors import ExitCode
from envbuilder.publish.verification import advising
from envbuilder.publish.verify_request import Registrar
from envbuilder.support.tables import table
from envbuilder.validation import suite_plan
from envbuilder.verdict import HostClassState, HostRef, Level, StateName

PARALLEL_LOOKUPS = 8
"""Lookups in the registry at the same time; each one mostly waits."""

RowState = StateName | Literal["unpublished", "impossible"]
"""``unpublished``: the registry has no such image. ``impossible``: the compatibility rules say no."""


class FleetRow(msgspec.Struct, frozen=True, kw_only=True):
    """One environment on one host class (``any host`` if it needs no GPU).

    ``hosts`` are names in the fleet file, ``count`` is how many hosts they are. ``left``: a validation is pending.
    ``here``: this host belongs to the class. ``level``, ``ran_on``, ``finished`` and ``age_s`` (seconds) describe the
    accepted PASSED; without one, ``why`` is the reason. ``error`` is why a run reached no verdict.
    """

    environment: str
    kind: str
    gpu: str = ""
    driver: str = ""
    hosts: tuple[str, ...]
    count: int
    digest: str = ""
    state: RowState
    left: bool = False
    here: bool = False
    level: Level | None = None
    ran_on: str | None = None
    finished: str = ""
    age_s: float | None = None
    why: str = ""
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
    """A matrix's environments, a fleet's hosts and a repository.

    ``matrix`` is the matrix as the user names it. ``host`` and ``arch`` describe this host. ``again``: results of this
    suite without an answer are pending too.
    """

    choice: Choice
    fleet: tuple[FleetHost, ...]
    registrar: Registrar
    host: HostRef
    arch: str = platform.machine()
    matrix: str = ""
    again: bool = False

    @property
    def repository(self) -> str:
        return self.registrar.repository.reference.name

    def is_here(self, environment: Environment, gpu: str, driver: str) -> bool:
        """Return True if this host belongs to a class, by its own driver and GPUs."""
        if environment.arch != self.arch:
            return False
        if not gpu:
            return environment.flavor == "cpu"
        return is_of_class(gpu, driver, self.host.driver, [one.name for one in self.host.gpus], self.choice.catalog)


def survey(asked: Literal["plan", "status", "run"], query: FleetQuery) -> FleetDocument:
    pool = ThreadPoolExecutor(PARALLEL_LOOKUPS)
    try:
        with advising(query.registrar.repository.reference):
            found = pool.map(partial(_rows, kinds=host_groups(query.fleet), query=query), query.choice.environments)
            rows = tuple(row for same in found for row in same)
    finally:
        pool.shutdown(cancel_futures=True)
    states: Counter[str] = Counter(row.state for row in rows)
    return FleetDocument(
        asked=asked,
        matrix=query.choice.matrix.name,
        repository=query.repository,
        suite=suite_plan.digest(),
        rows=rows,
        states=dict(states),
        left=sum(row.left for row in rows),
        left_here=sum(row.left and row.here for row in rows),
        next=_next(query) if states["unpublished"] else "",
    )


def _next(query: FleetQuery) -> str:
    """Return the commands that publish what is not published yet."""
    matrix = f" {query.matrix}" if query.matrix else ""
    text = f"envbuilder run{matrix}, then envbuilder publish{matrix} --to {query.repository} --key PRIVATE_KEY"
    return f"{text}; or fleet run with --build"


def _rows(environment: Environment, kinds: dict[HostGroup, FleetHost], query: FleetQuery) -> list[FleetRow]:
    """Return one row for each host class: first the compatible ones, then the impossible ones."""
    by_class: dict[tuple[str, str], list[tuple[HostGroup, Cell]]] = {}
    for host, cell in zip(kinds, place((environment,), tuple(kinds.values()), query.choice.catalog), strict=True):
        for host_class in _classes(environment, host, query.choice.catalog):
            by_class.setdefault(host_class, []).append((host, cell))
    works = {name: [host for host, cell in found if cell.compatible is not False] for name, found in by_class.items()}
    wanted = [host_class for host_class, hosts in works.items() if hosts]
    level, tag = level_of(environment), environment.image_tag
    image = query.registrar.standing(environment.id, level, wanted, tag) if wanted else None
    standings, rows = {(one.gpu, one.driver): one for one in image.kinds} if image else {}, []
    for gpu, driver in sorted(by_class, key=lambda host_class: host_class not in wanted):
        found = by_class[gpu, driver]
        hosts = works[gpu, driver] or [host for host, _ in found]
        state: dict[str, Any] = {"state": "unpublished", "here": query.is_here(environment, gpu, driver)}
        if not works[gpu, driver]:
            state = {"state": "impossible", "why": found[0][1].why}
        elif image is not None and (standing := standings.get((gpu, driver))):
            state |= {
                name: getattr(standing, name) for name in ("state", "level", "ran_on", "finished", "age_s", "why")
            }
            state |= {"digest": image.digest, "left": is_pending(standing, suite_plan.digest(), again=query.again)}
        any_host = "any host" if environment.flavor == "cpu" else "no GPU"
        row = FleetRow(
            environment=environment.id,
            kind=f"{gpu}/{driver}" if gpu else any_host,
            gpu=gpu,
            driver=driver,
            hosts=tuple(name for host in hosts for name in host.hosts),
            count=sum(host.count for host in hosts),
            exit_code=code_of(state["state"]),
            **state,
        )
        rows.append(row)
    return rows


def level_of(environment: Environment) -> Level:
    """Return the level that an environment has to reach: a GPU environment has to compute on a GPU."""
    return "cpu" if environment.flavor == "cpu" else "gpu"


def _classes(environment: Environment, host: HostGroup, catalog: Catalog) -> tuple[tuple[str, str], ...]:
    """Return the classes (GPU, driver) of a host: one for each GPU model, or any host if no GPU is used."""
    if environment.flavor == "cpu" or host.driver is None or not host.gpus:
        return (("", ""),)
    driver = host.driver.lstrip("Rr")
    return tuple(dict.fromkeys((catalog.gpu_model(gpu) or gpu, driver) for gpu in host.gpus))


def is_pending(standing: HostClassState, suite: str, *, again: bool) -> bool:
    """Return True if a validation has to run. A failure under this suite is final: it is not repeated until it passes.

    A result without an answer under this suite is repeated only with ``again``.
    """
    if standing.state in ("missing", "stale") or (again and standing.state in ("inconclusive", "refused")):
        return True
    return standing.state != "passed" and suite not in standing.suites


def code_of(state: RowState) -> int:
    """Return a row's exit code: an impossible combination is not a failure, a pending one is inconclusive."""
    return {"passed": ExitCode.DONE, "impossible": ExitCode.DONE, "failed": ExitCode.FAILED}.get(
        state, ExitCode.NO_CLAIM
    )


def as_text(document: FleetDocument) -> str:
    rows = []
    for row in document.rows:
        left = ("here" if row.here else "there") if row.left else "-"
        since = f"{row.finished} at level {row.level}" if row.finished else "-"
        rows.append((row.environment, row.kind, f"{row.count}", row.state, left, row.error or row.why or since))
    counted = [f"{number} {state}" for state, number in document.states.items()]
    counted += [f"{document.left} left, {document.left_here} of them for this host"]
    lines = [
        table(("environment", "host class", "hosts", "state", "left", "since or why"), rows),
        "",
        f"{document.matrix} in {document.repository}: {'; '.join(counted)}",
    ]
    lines += [f"ran: {', '.join(document.ran)}"] if document.ran else []
    lines += [f"next: {document.next}"] if document.next else []
    return "\n".join(lines)
