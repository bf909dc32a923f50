"""Resolve a matrix for the hosts of a fleet, without building anything, and write the plan as text."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.choice import read_fleet, read_known
from envbuilder.compat.check import EnvironmentImage
from envbuilder.compat.check_text import mark, nearest_line
from envbuilder.compat.fleet import FleetHost, HostGroup, choose_for, host_groups, place
from envbuilder.compat.plan import plan
from envbuilder.compat.question import QuestionOptions, question
from envbuilder.compat.selectors import select, select_combinations
from envbuilder.environment import WHOLE, Change, Combination, Environment, Predicate, Rejection, Resolved
from envbuilder.errors import NothingSelectedError, UsageError
from envbuilder.finding import Code, Finding, obstacle
from envbuilder.image.names import reference
from envbuilder.jobs.choose import image_of, newest_wanted
from envbuilder.matrix import Excluded
from envbuilder.support.tables import folded, table
from envbuilder.support.templates import rendered
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
    kinds: tuple[HostGroup, ...] = ()
    cells: tuple[PlannedCell, ...] = ()
    newest: tuple[PlannedNewest, ...] = ()
    findings: tuple[Finding, ...] = ()


class NewestDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Result of ``envbuilder plan --newest``; see `PlanDocument`."""

    schema: Literal["envbuilder/newest/v1"] = "envbuilder/newest/v1"
    hosts: tuple[FleetHost, ...]
    kinds: tuple[HostGroup, ...] = ()
    newest: tuple[PlannedNewest, ...]
    findings: tuple[Finding, ...] = ()


_Row = TypeVar("_Row", PlannedEnvironment, PlannedRejection, PlannedCell)
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


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
    """A matrix by path or name (None: the project's), selectors, and the hosts of a fleet file, or one host."""

    matrix: str | None = None
    selectors: tuple[str, ...] = ()
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
    kinds = host_groups(hosts)
    findings = _Findings()
    return PlanDocument(
        matrix=matrix.name,
        environments=findings.rows(PlannedEnvironment, environments),
        rejections=findings.rows(PlannedRejection, rejections),
        excluded=select_combinations(resolved.excluded, options.selectors, resolved.environments),
        hosts=hosts,
        kinds=tuple(kinds),
        cells=findings.rows(PlannedCell, place(environments, tuple(kinds.values()), catalog)),
        newest=tuple(findings.newest(host, catalog) for host in kinds.values()),
        findings=tuple(findings.positions),
    )


def newest_for(options: PlanOptions, catalog: Catalog) -> NewestDocument:
    """Find the newest TensorFlow for each host. Raises UsageError if no host is described."""
    if options.fleet is not None:
        hosts = read_fleet(options.fleet)
    elif options.driver is not None and options.gpus:
        host = question(QuestionOptions(tensorflow="2", driver=options.driver, gpus=options.gpus))
        hosts = (FleetHost(name="this-host", driver=host.driver, gpus=host.gpus),)
    else:
        raise UsageError("--newest needs a host", hint="give --driver and --gpu, or --fleet FILE")
    kinds = host_groups(hosts)
    findings = _Findings()
    rows = tuple(findings.newest(host, catalog) for host in kinds.values())
    return NewestDocument(hosts=hosts, kinds=tuple(kinds), newest=rows, findings=tuple(findings.positions))


def _selected(
    environments: tuple[Environment, ...], rejections: tuple[Rejection, ...], selectors: Sequence[str]
) -> tuple[tuple[Environment, ...], tuple[Rejection, ...]]:
    """Select among environments and rejections: the reason of a rejection is an answer too."""
    if not selectors:
        return environments, rejections
    rejected = select_combinations(rejections, selectors, environments)
    try:
        return select(environments, selectors, others=tuple(row.id for row in rejected)), rejected
    except NothingSelectedError:
        if not rejected:
            raise
        return (), rejected


WIDTH = 120
"""Maximum length of a line: a wider grid is printed in parts, a longer sentence is wrapped."""

FEW = 50
"""Maximum number of rejections and exclusions to list; more are counted by reason."""

_EXAMPLES = 3


def plan_text(document: PlanDocument, *, everything: bool = False) -> str:
    """Write environments, rejections with the closest combination that works, exclusions, and hosts.

    More than `FEW` rejections or exclusions are counted by reason, unless ``everything`` is set.
    """
    limit = max(FEW, len(document.rejections), len(document.excluded)) if everything else FEW
    warnings = list(_grouped((index, row.id) for row in document.environments for index in row.findings).items())
    fields = ("id", "package", "python", "cuda", "cudnn", "minimum_driver", "os")
    return rendered(
        "jobs/plan",
        partial(folded, most=WIDTH),
        document=document,
        limit=limit,
        environments=[[getattr(row, name) or "-" for name in fields] for row in document.environments],
        warnings=warnings,
        some=_some,
        shown=len(warnings) if everything else FEW,
        by=lambda rows, key: sorted(_grouped((key(row), row) for row in rows).items(), key=lambda one: -len(one[1])),
        code=lambda row: _why(document, row)[0],
        reason=lambda row: _why(document, row)[1],
        stated=attrgetter("reason"),
        nearest=_nearest,
        excluded=_excluded,
        grid=_grid(document) if document.hosts else {},
        newest=newest_text(document) if document.hosts else "",
    )


def _some(names: list[str]) -> str:
    return ", ".join(names[:_EXAMPLES]) + (f" and {len(names) - _EXAMPLES} more" if len(names) > _EXAMPLES else "")


def _why(document: PlanDocument, row: PlannedRejection) -> tuple[Code, str]:
    first = document.findings[row.findings[0]] if row.findings else None
    return (first.code, first.message) if first else (Code.NOT_INSTALLABLE, "It cannot be built.")


def _nearest(row: PlannedRejection) -> str:
    if row.predicate is None:
        hosts = " with these drivers and GPUs" if row.combination.flavor == "gpu" else ""
        return f"nearest that can be built here: none{hosts}"
    return nearest_line(row.predicate, row.changes)


def _excluded(document: PlanDocument) -> Iterator[tuple[str, str]]:
    """Yield the axes of exclusions and the reason; flavors and variants with the same one are one."""
    rows = ((msgspec.structs.asdict(row.combination), row.reason) for row in document.excluded)
    alike = _grouped(
        ((tuple((name, axes[name]) for name in _SHOWN), reason), (axes["flavor"], axes["variant"]))
        for axes, reason in rows
    )
    for (axes, reason), found in alike.items():
        flavors, variants = (set(values) for values in zip(*found, strict=True))
        shared = [("flavor", *flavors)] if len(flavors) == 1 else []
        shared += [("variant", *variants)] if len(variants) == 1 and variants != {WHOLE} else []
        yield " ".join(f"{name}={value}" for name, value in (*axes, *shared) if value), reason


_SHOWN = ("tensorflow", "package", "python", "os", "cuda", "cudnn")


def _grid(document: PlanDocument) -> dict[str, list[str]]:
    """Return tables with a column for each group of host classes with equal answers, at most `WIDTH` wide.

    Hosts with and without GPUs are never one group: its name is that of one of them, with the number of the others.
    """
    marks = _marks(document)
    rows = list(_rows(document, marks))
    groups = _grouped(
        ((bool(kind.gpus), tuple(marks[id_, kind.host] for _, id_ in rows)), kind) for kind in document.kinds
    )
    columns = [(_name(kinds), *answers) for (_, answers), kinds in groups.items()]
    first = ("environment", *(name for name, _ in rows))
    return {
        "parts": [table(part[0], part[1:]) for part in _parts(first, columns)],
        "hosts": [_members(kinds) for kinds in groups.values() if len(kinds) > 1],
        "why": [line for kinds in groups.values() for line in _why_not(kinds, document)],
    }


def _parts(first: tuple[str, ...], columns: list[tuple[str, ...]]) -> Iterator[list[tuple[str, ...]]]:
    """Yield tables, as rows, that repeat the first column and fit `WIDTH`."""
    part, width = [first], max(map(len, first))
    for column in columns:
        needed = max(map(len, column)) + 2
        if len(part) > 1 and width + needed > WIDTH:
            yield list(zip(*part, strict=True))
            part, width = [first], max(map(len, first))
        part.append(column)
        width += needed
    yield list(zip(*part, strict=True))


def _rows(document: PlanDocument, marks: dict[tuple[str, str], str]) -> Iterator[tuple[str, str]]:
    """Yield a name and an id for each row of a grid: variants of one environment with equal answers share a row."""
    ids = {row.id: None for row in document.environments}
    joined, also = set[str](), dict[str, str]()
    for row in document.environments:
        whole = row.other_variants[-1] if row.variant else ""
        if whole in ids and all(marks[row.id, kind.host] == marks[whole, kind.host] for kind in document.kinds):
            joined.add(row.id)
            also[whole] = also.get(whole, "") + f"[{row.id.removeprefix(whole)}]"
    yield from ((one + also.get(one, ""), one) for one in ids if one not in joined)


def _marks(document: PlanDocument) -> dict[tuple[str, str], str]:
    cpu = {row.id for row in document.environments if row.flavor == "cpu"}
    return {
        (cell.environment, cell.host): "cpu" if cell.environment in cpu else mark(_findings(document, cell))
        for cell in document.cells
    }


def _findings(document: PlanDocument, cell: PlannedCell) -> tuple[Finding, ...]:
    return tuple(document.findings[index] for index in cell.findings)


def _name(kinds: list[HostGroup]) -> str:
    others = sum(kind.count for kind in kinds) - 1
    return f"{kinds[0].host} +{others}" if others else kinds[0].host


def _members(kinds: list[HostGroup]) -> str:
    members = [f"{_name([kind])} ({kind.driver or 'no driver'}, {_gpus(kind)})" for kind in kinds]
    more = f" and {len(members) - FEW} more classes" if len(members) > FEW else ""
    return f"{_name(kinds)}: {', '.join(members[:FEW])}{more}"


def _gpus(kind: HostGroup) -> str:
    return (", ".join(kind.gpus) or "no GPU") + (f" ({kind.arch})" if kind.arch else "")


def _why_not(kinds: Iterable[HostGroup], document: PlanDocument) -> Iterator[str]:
    """Yield the first sentence for each code on these hosts, and the number of environments that share the code."""
    names = {kind.host: _name([kind]) for kind in kinds}
    cells = ((cell.host, obstacle(_findings(document, cell))) for cell in document.cells if cell.host in names)
    by_code = _grouped((why.code.value, f"{names[host]}: {why.message}") for host, why in cells if why is not None)
    for sentences in by_code.values():
        yield sentences[0] + (f" ({len(sentences) - 1} more likewise)" if len(sentences) > 1 else "")


def newest_text(document: PlanDocument | NewestDocument) -> str:
    """Write the newest environment for each host class, then each reason against a newer release once."""
    pairs = [(kind, _name([kind]), row) for kind, row in zip(document.kinds, document.newest, strict=True)]
    rows = [(name, kind.driver or "-", _gpus(kind) if kind.gpus else "-", _newest(row)) for kind, name, row in pairs]
    lines = table(("host", "driver", "gpus", "newest"), rows)
    images = {row.image.image for row in document.newest if row.image}
    return rendered(
        "jobs/newest",
        partial(folded, most=WIDTH),
        some=_some,
        lines=lines if max(map(len, lines.splitlines())) <= WIDTH else "",
        groups=_grouped((_newest(row), name) for _, name, row in pairs),
        images=sorted(images),
        pattern=reference("<environment>"),
        reasons=_grouped(
            (f"{row.newer}: {row.why_not_newer}" if row.newer else row.why_not_newer, name)
            for _, name, row in pairs
            if row.why_not_newer
        ),
    )


def _grouped(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, list[_Value]]:
    groups: dict[_Key, list[_Value]] = {}
    for key, name in pairs:
        groups.setdefault(key, []).append(name)
    return groups


def _newest(row: PlannedNewest) -> str:
    return row.image.environment if row.image else "no claim" if row.compatible is None else "none"
