"""Show what a matrix comes to, for which hosts, without building anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from envbuilder.catalog.model import Catalog
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


@dataclass(frozen=True)
class PlanOptions:
    """What to plan: a matrix by path or name (None: the quickstart), selectors, and a fleet file."""

    matrix: str | None = None
    selectors: tuple[str, ...] = ()
    fleet: Path | None = None


@dataclass(frozen=True)
class NewestOptions:
    """For which hosts: those of a fleet file, or one described by its driver and GPUs."""

    fleet: Path | None = None
    driver: str | None = None
    gpus: tuple[str, ...] = ()


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


def plan_matrix(options: PlanOptions, root: Path, catalog: Catalog) -> PlanDocument:
    """Read a matrix, and a fleet file where one is given, and resolve the one for the other.

    Raises InputError for a bad file, NothingSelectedError where the selectors match neither an environment nor a
    rejection.
    """
    wishes = read_matrix(find_matrix(options.matrix, root))
    hosts = read_fleet(options.fleet) if options.fleet is not None else ()
    resolved = plan(wishes, catalog)
    environments, rejections = _selected(resolved.environments, resolved.rejections, options.selectors)
    return PlanDocument(
        matrix=wishes.name,
        environments=environments,
        rejections=rejections,
        excluded=resolved.excluded,
        hosts=hosts,
        cells=place(environments, hosts, catalog),
        newest=tuple(newest(host, catalog) for host in hosts),
    )


def newest_for(options: NewestOptions, catalog: Catalog) -> NewestDocument:
    """Find the newest TensorFlow for each host. Raises UsageError where no host is described."""
    hosts = _hosts(options)
    return NewestDocument(hosts=hosts, newest=tuple(newest(host, catalog) for host in hosts))


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


def plan_text(document: PlanDocument) -> str:
    """Write a plan for people: environments, rejections with the nearest that works, exclusions, then the hosts."""
    parts = [_environments(document)] if document.environments else ["no environment"]
    if document.rejections:
        parts.append("\n".join(["rejected:", *(line for row in document.rejections for line in _rejection(row))]))
    if document.excluded:
        parts.append(
            "\n".join(["excluded:", *(f"  {_wish(row.combination)}: {row.reason}" for row in document.excluded)])
        )
    if document.hosts:
        parts += [_cells(document), _newest(document.hosts, document.newest)]
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


def newest_text(document: NewestDocument) -> str:
    """Write the newest TensorFlow for each host, and what stands against the next newer one."""
    return _newest(document.hosts, document.newest)


_NONE = {False: "none", None: "no claim"}
"""What stands where no release is named: none works, or the catalogue does not know."""


def _newest(hosts: tuple[FleetHost, ...], found: tuple[Newest, ...]) -> str:
    rows = []
    for host, row in zip(hosts, found, strict=True):
        name = f"{row.package} {row.tensorflow}" if row.tensorflow else _NONE[row.compatible]
        told = [finding.requires for finding in row.findings if finding.code is Code.LIBRARY_PATH]
        stack = ", ".join([f"CUDA {row.cuda}", f"cuDNN {row.cudnn}", *told]) if row.cuda else "-"
        against = f"{row.newer}: {row.why_not_newer}" if row.newer else row.why_not_newer
        rows.append((host.name, host.driver or "-", ", ".join(host.gpus) or "-", name, stack, against))
    return table(("host", "driver", "gpus", "newest", "with", "what stands against a newer one"), rows)


def _hosts(options: NewestOptions) -> tuple[FleetHost, ...]:
    """Take the hosts of a fleet file, or the one that a driver and GPUs describe. Raises UsageError for neither."""
    if options.fleet is not None:
        return read_fleet(options.fleet)
    if options.driver is None or not options.gpus:
        raise UsageError("--newest needs a host", hint="give --driver and --gpu, or --fleet FILE")
    asked = question(Words(tensorflow="2", driver=options.driver, gpus=options.gpus))
    return (FleetHost(name="this-host", driver=asked.driver, gpus=asked.gpus),)
