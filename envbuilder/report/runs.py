"""The history of the page: every run, newest first, grouped by environment and laid out in pages."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from envbuilder.finding import Finding, worst_first
from envbuilder.report import drawing
from envbuilder.report.grid import anchor_of
from envbuilder.report.report_data import Material, name_of
from envbuilder.verdict import Verdict


@dataclass(frozen=True)
class RunView:
    """One line of the history."""

    finished: str
    name: str
    anchor: str
    verdict: str
    simulated: bool
    level: str
    driver: str
    size: str
    image: str
    search: str


PAGE = 10
"""Runs that stand together; older ones are folded away, so many at a time."""


@dataclass(frozen=True)
class RunGroup:
    """The runs of one environment, newest first, ``PAGE`` at a time; ``words`` counts their verdicts."""

    name: str
    anchor: str
    newest: RunView
    words: tuple[tuple[str, int], ...]
    pages: tuple[tuple[RunView, ...], ...]


def every_run(material: Material) -> tuple[RunView, ...]:
    """List every run, newest first."""
    runs = [(name, verdict) for name, group in material.verdicts.items() for verdict in group]
    return tuple(
        RunView(
            finished=verdict.finished,
            name=name,
            anchor=anchor_of(name),
            verdict=verdict.verdict,
            simulated=verdict.simulated,
            level=verdict.level,
            driver=verdict.host.driver or "",
            size=drawing.size(verdict.image.size) if verdict.image.size else "",
            image=verdict.image.digest or verdict.image.id,
            search=search_words(verdict),
        )
        for name, verdict in sorted(runs, key=lambda run: run[1].finished, reverse=True)
    )


def grouped(history: tuple[RunView, ...]) -> tuple[RunGroup, ...]:
    """Group runs by environment, the one that ran last first."""
    groups: dict[str, list[RunView]] = {}
    for run in history:
        groups.setdefault(run.name, []).append(run)
    return tuple(
        RunGroup(
            name=name,
            anchor=runs[0].anchor,
            newest=runs[0],
            words=tuple(sorted(Counter(run.verdict for run in runs).items())),
            pages=tuple(tuple(runs[at : at + PAGE]) for at in range(0, len(runs), PAGE)),
        )
        for name, runs in groups.items()
    )


def search_words(verdict: Verdict) -> str:
    """Return the words that a search looks in, in lower case."""
    environment = verdict.environment
    parts = [name_of(verdict), verdict.verdict, verdict.level, *verdict.reasons]
    parts += [f"{finding.code} {finding.message} {finding.fix}" for finding in findings(verdict)]
    if environment is not None:
        parts += [environment.tensorflow, environment.python, environment.os, environment.flavor]
        parts += [f"cuda {environment.cuda}", f"cudnn {environment.cudnn}"] if environment.cuda else []
    return " ".join(parts).casefold()


def findings(verdict: Verdict) -> tuple[Finding, ...]:
    """Return a verdict's findings and those of its plan, the gravest first."""
    planned = verdict.environment.findings if verdict.environment else ()
    every = dict.fromkeys((*verdict.findings, *planned))
    return worst_first(every)
