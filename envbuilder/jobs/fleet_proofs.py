"""Which environment has to be proven on which kind of host of a fleet, what stands already, and what is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.choice import Choice
from envbuilder.compat.fleet import Cell, FleetHost, HostKind, is_of_kind, kinds_of, place
from envbuilder.environment import Environment
from envbuilder.jobs.fleet_document import FleetDocument, ProofRow, code_of
from envbuilder.verdict import HostRef, ImageStanding, KindStanding, Level

Ask = Callable[[str, Level, Iterable[tuple[str, str]]], ImageStanding | None]
"""How the registry's image of an environment stands, at a level, on each GPU with a driver; None: no such image."""


AT_ONCE = 8
"""Environments that the registry is asked about at once: an answer is mostly waiting."""


@dataclass(frozen=True)
class Survey:
    """What is asked: a matrix's environments on a fleet's hosts, in a repository, by the suite of now.

    ``host`` and ``arch`` are this host's, on which what fits can be run. ``again`` counts as left what this suite
    judged and came to no answer.
    """

    choice: Choice
    fleet: tuple[FleetHost, ...]
    repository: str
    suite: str
    host: HostRef
    arch: str
    again: bool = False


@dataclass(frozen=True)
class _Kind:
    """Hosts on which one proof counts for all: a GPU model and a driver, or any host where no GPU is used."""

    gpu: str = ""
    driver: str = ""


def survey(asked: Literal["plan", "status", "run"], what: Survey, ask: Ask) -> FleetDocument:
    """Say for every environment and kind of host whether it is proven, and whether it has to be run."""
    kinds = kinds_of(what.fleet)

    def rows_of(environment: Environment) -> tuple[ProofRow, ...]:
        cells = place((environment,), tuple(kinds.values()), what.choice.catalog)
        return tuple(_rows(environment, tuple(zip(kinds, cells, strict=True)), what, ask))

    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        rows = [row for found in pool.map(rows_of, what.choice.environments) for row in found]
    finally:
        pool.shutdown(cancel_futures=True)
    return FleetDocument(
        asked=asked,
        matrix=what.choice.matrix.name,
        repository=what.repository,
        suite=what.suite,
        rows=tuple(rows),
        states=dict(Counter(row.state for row in rows)),
        left=sum(row.left for row in rows),
        left_here=sum(row.left and row.here for row in rows),
    )


def _rows(
    environment: Environment, cells: tuple[tuple[HostKind, Cell], ...], what: Survey, ask: Ask
) -> Iterator[ProofRow]:
    """Give a row a kind: those that can run it with how it stands there, then those that cannot."""
    catalog = what.choice.catalog
    able: dict[_Kind, list[HostKind]] = {}
    unable: dict[_Kind, list[tuple[HostKind, Cell]]] = {}
    for host, cell in cells:
        for kind in _kinds(environment, host, catalog):
            if cell.compatible is False:
                unable.setdefault(kind, []).append((host, cell))
            else:
                able.setdefault(kind, []).append(host)
    found = ask(environment.id, level_of(environment), [(kind.gpu, kind.driver) for kind in able]) if able else None
    standings = {(one.gpu, one.driver): one for one in found.kinds} if found else {}
    for kind, hosts in able.items():
        row = _bare(environment, kind, hosts, here=_is_here(environment, kind, what))
        stands = standings.get((kind.gpu, kind.driver))
        yield _standing(row, found.digest, stands, what) if found and stands else row
    for kind, refused in unable.items():
        if kind not in able:
            row = _bare(environment, kind, [host for host, _ in refused], here=False)
            yield msgspec.structs.replace(
                row, state="impossible", why=refused[0][1].why, exit_code=code_of("impossible")
            )


def level_of(environment: Environment) -> Level:
    """Return the level that proves an environment: a GPU's has to compute on one."""
    return "cpu" if environment.flavor == "cpu" else "gpu"


def _kinds(environment: Environment, host: HostKind, catalog: Catalog) -> tuple[_Kind, ...]:
    """Return the kinds that a host is of, for an environment: one a GPU model, by the catalogue's names."""
    if environment.flavor == "cpu" or host.driver is None or not host.gpus:
        return (_Kind(),)
    driver = host.driver.lstrip("Rr")
    return tuple(dict.fromkeys(_Kind(catalog.gpu_model(gpu) or gpu, driver) for gpu in host.gpus))


def _bare(environment: Environment, kind: _Kind, hosts: list[HostKind], *, here: bool) -> ProofRow:
    return ProofRow(
        environment=environment.id,
        kind=f"{kind.gpu}/{kind.driver}" if kind.gpu else "any host" if environment.flavor == "cpu" else "no GPU",
        gpu=kind.gpu,
        driver=kind.driver,
        hosts=tuple(name for host in hosts for name in host.hosts),
        count=sum(host.count for host in hosts),
        state="unpublished",
        here=here,
        exit_code=code_of("unpublished"),
    )


def _standing(row: ProofRow, digest: str, stands: KindStanding, what: Survey) -> ProofRow:
    return msgspec.structs.replace(
        row,
        digest=digest,
        state=stands.state,
        left=is_left(stands, what.suite, again=what.again),
        level=stands.level,
        ran_on=stands.ran_on,
        finished=stands.finished,
        age_s=stands.age_s,
        why=stands.why,
        rehearsed=what.suite in stands.rehearsed,
        exit_code=code_of(stands.state),
    )


def is_left(stands: KindStanding, suite: str, *, again: bool) -> bool:
    """Tell whether a proof has to be run. What failed under this suite is not run until it passes.

    What came to no answer under this suite is run again only where that is asked for.
    """
    match stands.state:
        case "passed":
            return False
        case "missing" | "stale":
            return True
        case "failed":
            return suite not in stands.suites
        case "inconclusive" | "refused":
            return again or suite not in stands.suites


def _is_here(environment: Environment, kind: _Kind, what: Survey) -> bool:
    """Tell whether this host is of a kind, by its own facts and not by its name."""
    if environment.arch != what.arch:
        return False
    if not kind.gpu:
        return environment.flavor == "cpu"
    gpus = [gpu.name for gpu in what.host.gpus]
    return is_of_kind(kind.gpu, kind.driver, what.host.driver, gpus, what.choice.catalog)
