"""Resolve a matrix for the hosts of a fleet, without building anything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.choice import read_fleet, read_known
from envbuilder.compat.check import EnvironmentImage
from envbuilder.compat.choose import choose_for
from envbuilder.compat.fleet import FleetHost, HostKind, kinds_of, place
from envbuilder.compat.plan import plan
from envbuilder.compat.question import QuestionOptions, question
from envbuilder.compat.selectors import select, select_wishes
from envbuilder.environment import Change, Combination, Environment, Predicate, Rejection, Resolved
from envbuilder.errors import NothingSelectedError, UsageError
from envbuilder.finding import Finding
from envbuilder.jobs.choose import image_of, newest_wanted
from envbuilder.matrix import Excluded
from envbuilder.workspace import Workspace

Indices = tuple[int, ...]
"""Positions in the document's list of findings, the most serious finding first."""


class PlannedEnvironment(Resolved, frozen=True, kw_only=True):
    """An environment; ``findings`` are its warnings."""

    findings: Indices = ()


class PlannedRejection(msgspec.Struct, frozen=True, kw_only=True):
    """A combination that cannot work; the first of ``findings`` is the reason.

    ``nearest`` is the closest combination that can be built (null if there is none), ``changes`` its differences.
    """

    id: str
    combination: Combination
    findings: Indices
    nearest: Combination | None = None
    changes: tuple[Change, ...] = ()
    predicate: Predicate | None = None


class PlannedCell(msgspec.Struct, frozen=True, kw_only=True):
    """One environment on one host class, named by its first host; ``compatible`` null is unknown."""

    host: str
    environment: str
    compatible: bool | None
    findings: Indices


class PlannedNewest(msgspec.Struct, frozen=True, kw_only=True):
    """The newest TensorFlow for a host class, its environment and image, and the reason against the next newer one.

    If none works, ``newer`` is the newest release of all, and ``compatible`` false, or null if the catalogue makes no
    claim about some release.
    """

    host: str
    tensorflow: str | None
    package: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    findings: Indices = ()
    newer: str | None = None
    why_not_newer: str = ""
    compatible: bool | None = False
    image: EnvironmentImage | None = None


class PlanDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Result of ``envbuilder plan``; ``hosts`` to ``newest`` are empty without a fleet.

    ``findings`` has each finding once; rows refer to it by position. Hosts with the same driver and GPUs are one class:
    ``cells`` and ``newest`` have one row for it, under the name of its first host.
    """

    schema: Literal["envbuilder/plan/v1"] = "envbuilder/plan/v1"
    matrix: str
    environments: tuple[PlannedEnvironment, ...]
    rejections: tuple[PlannedRejection, ...]
    excluded: tuple[Excluded, ...]
    hosts: tuple[FleetHost, ...] = ()
    kinds: tuple[HostKind, ...] = ()
    cells: tuple[PlannedCell, ...] = ()
    newest: tuple[PlannedNewest, ...] = ()
    findings: tuple[Finding, ...] = ()


class NewestDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Result of ``envbuilder plan --newest``; see `PlanDocument`."""

    schema: Literal["envbuilder/newest/v1"] = "envbuilder/newest/v1"
    hosts: tuple[FleetHost, ...]
    kinds: tuple[HostKind, ...] = ()
    newest: tuple[PlannedNewest, ...]
    findings: tuple[Finding, ...] = ()


_Row = TypeVar("_Row", PlannedEnvironment, PlannedRejection, PlannedCell)


@dataclass(frozen=True)
class _Findings:
    """The findings of a document, each once, with its position."""

    positions: dict[Finding, int] = field(default_factory=dict)

    def rows(self, kind: type[_Row], rows: Iterable[msgspec.Struct]) -> tuple[_Row, ...]:
        """Return rows with positions in place of their findings."""
        every = [{name: getattr(row, name) for name in kind.__struct_fields__} for row in rows]
        return tuple(kind(**values | {"findings": self.indices(values["findings"])}) for values in every)

    def indices(self, found: Iterable[Finding]) -> Indices:
        return tuple(self.positions.setdefault(one, len(self.positions)) for one in found)

    def newest(self, host: FleetHost, catalog: Catalog) -> PlannedNewest:
        if host.driver is None or not host.gpus:
            why = "This host has no NVIDIA driver with a GPU."
            return PlannedNewest(host=host.name, tensorflow=None, why_not_newer=why)
        found = choose_for(newest_wanted(host), host, catalog)
        chosen = found.environment
        above = next(iter(found.refused[-1:] if chosen is not None else found.refused), None)
        return PlannedNewest(
            host=host.name,
            **{name: getattr(chosen, name, None) for name in ("tensorflow", "package", "cuda", "cudnn")},
            findings=self.indices(found.findings),
            newer=above.tensorflow if above is not None else None,
            why_not_newer=above.why if above is not None else "",
            compatible=found.compatible,
            image=image_of(chosen),
        )


class PlanOptions(msgspec.Struct, frozen=True):
    """A matrix by path or name (None: the quickstart), selectors, and a fleet file."""

    matrix: str | None = None
    selectors: tuple[str, ...] = ()
    fleet: Path | None = None


class NewestOptions(msgspec.Struct, frozen=True):
    """The hosts of a fleet file, or one host by its driver and GPUs."""

    fleet: Path | None = None
    driver: str | None = None
    gpus: tuple[str, ...] = ()


def plan_matrix(options: PlanOptions, root: Path, catalog: Catalog) -> PlanDocument:
    """Resolve a matrix, for a fleet if one is given.

    Raises InputError for a bad file, NothingSelectedError if the selectors match neither an environment nor a
    rejection.
    """
    matrix, catalog = read_known(options.matrix, root, catalog)
    hosts = read_fleet(options.fleet) if options.fleet is not None else ()
    resolved = plan(matrix, catalog)
    if any(one.added.template for one in resolved.environments):
        from envbuilder.image.context import check_templates  # noqa: PLC0415 - few matrices have a template

        check_templates(resolved.environments, Workspace(root))
    environments, rejections = _selected(resolved.environments, resolved.rejections, options.selectors)
    kinds = kinds_of(hosts)
    findings = _Findings()
    return PlanDocument(
        matrix=matrix.name,
        environments=findings.rows(PlannedEnvironment, environments),
        rejections=findings.rows(PlannedRejection, rejections),
        excluded=resolved.excluded,
        hosts=hosts,
        kinds=tuple(kinds),
        cells=findings.rows(PlannedCell, place(environments, tuple(kinds.values()), catalog)),
        newest=tuple(findings.newest(host, catalog) for host in kinds.values()),
        findings=tuple(findings.positions),
    )


def newest_for(options: NewestOptions, catalog: Catalog) -> NewestDocument:
    """Find the newest TensorFlow for each host. Raises UsageError if no host is described."""
    if options.fleet is not None:
        hosts = read_fleet(options.fleet)
    elif options.driver is not None and options.gpus:
        host = question(QuestionOptions(tensorflow="2", driver=options.driver, gpus=options.gpus))
        hosts = (FleetHost(name="this-host", driver=host.driver, gpus=host.gpus),)
    else:
        raise UsageError("--newest needs a host", hint="give --driver and --gpu, or --fleet FILE")
    kinds = kinds_of(hosts)
    findings = _Findings()
    rows = tuple(findings.newest(host, catalog) for host in kinds.values())
    return NewestDocument(hosts=hosts, kinds=tuple(kinds), newest=rows, findings=tuple(findings.positions))


def _selected(
    environments: tuple[Environment, ...], rejections: tuple[Rejection, ...], selectors: Sequence[str]
) -> tuple[tuple[Environment, ...], tuple[Rejection, ...]]:
    """Select among environments and rejections: the reason of a rejection is an answer too."""
    if not selectors:
        return environments, rejections
    rejected = select_wishes(rejections, selectors)
    try:
        return select(environments, selectors, others=tuple(row.id for row in rejected)), rejected
    except NothingSelectedError:
        if not rejected:
            raise
        return (), rejected
