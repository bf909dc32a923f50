"""Which environment is validated on which host class of a fleet, and which validations are pending."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.choice import Choice
from envbuilder.compat.fleet import Cell, FleetHost, HostKind, is_of_kind, kinds_of, place
from envbuilder.environment import Environment
from envbuilder.errors import ExitCode
from envbuilder.support.tables import table
from envbuilder.verdict import HostRef, ImageStanding, KindStanding, KindState, Level

Lookup = Callable[[str, Level, Iterable[tuple[str, str]]], ImageStanding | None]
"""Returns the state of an environment's published image, at a level, on each (GPU, driver); None: not published."""

PARALLEL_LOOKUPS = 8
"""Lookups in the registry at the same time; each one mostly waits."""

RowState = KindState | Literal["unpublished", "impossible"]
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
    """A matrix's environments, a fleet's hosts, a repository and the digest of the installed suite.

    ``host`` and ``arch`` describe this host. ``again``: results of this suite without an answer are pending too.
    """

    choice: Choice
    fleet: tuple[FleetHost, ...]
    repository: str
    suite: str
    host: HostRef
    arch: str
    lookup: Lookup
    again: bool = False


def survey(asked: Literal["plan", "status", "run"], query: FleetQuery) -> FleetDocument:
    kinds = kinds_of(query.fleet)

    def rows_of(environment: Environment) -> tuple[FleetRow, ...]:
        cells = place((environment,), tuple(kinds.values()), query.choice.catalog)
        return tuple(_rows(environment, tuple(zip(kinds, cells, strict=True)), query))

    pool = ThreadPoolExecutor(PARALLEL_LOOKUPS)
    try:
        rows = [row for found in pool.map(rows_of, query.choice.environments) for row in found]
    finally:
        pool.shutdown(cancel_futures=True)
    return FleetDocument(
        asked=asked,
        matrix=query.choice.matrix.name,
        repository=query.repository,
        suite=query.suite,
        rows=tuple(rows),
        states=dict(Counter(row.state for row in rows)),
        left=sum(row.left for row in rows),
        left_here=sum(row.left and row.here for row in rows),
    )


def _rows(environment: Environment, cells: tuple[tuple[HostKind, Cell], ...], query: FleetQuery) -> Iterator[FleetRow]:
    """Yield one row for each host class: first the compatible ones, then the impossible ones."""
    by_class: dict[tuple[str, str], list[tuple[HostKind, Cell]]] = {}
    for host, cell in cells:
        for host_class in _classes(environment, host, query.choice.catalog):
            by_class.setdefault(host_class, []).append((host, cell))
    works = {name: [host for host, cell in found if cell.compatible is not False] for name, found in by_class.items()}
    wanted = [host_class for host_class, hosts in works.items() if hosts]
    image = query.lookup(environment.id, level_of(environment), wanted) if wanted else None
    standings = {(one.gpu, one.driver): one for one in image.kinds} if image else {}
    for gpu, driver in sorted(by_class, key=lambda host_class: host_class not in wanted):
        found = by_class[gpu, driver]
        hosts = works[gpu, driver] or [host for host, _ in found]
        state: dict[str, Any] = {"state": "unpublished", "here": _is_here(environment, gpu, driver, query)}
        if not works[gpu, driver]:
            state = {"state": "impossible", "why": found[0][1].why}
        elif image is not None and (standing := standings.get((gpu, driver))):
            state |= {
                name: getattr(standing, name) for name in ("state", "level", "ran_on", "finished", "age_s", "why")
            }
            state |= {"digest": image.digest, "left": is_pending(standing, query.suite, again=query.again)}
        any_host = "any host" if environment.flavor == "cpu" else "no GPU"
        yield FleetRow(
            environment=environment.id,
            kind=f"{gpu}/{driver}" if gpu else any_host,
            gpu=gpu,
            driver=driver,
            hosts=tuple(name for host in hosts for name in host.hosts),
            count=sum(host.count for host in hosts),
            exit_code=code_of(state["state"]),
            **state,
        )


def level_of(environment: Environment) -> Level:
    """Return the level that an environment has to reach: a GPU environment has to compute on a GPU."""
    return "cpu" if environment.flavor == "cpu" else "gpu"


def _classes(environment: Environment, host: HostKind, catalog: Catalog) -> tuple[tuple[str, str], ...]:
    """Return the classes (GPU, driver) of a host: one for each GPU model, or any host if no GPU is used."""
    if environment.flavor == "cpu" or host.driver is None or not host.gpus:
        return (("", ""),)
    driver = host.driver.lstrip("Rr")
    return tuple(dict.fromkeys((catalog.gpu_model(gpu) or gpu, driver) for gpu in host.gpus))


def is_pending(standing: KindStanding, suite: str, *, again: bool) -> bool:
    """Return True if a validation has to run. A failure under this suite is final: it is not repeated until it passes.

    A result without an answer under this suite is repeated only with ``again``.
    """
    match standing.state:
        case "passed":
            return False
        case "missing" | "stale":
            return True
        case "failed":
            return suite not in standing.suites
        case "inconclusive" | "refused":
            return again or suite not in standing.suites


def _is_here(environment: Environment, gpu: str, driver: str, query: FleetQuery) -> bool:
    """Return True if this host belongs to a class, by its own driver and GPUs."""
    if environment.arch != query.arch:
        return False
    if not gpu:
        return environment.flavor == "cpu"
    return is_of_kind(gpu, driver, query.host.driver, [one.name for one in query.host.gpus], query.choice.catalog)


def code_of(state: RowState) -> int:
    """Return a row's exit code: an impossible combination is not a failure, a pending one is inconclusive."""
    match state:
        case "passed" | "impossible":
            return ExitCode.DONE
        case "failed":
            return ExitCode.FAILED
        case _:
            return ExitCode.NO_CLAIM


def as_text(document: FleetDocument) -> str:
    rows = [
        (row.environment, row.kind, f"{row.count}", row.state, _pending(row), row.error or row.why or _since(row))
        for row in document.rows
    ]
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


def _pending(row: FleetRow) -> str:
    return ("here" if row.here else "there") if row.left else "-"


def _since(row: FleetRow) -> str:
    return f"{row.finished} at level {row.level}" if row.finished else "-"
