"""The answer of `envbuilder plan`: every finding once, rows that point to them, and hosts of one kind together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from envbuilder.compat.fleet import Cell, FleetHost, HostKind, Newest
from envbuilder.environment import Change, Combination, Environment, Predicate, Rejection, Resolved
from envbuilder.finding import Finding
from envbuilder.matrix import Excluded

Places = tuple[int, ...]
"""Where findings stand in the document's own list, counted from 0, the most serious first."""


class PlannedEnvironment(Resolved, frozen=True, kw_only=True):
    """An environment; ``findings`` are the places of the warnings that hold although it was accepted."""

    findings: Places = ()


class PlannedRejection(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A combination that cannot work; ``findings`` are places in the document's list, the first says why.

    ``nearest`` is the nearest combination that can be built (null where there is none), ``changes`` what differs in it.
    """

    id: str
    combination: Combination
    findings: Places
    nearest: Combination | None = None
    changes: tuple[Change, ...] = ()
    predicate: Predicate | None = None


class PlannedCell(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One environment on every host of a kind, which ``host`` names; ``compatible`` null is "no claim"."""

    host: str
    environment: str
    compatible: bool | None
    findings: Places


class PlannedNewest(msgspec.Struct, frozen=True, kw_only=True):
    """The newest TensorFlow for a kind of host, with the places of its findings; see `Newest`."""

    host: str
    tensorflow: str | None
    package: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    findings: Places = ()
    newer: str | None = None
    why_not_newer: str = ""
    compatible: bool | None = False


class PlanDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``envbuilder plan``; ``hosts`` to ``newest`` are filled where hosts were given.

    ``findings`` holds each finding of a row once; every row points to it by its place. Hosts with the same
    driver and GPUs are one kind: ``cells`` and ``newest`` have one row for it, under its first host's name.
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
    """The answer of ``envbuilder plan --newest``: one row of ``newest`` a kind, under its first host's name.

    ``findings`` holds each finding once; the rows point to it by its place.
    """

    schema: Literal["envbuilder/newest/v1"] = "envbuilder/newest/v1"
    hosts: tuple[FleetHost, ...]
    kinds: tuple[HostKind, ...] = ()
    newest: tuple[PlannedNewest, ...]
    findings: tuple[Finding, ...] = ()


class FindingTable:
    """Collects findings, each once, and says where each stands.

    A finding that was met is known by its identity: the resolver shares them between rows, and hashing one costs more
    than all that is done with it here. So each is kept for as long as the table is.
    """

    def __init__(self) -> None:
        self._by_identity: dict[int, int] = {}
        self._by_value: dict[Finding, int] = {}
        self._met: list[Finding] = []

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every finding, in the order in which they were met first."""
        return tuple(self._by_value)

    def places(self, findings: Iterable[Finding]) -> Places:
        """Return the places of a row's findings."""
        known = self._by_identity
        return tuple([known[id(one)] if id(one) in known else self._place(one) for one in findings])

    def _place(self, finding: Finding) -> int:
        self._met.append(finding)
        place = self._by_value.setdefault(finding, len(self._by_value))
        self._by_identity[id(finding)] = place
        return place

    def environment(self, row: Environment) -> PlannedEnvironment:
        """Write an environment with its findings' places."""
        held = {name: getattr(row, name) for name in Resolved.__struct_fields__}
        return PlannedEnvironment(**held, findings=self.places(row.findings))

    def newest(self, row: Newest) -> PlannedNewest:
        """Write what is newest for a kind of host with its findings' places."""
        held = {name: getattr(row, name) for name in Newest.__struct_fields__ if name != "findings"}
        return PlannedNewest(**held, findings=self.places(row.findings))

    def rejection(self, row: Rejection) -> PlannedRejection:
        """Write a rejection with its findings' places."""
        return PlannedRejection(
            id=row.id,
            combination=row.combination,
            findings=self.places(row.findings),
            nearest=row.nearest,
            changes=row.changes,
            predicate=row.predicate,
        )

    def cell(self, row: Cell) -> PlannedCell:
        """Write a cell with its findings' places."""
        return PlannedCell(
            host=row.host,
            environment=row.environment,
            compatible=row.compatible,
            findings=self.places(row.findings),
        )
