"""Show what a matrix comes to, for which hosts, without building anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from envbuilder.catalog.model import Catalog
from envbuilder.choice import read_fleet, read_known
from envbuilder.compat.fleet import FleetHost, kinds_of, newest, place
from envbuilder.compat.plan import plan
from envbuilder.compat.question import QuestionOptions, question
from envbuilder.compat.selectors import select, select_wishes
from envbuilder.environment import Environment, Rejection
from envbuilder.errors import NothingSelectedError, UsageError
from envbuilder.jobs.plan_document import FindingTable, NewestDocument, PlanDocument


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


def plan_matrix(options: PlanOptions, root: Path, catalog: Catalog) -> PlanDocument:
    """Read a matrix, and a fleet file where one is given, and resolve the one for the other.

    Raises InputError for a bad file, NothingSelectedError where the selectors match neither an environment nor a
    rejection.
    """
    wishes, catalog = read_known(options.matrix, root, catalog)
    hosts = read_fleet(options.fleet) if options.fleet is not None else ()
    resolved = plan(wishes, catalog)
    environments, rejections = _selected(resolved.environments, resolved.rejections, options.selectors)
    kinds = kinds_of(hosts)
    found = FindingTable()
    return PlanDocument(
        matrix=wishes.name,
        environments=tuple(map(found.environment, environments)),
        rejections=tuple(map(found.rejection, rejections)),
        excluded=resolved.excluded,
        hosts=hosts,
        kinds=tuple(kinds),
        cells=tuple(map(found.cell, place(environments, tuple(kinds.values()), catalog))),
        newest=tuple(found.newest(newest(host, catalog)) for host in kinds.values()),
        findings=found.findings,
    )


def newest_for(options: NewestOptions, catalog: Catalog) -> NewestDocument:
    """Find the newest TensorFlow for each host. Raises UsageError where no host is described."""
    hosts = _hosts(options)
    kinds = kinds_of(hosts)
    found = FindingTable()
    rows = tuple(found.newest(newest(host, catalog)) for host in kinds.values())
    return NewestDocument(hosts=hosts, kinds=tuple(kinds), newest=rows, findings=found.findings)


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


def _hosts(options: NewestOptions) -> tuple[FleetHost, ...]:
    """Take the hosts of a fleet file, or the one that a driver and GPUs describe. Raises UsageError for neither."""
    if options.fleet is not None:
        return read_fleet(options.fleet)
    if options.driver is None or not options.gpus:
        raise UsageError("--newest needs a host", hint="give --driver and --gpu, or --fleet FILE")
    asked = question(QuestionOptions(tensorflow="2", driver=options.driver, gpus=options.gpus))
    return (FleetHost(name="this-host", driver=asked.driver, gpus=asked.gpus),)
