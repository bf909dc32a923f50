"""Turn material into what the page shows, in the page's order; the template only writes it down."""

from __future__ import annotations

from dataclasses import dataclass

from envbuilder.environment import Environment
from envbuilder.finding import Finding
from envbuilder.report import drawing
from envbuilder.report.grid import (
    EXCLUDED,
    REJECTED,
    UNKNOWN,
    Cell,
    Column,
    GridRow,
    LeftOut,
    anchor_of,
    file_of,
    grid,
    kind_of,
    left_out,
)
from envbuilder.report.report_data import Material
from envbuilder.report.runs import RunGroup, RunView, every_run, findings, grouped, search_words
from envbuilder.upgrade.document import UpgradeDocument
from envbuilder.upgrade.text import WHOLE, sections
from envbuilder.verdict import LEVELS, CheckResult, ImageStanding, Verdict
from envbuilder.versions import key


@dataclass(frozen=True)
class TierView:
    """How one tier went, in numbers."""

    name: str
    passed: int
    total: int
    required: bool


@dataclass(frozen=True)
class EnvironmentView:
    """One environment with everything that is known about it."""

    anchor: str
    name: str
    word: str
    verdict: Verdict
    environment: Environment | None
    findings: tuple[Finding, ...]
    tiers: tuple[TierView, ...]
    timeline: drawing.Picture | None
    phases: tuple[drawing.Row, ...]
    layers: drawing.Picture | None
    layer_rows: tuple[tuple[str, str, int], ...]
    course: drawing.Course | None
    size: str
    start: str
    search: str
    data: str


@dataclass(frozen=True)
class ControlView:
    """One environment that is broken on purpose, and what the suite said of it."""

    name: str
    word: str
    simulated: bool
    level: str
    codes: tuple[str, ...]
    reason: str
    search: str


@dataclass(frozen=True)
class UpgradeView:
    """One comparison of two releases: the decision, and the tables that ``envbuilder upgrade`` prints."""

    name: str
    decision: str
    simulated: bool
    finished: str
    policy: str
    sections: tuple[tuple[str, tuple[str, ...], tuple[tuple[str, ...], ...]], ...]
    whole: tuple[str, ...]
    row: str
    gaps: tuple[str, ...]


@dataclass(frozen=True)
class Page:
    """The page's content."""

    counts: tuple[tuple[str, int], ...]
    columns: tuple[Column, ...]
    grid: tuple[GridRow, ...]
    environments: tuple[EnvironmentView, ...]
    waiting: tuple[Environment, ...]
    left_out: tuple[LeftOut, ...]
    controls: tuple[ControlView, ...]
    upgrades: tuple[UpgradeView, ...]
    history: tuple[RunView, ...]
    runs: tuple[RunGroup, ...]
    unreadable: int
    standings: tuple[ImageStanding, ...]


def view(material: Material) -> Page:
    """Lay everything out: environments newest release first, those that need attention before those that do not."""
    shown = tuple(_environment(name, runs, material) for name, runs in material.verdicts.items())
    order = {"FAILED": 0, "INCONCLUSIVE": 1, "PASSED": 2}
    shown = tuple(sorted(shown, key=lambda one: (order[one.word], _release_key(one), one.name)))
    waiting = tuple(one for one in material.environments if one.id not in material.verdicts)
    judged = [(one.environment, _cell(one)) for one in shown if one.environment is not None]
    columns, rows = grid(material, judged, waiting)
    history = every_run(material)
    return Page(
        counts=_counts(shown, waiting, material),
        columns=columns,
        grid=rows,
        environments=shown,
        waiting=waiting,
        left_out=left_out(material),
        controls=tuple(_control(name, verdict) for name, verdict in material.controls.items()),
        upgrades=tuple(_upgrade(one) for one in material.upgrades),
        history=history,
        runs=grouped(history),
        unreadable=material.unreadable,
        standings=tuple(sorted(material.standings, key=lambda one: (one.environment, one.digest))),
    )


def _release_key(one: EnvironmentView) -> tuple[int, ...]:
    try:
        numbers = key(one.environment.tensorflow)[0] if one.environment else ()
    except ValueError:
        numbers = ()
    return tuple(-number for number in numbers)


def _environment(name: str, runs: tuple[Verdict, ...], material: Material) -> EnvironmentView:
    # A simulation says nothing about the environment itself: it is shown only where there is nothing real.
    verdict = next((run for run in reversed(runs) if not run.unreal), runs[-1])
    layers = material.layers.get(verdict.image.id, ())
    start = drawing.import_seconds(verdict)
    return EnvironmentView(
        anchor=anchor_of(name),
        name=name,
        word=verdict.verdict,
        verdict=verdict,
        environment=verdict.environment,
        findings=findings(verdict),
        tiers=_tiers(verdict),
        timeline=drawing.timeline(verdict.timeline),
        phases=drawing.phase_rows(verdict.timeline),
        layers=drawing.layer_bars(layers),
        layer_rows=tuple(
            (drawing.layer_name(layer, index), drawing.size(layer.size), index % drawing.COLOURS)
            for index, layer in enumerate(layers)
        ),
        course=drawing.course(runs),
        size=drawing.size(verdict.image.size) if verdict.image.size else "",
        start=drawing.seconds(start) if start is not None else "",
        search=search_words(verdict),
        data=f"verdicts/{file_of(name)}.json",
    )


def _tiers(verdict: Verdict) -> tuple[TierView, ...]:
    def of(tier: str) -> list[CheckResult]:
        return [check for check in verdict.checks if check.level == tier]

    return tuple(
        TierView(tier, sum(check.outcome == "passed" for check in of(tier)), len(of(tier)), tier in verdict.requires)
        for tier in LEVELS
        if of(tier) or tier in verdict.requires
    )


def _counts(
    shown: tuple[EnvironmentView, ...], waiting: tuple[Environment, ...], material: Material
) -> tuple[tuple[str, int], ...]:
    words = [one.word for one in shown]
    counted = [(word, words.count(word)) for word in ("PASSED", "INCONCLUSIVE", "FAILED")]
    counted += [(UNKNOWN, len(waiting)), (REJECTED, len(material.rejections)), (EXCLUDED, len(material.excluded))]
    return tuple((word, number) for word, number in counted if number or word == "PASSED")


def _cell(one: EnvironmentView) -> Cell:
    level = f"to {one.verdict.level}" if one.verdict.level != "none" else "no level"
    kind = kind_of(one.environment) if one.environment else ""
    title = f"{one.name}: {one.word}" + (f". {one.verdict.reasons[0]}" if one.verdict.reasons else "")
    return Cell(one.word, f"{level} · {kind}" if kind else level, one.anchor, title, one.search)


def _upgrade(document: UpgradeDocument) -> UpgradeView:
    return UpgradeView(
        name=f"TensorFlow {document.old.tensorflow} → {document.new.tensorflow} ({document.flavor})",
        decision=document.decision,
        simulated=document.simulated,
        finished=document.finished,
        policy=document.policy,
        sections=tuple((title, headers, tuple(rows)) for title, headers, rows in sections(document) if rows),
        whole=WHOLE,
        row=document.row,
        gaps=document.gaps,
    )


def _control(name: str, verdict: Verdict) -> ControlView:
    codes = tuple(dict.fromkeys(str(finding.code) for finding in verdict.findings))
    reason = verdict.reasons[0] if verdict.reasons else ""
    search = f"{name} {verdict.verdict} {' '.join(codes)} {reason}".casefold()
    return ControlView(name, verdict.verdict, verdict.simulated, verdict.level, codes, reason, search)
