"""Which environment is validated on which host class of a fleet, and which validations are pending."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.choice import Choice
from envbuilder.compat.fleet import Cell, FleetHost, HostKind, is_of_kind, kinds_of, place
from envbuilder.environment import Environment
from envbuilder.jobs.fleet.document import FleetDocument, FleetRow, code_of
from envbuilder.verdict import HostRef, ImageStanding, KindStanding, Level

Lookup = Callable[[str, Level, Iterable[tuple[str, str]]], ImageStanding | None]
"""Returns the state of an environment's published image, at a level, on each (GPU, driver); None: not published."""

PARALLEL_LOOKUPS = 8
"""Lookups in the registry at the same time; each one mostly waits."""


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
    again: bool = False


class _HostClass(NamedTuple):
    """Hosts for which one validation counts: a GPU model and a driver, or any host if no GPU is used."""

    gpu: str = ""
    driver: str = ""


def survey(asked: Literal["plan", "status", "run"], query: FleetQuery, lookup: Lookup) -> FleetDocument:
    kinds = kinds_of(query.fleet)

    def rows_of(environment: Environment) -> tuple[FleetRow, ...]:
        cells = place((environment,), tuple(kinds.values()), query.choice.catalog)
        return tuple(_rows(environment, tuple(zip(kinds, cells, strict=True)), query, lookup))

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


def _rows(
    environment: Environment, cells: tuple[tuple[HostKind, Cell], ...], query: FleetQuery, lookup: Lookup
) -> Iterator[FleetRow]:
    """Yield one row for each host class: first the compatible ones, then the impossible ones."""
    catalog = query.choice.catalog
    compatible: dict[_HostClass, list[HostKind]] = {}
    impossible: dict[_HostClass, list[tuple[HostKind, Cell]]] = {}
    for host, cell in cells:
        for host_class in _classes(environment, host, catalog):
            if cell.compatible is False:
                impossible.setdefault(host_class, []).append((host, cell))
            else:
                compatible.setdefault(host_class, []).append(host)
    image = lookup(environment.id, level_of(environment), list(compatible)) if compatible else None
    standings = {(one.gpu, one.driver): one for one in image.kinds} if image else {}
    for host_class, hosts in compatible.items():
        row = _unpublished(environment, host_class, hosts, here=_is_here(environment, host_class, query))
        standing = standings.get(host_class)
        yield _published(row, image.digest, standing, query) if image and standing else row
    for host_class, refused in impossible.items():
        if host_class not in compatible:
            row = _unpublished(environment, host_class, [host for host, _ in refused], here=False)
            code = code_of("impossible")
            yield msgspec.structs.replace(row, state="impossible", why=refused[0][1].why, exit_code=code)


def level_of(environment: Environment) -> Level:
    """Return the level that an environment has to reach: a GPU environment has to compute on a GPU."""
    return "cpu" if environment.flavor == "cpu" else "gpu"


def _classes(environment: Environment, host: HostKind, catalog: Catalog) -> tuple[_HostClass, ...]:
    """Return the host classes of a host for an environment: one for each GPU model, named as in the catalogue."""
    if environment.flavor == "cpu" or host.driver is None or not host.gpus:
        return (_HostClass(),)
    driver = host.driver.lstrip("Rr")
    return tuple(dict.fromkeys(_HostClass(catalog.gpu_model(gpu) or gpu, driver) for gpu in host.gpus))


def _unpublished(environment: Environment, host_class: _HostClass, hosts: list[HostKind], *, here: bool) -> FleetRow:
    name = f"{host_class.gpu}/{host_class.driver}" if host_class.gpu else "any host"
    return FleetRow(
        environment=environment.id,
        kind="no GPU" if environment.flavor != "cpu" and not host_class.gpu else name,
        gpu=host_class.gpu,
        driver=host_class.driver,
        hosts=tuple(name for host in hosts for name in host.hosts),
        count=sum(host.count for host in hosts),
        state="unpublished",
        here=here,
        exit_code=code_of("unpublished"),
    )


def _published(row: FleetRow, digest: str, standing: KindStanding, query: FleetQuery) -> FleetRow:
    return msgspec.structs.replace(
        row,
        digest=digest,
        state=standing.state,
        left=is_pending(standing, query.suite, again=query.again),
        level=standing.level,
        ran_on=standing.ran_on,
        finished=standing.finished,
        age_s=standing.age_s,
        why=standing.why,
        exit_code=code_of(standing.state),
    )


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


def _is_here(environment: Environment, host_class: _HostClass, query: FleetQuery) -> bool:
    """Return True if this host belongs to a class, by its own driver and GPUs."""
    if environment.arch != query.arch:
        return False
    if not host_class.gpu:
        return environment.flavor == "cpu"
    gpus = [gpu.name for gpu in query.host.gpus]
    return is_of_kind(host_class.gpu, host_class.driver, query.host.driver, gpus, query.choice.catalog)
