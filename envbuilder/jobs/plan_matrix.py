"""Show what a matrix comes to, for which hosts, without building anything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.catalog.store import load
from envbuilder.choice import read_fleet
from envbuilder.compat.check_text import mark, nearest_line
from envbuilder.compat.fleet import Cell, FleetHost, Newest, newest, place
from envbuilder.compat.plan import plan
from envbuilder.compat.selectors import select, select_wishes
from envbuilder.compat.words import Words, question
from envbuilder.console import table
from envbuilder.environment import Combination, Environment, Rejection
from envbuilder.errors import NothingSelectedError, UsageError
from envbuilder.finding import Code
from envbuilder.matrix import Excluded
from envbuilder.workspace import find_matrix
from envbuilder.yaml_reader import read_matrix


class PlanDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``envbuilder plan``; ``cells`` and ``newest`` are filled where hosts were given."""

    schema: Literal["envbuilder/plan/v1"] = "envbuilder/plan/v1"
    matrix: str
    environments: tuple[Environment, ...]
    rejections: tuple[Rejection, ...]
    excluded: tuple[Excluded, ...]
    hosts: tuple[FleetHost, ...] = ()
    cells: tuple[Cell, ...] = ()
    newest: tuple[Newest, ...] = ()


class NewestDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``envbuilder plan --newest``."""

    schema: Literal["envbuilder/newest/v1"] = "envbuilder/newest/v1"
    hosts: tuple[FleetHost, ...]
    newest: tuple[Newest, ...]


def plan_document(matrix: str | None, selectors: Sequence[str], fleet: Path | None, root: Path) -> PlanDocument:
    """Read a matrix, and a fleet file where one is given, and resolve the one for the other.

    Raises InputError for a bad file, NothingSelectedError where the selectors match neither an environment nor a
    rejection.
    """
    wishes, catalog = read_matrix(find_matrix(matrix, root)), load()
    hosts = read_fleet(fleet) if fleet is not None else ()
    resolved = plan(wishes, catalog)
    environments, rejections = _selected(resolved.environments, resolved.rejections, selectors)
    return PlanDocument(
        matrix=wishes.name,
        environments=environments,
        rejections=rejections,
        excluded=resolved.excluded,
        hosts=hosts,
        cells=place(environments, hosts, catalog),
        newest=tuple(newest(host, catalog) for host in hosts),
    )


def newest_document(hosts: tuple[FleetHost, ...], catalog: Catalog | None = None) -> NewestDocument:
    """Find the newest TensorFlow for each host."""
    known = catalog or load()
    return NewestDocument(hosts=hosts, newest=tuple(newest(host, known) for host in hosts))


def _selected(
    environments: tuple[Environment, ...], rejections: tuple[Rejection, ...], selectors: Sequence[str]
) -> tuple[tuple[Environment, ...], tuple[Rejection, ...]]:
    """Select among both: who asks for an environment that was rejected wants to know why."""
    if not selectors:
        return environments, rejections
    refused = select_wishes(rejections, selectors)
    try:
        return select(environments, selectors, others=tuple(row.id for row in refused)), refused
    except NothingSelectedError:
        if not refused:
            raise
        return (), refused


def plan_table(document: PlanDocument) -> str:
    """Write a plan for people: environments, rejections with the nearest that works, exclusions, then the hosts."""
    parts = [_environments(document)] if document.environments else ["no environment"]
    if document.rejections:
        parts.append("\n".join(["rejected:", *(line for row in document.rejections for line in _rejection(row))]))
    if document.excluded:
        parts.append(
            "\n".join(["excluded:", *(f"  {_wish(row.combination)}: {row.reason}" for row in document.excluded)])
        )
    if document.hosts:
        parts += [_cells(document), newest_table(document.hosts, document.newest)]
    return "\n\n".join(parts)


def _environments(document: PlanDocument) -> str:
    rows = [
        (row.id, row.package, row.python, row.cuda or "-", row.cudnn or "-", row.minimum_driver or "-", row.os)
        for row in document.environments
    ]
    return table(("environment", "package", "python", "cuda", "cudnn", "driver from", "system"), rows)


def _rejection(row: Rejection) -> list[str]:
    near = "nearest that can be built here: none with these drivers and GPUs"
    if row.predicate is not None:
        near = nearest_line(row.predicate, row.changes)
    return [f"  {row.id}: {row.sentence}", f"    {near}"]


def _wish(wish: Combination) -> str:
    fields = ("tensorflow", "package", "python", "os", "flavor", "cuda", "cudnn")
    return " ".join(f"{name}={value}" for name in fields if (value := getattr(wish, name)))


def _cells(document: PlanDocument) -> str:
    """Write the grid of environments and hosts, then for each host, once for each cause, why not."""
    cells = {(cell.environment, cell.host): cell for cell in document.cells}
    names = [host.name for host in document.hosts]
    rows = [
        (row.id, *("cpu" if row.flavor == "cpu" else mark(cells[row.id, name].findings) for name in names))
        for row in document.environments
    ]
    why = [line for name in names for line in _why_not(name, document)]
    key = "yes: uses the GPU, slow: after compiling its kernels, cpu: on the CPU, ?: no claim"
    return "\n".join([table(("environment", *names), rows), key, *(["", "why not:", *why] if why else [])])


def _why_not(host: str, document: PlanDocument) -> list[str]:
    """Give the first sentence for each cause on a host, and count the environments that share it."""
    causes: dict[Code, list[str]] = {}
    for cell in document.cells:
        if cell.host == host and cell.why:
            causes.setdefault(cell.findings[0].code, []).append(cell.why)
    return [
        f"  {host}: {why[0]}" + (f" ({len(why) - 1} more likewise)" if len(why) > 1 else "") for why in causes.values()
    ]


def newest_table(hosts: tuple[FleetHost, ...], found: tuple[Newest, ...]) -> str:
    """Write the newest TensorFlow for each host, and what stands against the next newer one."""
    rows = []
    for host, row in zip(hosts, found, strict=True):
        name = f"{row.package} {row.tensorflow}" if row.tensorflow else "none"
        stack = f"CUDA {row.cuda}, cuDNN {row.cudnn}" if row.cuda else "-"
        against = f"{row.newer}: {row.why_not_newer}" if row.newer else row.why_not_newer
        rows.append((host.name, host.driver or "-", ", ".join(host.gpus) or "-", name, stack, against))
    return table(("host", "driver", "gpus", "newest", "with", "what stands against a newer one"), rows)


def the_hosts(fleet: Path | None, driver: str | None, gpus: Sequence[str]) -> tuple[FleetHost, ...]:
    """Take the hosts of a fleet file, or the one that a driver and GPUs describe. Raises UsageError for neither."""
    if fleet is not None:
        return read_fleet(fleet)
    if driver is None or not gpus:
        raise UsageError("--newest needs a host", hint="give --driver and --gpu, or --fleet FILE")
    asked = question(Words(tensorflow="2", driver=driver, gpus=tuple(gpus)))
    return (FleetHost(name="this host", driver=asked.driver, gpus=asked.gpus),)
