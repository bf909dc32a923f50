"""The content of the page, in its order: grid, environments, what has no environment, and the history."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass

from envbuilder.environment import WHOLE, Combination, Environment
from envbuilder.finding import Finding, worst_first
from envbuilder.report import charts
from envbuilder.report.report_data import Material, name_of
from envbuilder.upgrade.document import UpgradeDocument
from envbuilder.upgrade.text import sections
from envbuilder.verdict import LEVELS, ImageStanding, Verdict
from envbuilder.versions import Key, key, order

UNKNOWN, REJECTED, EXCLUDED = "NOT RUN", "IMPOSSIBLE", "EXCLUDED"

SIGNS = {"PASSED": "✔", "FAILED": "✘", "INCONCLUSIVE": "?", UNKNOWN: "○", REJECTED: "—", EXCLUDED: "∅"}
"""Every state has a sign and a word, so that no information is in a colour only."""

RUNS_PER_PAGE = 10
"""Runs that are shown together; older ones are folded away in groups of this many."""

Column = tuple[str, str, str]
"""Flavour, Python and system; '' if a combination leaves the choice open."""


@dataclass(frozen=True)
class GridCell:
    """One combination in the grid; ``anchor`` leads to its details ('' if there are none)."""

    word: str
    text: str
    anchor: str
    title: str
    search: str


@dataclass(frozen=True)
class GridRow:
    """One release; cells are by column, each a list since a release may have several environments there."""

    name: str
    cells: tuple[tuple[GridCell, ...], ...]


@dataclass(frozen=True)
class WithoutEnvironment:
    """A combination without an environment, and why."""

    word: str
    name: str
    codes: str
    why: str
    fix: str


@dataclass(frozen=True)
class LevelCount:
    """How many checks of a level passed."""

    name: str
    passed: int
    total: int
    required: bool


@dataclass(frozen=True)
class EnvironmentCard:
    """One environment with its newest real verdict; ``data`` is the verdict's file beside the page."""

    anchor: str
    name: str
    word: str
    verdict: Verdict
    environment: Environment | None
    findings: tuple[Finding, ...]
    levels: tuple[LevelCount, ...]
    timeline: charts.BarChart | None
    phases: tuple[charts.PhaseRow, ...]
    layers: charts.BarChart | None
    layer_rows: tuple[tuple[str, str, int], ...]
    imports: charts.ImportHistory | None
    start: str
    search: str
    data: str


@dataclass(frozen=True)
class HistoryRow:
    """One line of the history."""

    name: str
    anchor: str
    verdict: Verdict
    search: str


@dataclass(frozen=True)
class RunGroup:
    """The runs of one environment, newest first, in pages; ``words`` counts their verdicts."""

    name: str
    words: tuple[tuple[str, int], ...]
    pages: tuple[tuple[HistoryRow, ...], ...]


Section = tuple[str, tuple[str, ...], tuple[tuple[str, ...], ...]]


@dataclass(frozen=True)
class PageContent:
    """Everything that the page shows."""

    counts: tuple[tuple[str, int], ...]
    columns: tuple[Column, ...]
    grid: tuple[GridRow, ...]
    environments: tuple[EnvironmentCard, ...]
    waiting: tuple[Environment, ...]
    left_out: tuple[WithoutEnvironment, ...]
    controls: tuple[tuple[str, Verdict], ...]
    upgrades: tuple[tuple[UpgradeDocument, tuple[Section, ...]], ...]
    runs: tuple[RunGroup, ...]
    unreadable: int
    standings: tuple[ImageStanding, ...]


def page_content(material: Material) -> PageContent:
    """Order everything: what needs attention first, then newest release first."""
    cards = [_card(name, runs, material) for name, runs in material.verdicts.items()]
    severity = {"FAILED": 0, "INCONCLUSIVE": 1, "PASSED": 2}
    cards.sort(key=lambda one: (severity[one.word], _newest_first(one), one.name))
    waiting = tuple(one for one in material.environments if one.id not in material.verdicts)
    columns, rows = _grid(material, cards, waiting)
    return PageContent(
        counts=_counts(cards, waiting, material),
        columns=columns,
        grid=rows,
        environments=tuple(cards),
        waiting=waiting,
        left_out=_without_environment(material),
        controls=tuple(material.controls.items()),
        upgrades=tuple(
            (one, tuple((title, headers, tuple(rows)) for title, headers, rows in sections(one) if rows))
            for one in material.upgrades
        ),
        runs=_history(material),
        unreadable=material.unreadable,
        standings=tuple(sorted(material.standings, key=lambda one: (one.environment, one.digest))),
    )


def _newest_first(one: EnvironmentCard) -> tuple[int, ...]:
    try:
        numbers = key(one.environment.tensorflow)[0] if one.environment else ()
    except ValueError:
        numbers = ()
    return tuple(-number for number in numbers)


def _card(name: str, runs: tuple[Verdict, ...], material: Material) -> EnvironmentCard:
    # A simulation says nothing about the environment itself: it is shown only if there is nothing real.
    verdict = next((run for run in reversed(runs) if not run.unreal), runs[-1])
    layers = material.layers.get(verdict.image.id, ())
    start = charts.import_seconds(verdict)
    return EnvironmentCard(
        anchor=_anchor(name),
        name=name,
        word=verdict.verdict,
        verdict=verdict,
        environment=verdict.environment,
        findings=_findings(verdict),
        levels=_levels(verdict),
        timeline=charts.timeline(verdict.timeline),
        phases=charts.phase_rows(verdict.timeline),
        layers=charts.layer_chart(layers),
        layer_rows=tuple(
            (charts.layer_name(layer, index), charts.size(layer.size), index % charts.COLOURS)
            for index, layer in enumerate(layers)
        ),
        imports=charts.import_history(runs),
        start=charts.seconds(start) if start is not None else "",
        search=_search_words(verdict),
        data=f"verdicts/{_file_name(name)}.json",
    )


def _levels(verdict: Verdict) -> tuple[LevelCount, ...]:
    by_level = {level: [check for check in verdict.checks if check.level == level] for level in LEVELS}
    return tuple(
        LevelCount(level, sum(one.outcome == "passed" for one in checks), len(checks), level in verdict.requires)
        for level, checks in by_level.items()
        if checks or level in verdict.requires
    )


def _counts(
    cards: list[EnvironmentCard], waiting: tuple[Environment, ...], material: Material
) -> tuple[tuple[str, int], ...]:
    words = [one.word for one in cards]
    counted = [(word, words.count(word)) for word in ("PASSED", "INCONCLUSIVE", "FAILED")]
    counted += [(UNKNOWN, len(waiting)), (REJECTED, len(material.rejections)), (EXCLUDED, len(material.excluded))]
    return tuple((word, number) for word, number in counted if number or word == "PASSED")


def _grid(
    material: Material, cards: list[EnvironmentCard], waiting: tuple[Environment, ...]
) -> tuple[tuple[Column, ...], tuple[GridRow, ...]]:
    """Lay out releases against flavours, Pythons and systems; the newest release first."""
    placed: dict[tuple[str, Column], list[GridCell]] = {}
    judged = [(one.environment, _judged_cell(one.environment, one)) for one in cards if one.environment is not None]
    for environment, cell in (*judged, *((one, _waiting_cell(one)) for one in waiting)):
        placed.setdefault((environment.tensorflow, _column(environment)), []).append(cell)
    known = sorted({column for _, column in placed}, key=_column_order)
    for combination, cell in _left_out_cells(material):
        cells = placed.setdefault((combination.tensorflow, _fitting(_column(combination), known)), [])
        cells.extend([cell] if cell not in cells else [])
    columns = sorted({column for _, column in placed}, key=_column_order)
    releases = sorted({release for release, _ in placed}, key=key, reverse=True)
    rows = tuple(
        GridRow(release, tuple(tuple(placed.get((release, column), ())) for column in columns)) for release in releases
    )
    return tuple(columns), rows


def _column(one: Combination | Environment) -> Column:
    return (one.flavor, one.python or "", (one.os or "").removeprefix("debian-"))


def _column_order(column: Column) -> tuple[str, tuple[bool, Key], str]:
    flavor, python, system = column
    return flavor, order(python), system


def _fitting(column: Column, columns: list[Column]) -> Column:
    """Return the first column of an environment that fits a combination with open choices, else its own."""
    fits = (known for known in columns if all(mine in ("", value) for mine, value in zip(column, known, strict=True)))
    return next(fits, column)


def _judged_cell(environment: Environment, one: EnvironmentCard) -> GridCell:
    level = f"to {one.verdict.level}" if one.verdict.level != "none" else "no level"
    kind = _kind(environment)
    title = f"{one.name}: {one.word}" + (f". {one.verdict.reasons[0]}" if one.verdict.reasons else "")
    return GridCell(one.word, f"{level} · {kind}" if kind else level, one.anchor, title, one.search)


def _waiting_cell(one: Environment) -> GridCell:
    return GridCell(UNKNOWN, _kind(one), _anchor(one.id), f"{one.id} has no verdict yet", one.id.casefold())


def _left_out_cells(material: Material) -> list[tuple[Combination, GridCell]]:
    cells = []
    for one in material.rejections:
        codes = _codes(one.findings)
        search = f"{one.id} {codes}".casefold()
        cells.append((one.combination, GridCell(REJECTED, codes, "left-out", one.sentence, search)))
    for excluded in material.excluded:
        cell = GridCell(EXCLUDED, "by the matrix", "left-out", excluded.reason, excluded.reason.casefold())
        cells.append((excluded.combination, cell))
    return cells


def _kind(environment: Environment) -> str:
    """Return the CUDA version of an environment, and its form if that is not the complete one."""
    return " ".join(filter(None, (f"CUDA {environment.cuda}" if environment.cuda else "", environment.variant or "")))


def _codes(findings: tuple[Finding, ...]) -> str:
    return " ".join(dict.fromkeys(finding.code for finding in findings))


def _without_environment(material: Material) -> tuple[WithoutEnvironment, ...]:
    """List combinations that cannot work, then those that the matrix excludes."""
    rows = []
    for one in material.rejections:
        fix = " ".join(dict.fromkeys(finding.fix for finding in one.findings if finding.fix))
        rows.append(WithoutEnvironment(REJECTED, one.id, _codes(one.findings), one.sentence, fix))
    for excluded in material.excluded:
        combination = excluded.combination
        parts = (
            part
            for part in (combination.python, combination.os, combination.cuda, combination.variant)
            if part and part != WHOLE
        )
        name = " ".join((combination.tensorflow, combination.flavor, *parts))
        rows.append(WithoutEnvironment(EXCLUDED, name, "", excluded.reason, ""))
    return tuple(rows)


def _history(material: Material) -> tuple[RunGroup, ...]:
    """Group every run by environment, newest first; the environment that ran last comes first."""
    every = [(name, verdict) for name, group in material.verdicts.items() for verdict in group]
    groups: dict[str, list[HistoryRow]] = {}
    for name, verdict in sorted(every, key=lambda run: run[1].finished, reverse=True):
        groups.setdefault(name, []).append(HistoryRow(name, _anchor(name), verdict, _search_words(verdict)))
    return tuple(
        RunGroup(
            name=name,
            words=tuple(sorted(Counter(run.verdict.verdict for run in runs).items())),
            pages=tuple(tuple(runs[at : at + RUNS_PER_PAGE]) for at in range(0, len(runs), RUNS_PER_PAGE)),
        )
        for name, runs in groups.items()
    )


def _search_words(verdict: Verdict) -> str:
    """Return the words that the page's search looks in, in lower case."""
    environment = verdict.environment
    parts = [name_of(verdict), verdict.verdict, verdict.level, *verdict.reasons]
    parts += [f"{finding.code} {finding.message} {finding.fix}" for finding in _findings(verdict)]
    if environment is not None:
        parts += [environment.tensorflow, environment.python, environment.os, environment.flavor]
        parts += [f"cuda {environment.cuda}", f"cudnn {environment.cudnn}"] if environment.cuda else []
    return " ".join(parts).casefold()


def _findings(verdict: Verdict) -> tuple[Finding, ...]:
    """Return a verdict's findings and those of its plan, the most severe first."""
    planned = verdict.environment.findings if verdict.environment else ()
    return worst_first(dict.fromkeys((*verdict.findings, *planned)))


def _anchor(name: str) -> str:
    return f"env-{_file_name(name)}"


def _file_name(name: str) -> str:
    """Return a name of letters, digits, ``.``, ``_`` and ``-``; different names never share one."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in name)
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
