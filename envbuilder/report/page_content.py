"""The content of the page, in its order: what was judged, the matrix, what was not run, and the history."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import msgspec

from envbuilder.engine.port import Layer
from envbuilder.environment import WHOLE, Combination, Environment
from envbuilder.finding import Finding, worst_first
from envbuilder.image.names import run_line
from envbuilder.report import charts
from envbuilder.report.report_data import Material, name_of
from envbuilder.upgrade.document import UpgradeDocument
from envbuilder.upgrade.text import Section, sections
from envbuilder.verdict import LEVELS, ImageState, Verdict, Word, is_passed
from envbuilder.versions import Key, order

UNKNOWN, REJECTED, EXCLUDED = "NOT RUN", "IMPOSSIBLE", "EXCLUDED"
SIGNS = {"PASSED": "✔", "FAILED": "✘", "INCONCLUSIVE": "?", UNKNOWN: "○", REJECTED: "—", EXCLUDED: "∅"}
"""Every state has a sign and a word, so that no information is in a colour only."""
STRIP = 16
"""The newest runs of an environment that its strip shows."""


class PageState(msgspec.Struct, frozen=True, kw_only=True):
    """What a page said: the word of each environment. The next page compares itself with it."""

    schema: str = "envbuilder/report/v1"
    written: str
    words: dict[str, Word]


@dataclass(frozen=True)
class GridCell:
    """One context in the grid; ``anchor`` leads to its details."""

    word: str
    text: str
    anchor: str
    title: str
    search: str
    date: str = ""

    @property
    def judged(self) -> bool:
        return self.word not in (UNKNOWN, REJECTED, EXCLUDED)


@dataclass(frozen=True)
class Grid:
    """A table of contexts; rows and columns without a judged cell are shown by the filter only."""

    name: str
    corner: str
    columns: tuple[tuple[str, ...], ...]
    rows: tuple[tuple[str, tuple[tuple[GridCell, ...], ...]], ...]

    def judged_columns(self) -> tuple[bool, ...]:
        columns = zip(*(columns for _, columns in self.rows), strict=True)
        return tuple(any(cell.judged for cells in column for cell in cells) for column in columns)


@dataclass(frozen=True)
class Run:
    """One verdict; ``id`` is the beginning of its digest and names its file."""

    id: str
    name: str
    verdict: Verdict
    when: str
    host: str
    reached: str
    title: str

    @property
    def image(self) -> str:
        return self.verdict.image.digest or self.verdict.image.id


@dataclass(frozen=True)
class EnvironmentCard:
    """One environment with its newest real verdict and its runs, oldest first; ``elsewhere`` FAILED on other hosts."""

    anchor: str
    name: str
    word: Word
    variant: str
    run: Run
    age: str
    command: str
    findings: tuple[Finding, ...]
    levels: tuple[tuple[str, int, int, bool], ...]
    remark: str
    layers: tuple[Layer, ...]
    trends: tuple[charts.Trend, ...]
    search: str
    runs: tuple[Run, ...]
    elsewhere: tuple[Run, ...]

    @property
    def verdict(self) -> Verdict:
        return self.run.verdict

    @property
    def strip(self) -> tuple[Run, ...]:
        return self.runs[-STRIP:]


_Record = TypeVar("_Record")
_Drawn = TypeVar("_Drawn")


@dataclass(frozen=True)
class PageContent:
    """Everything that the page shows. ``unreadable`` names what cannot be shown, and why."""

    counts: tuple[tuple[str, int], ...]
    since: str
    oldest: str
    environments: tuple[EnvironmentCard, ...] = ()
    grids: tuple[Grid, ...] = ()
    waiting: tuple[Environment, ...] = ()
    left_out: tuple[tuple[str, str, str, str, str], ...] = ()
    controls: tuple[tuple[str, Verdict], ...] = ()
    upgrades: tuple[tuple[UpgradeDocument, tuple[Section, ...]], ...] = ()
    standings: tuple[ImageState, ...] = ()
    unreadable: tuple[tuple[str, str], ...] = ()


def page_content(material: Material, now: datetime, before: PageState | None = None) -> PageContent:
    """Order everything: what needs attention first, then newest release first. One bad record spoils nothing else."""
    unreadable = list(material.unreadable)

    def drawn(pairs: Iterable[tuple[str, _Record]], draw: Callable[[str, _Record], _Drawn]) -> Iterator[_Drawn]:
        for name, record in pairs:
            try:
                yield draw(name, record)
            except (ValueError, ArithmeticError, LookupError, TypeError) as error:
                unreadable.append((name, f"cannot be shown: {error}"))

    cards = list(drawn(material.verdicts.items(), lambda name, runs: _card(name, runs, material, now)))
    severity = {"FAILED": 0, "INCONCLUSIVE": 1, "PASSED": 2}
    cards.sort(key=lambda one: order(getattr(one.verdict.environment, "tensorflow", None)), reverse=True)
    cards.sort(key=lambda one: severity[one.word])
    judged = {one.name for one in cards}
    waiting = tuple(one for one in material.environments if one.id not in judged)
    named = ((f"upgrade {one.old.tensorflow} → {one.new.tensorflow}", one) for one in material.upgrades)
    upgrades = tuple(drawn(named, lambda _, one: (one, tuple(sections(one)))))
    ages = [age for one in cards if (age := _age(one.verdict, now)) is not None]
    runs = "; ".join(f"{run.name} on {run.host}" for card in cards for run in card.elsewhere)
    elsewhere = f"FAILED on another host than that of the newest verdict: {runs}." if runs else ""
    return PageContent(
        counts=_counts(cards, waiting, material),
        since=" ".join((_since({one.name: one.word for one in cards}, before), elsewhere)).strip(),
        oldest=_days(max(ages)) if ages else "",
        environments=tuple(cards),
        grids=(_systems(material, cards, waiting), *_host_grids(cards, now)) if cards or waiting else (),
        waiting=waiting,
        left_out=tuple(_without_environment(material)),
        controls=tuple(material.controls.items()),
        upgrades=upgrades,
        standings=tuple(sorted(material.standings, key=lambda one: (one.environment, one.digest))),
        unreadable=tuple(unreadable),
    )


def _since(words: dict[str, Word], before: PageState | None) -> str:
    """Say what is other than on the last page: ``2 turned red, 1 green``."""
    if before is None:
        return ""
    turned = Counter(word for name, word in words.items() if before.words.get(name, word) != word)
    parts = [f"{turned[word]} turned {colour}" for word, colour in _COLOURS.items() if turned[word]]
    new = len(words.keys() - before.words.keys())
    gone = len(before.words.keys() - words.keys())
    parts += [f"{number} {what}" for number, what in ((new, "new"), (gone, "gone")) if number]
    return f"Since the last report ({before.written}): {', '.join(parts) or 'no change'}."


_COLOURS: dict[Word, str] = {"FAILED": "red", "INCONCLUSIVE": "yellow", "PASSED": "green"}


def _card(name: str, runs: tuple[Verdict, ...], material: Material, now: datetime) -> EnvironmentCard:
    every = tuple(_run(name, run) for run in runs)
    # A simulation says nothing about the environment itself: it is shown only if there is nothing real.
    newest = next((run for run in reversed(every) if not run.verdict.unreal), every[-1])
    verdict, environment = newest.verdict, newest.verdict.environment
    same = [run for run in every if not run.verdict.unreal and run.image == newest.image]
    failed = [run for run in {run.host: run for run in same}.values() if run.verdict.verdict == "FAILED"]
    gpus = environment.flavor == "gpu" if environment else "gpu" in verdict.requires
    notebook = environment is not None and environment.variant == "notebook"
    image = material.names.get(verdict.image.id, verdict.image.reference)
    levels = _levels(verdict)
    green = verdict.verdict == "FAILED" and levels and all(passed == total for _, passed, total, _ in levels)
    trends = (
        charts.trend("import", [charts.medians(run.timeline).get("import") for run in runs], charts.seconds),
        charts.trend("size", [run.image.size or None for run in runs], charts.size),
    )
    age = _age(verdict, now)
    return EnvironmentCard(
        anchor=_anchor(name),
        name=name,
        word=verdict.verdict,
        variant=_variant(environment),
        run=newest,
        age=_days(age) if age is not None else "",
        command=run_line(image, gpus=gpus, notebook=notebook) if image and not image.startswith("sha256:") else "",
        findings=_findings(verdict),
        levels=levels,
        remark="Every check passed; the reasons below are about the image as a whole." if green else "",
        layers=material.layers.get(verdict.image.id, ()),
        trends=tuple(one for one in trends if one is not None),
        search=_search_words(verdict),
        runs=every,
        elsewhere=tuple(run for run in failed if run is not newest and run.verdict not in material.answered),
    )


def _run(name: str, verdict: Verdict) -> Run:
    when, host = verdict.finished[:16].replace("T", " "), _host(verdict)
    simulated = " (simulated)" if verdict.unreal else ""
    reached = "no level" if verdict.level == "none" else f"to {verdict.level}"
    title = f"{when} {verdict.verdict}{simulated}, {reached}, {host}"
    return Run(hashlib.sha256(msgspec.json.encode(verdict)).hexdigest()[:16], name, verdict, when, host, reached, title)


def _variant(environment: Environment | None) -> str:
    return (environment.variant or WHOLE) if environment else ""


def _levels(verdict: Verdict) -> tuple[tuple[str, int, int, bool], ...]:
    """Return how many checks of each level passed, of how many, and whether the level is required."""
    by_level = {level: [check for check in verdict.checks if check.level == level] for level in LEVELS}
    return tuple(
        (level, sum(map(is_passed, checks)), len(checks), level in verdict.requires)
        for level, checks in by_level.items()
        if checks or level in verdict.requires
    )


def _age(verdict: Verdict, now: datetime) -> timedelta | None:
    try:
        time = datetime.fromisoformat(verdict.finished)
    except ValueError:
        return None
    return now - (time if time.tzinfo else time.replace(tzinfo=UTC))


def _days(age: timedelta) -> str:
    return "today" if age.days < 1 else "1 day old" if age.days == 1 else f"{age.days} days old"


def _host(verdict: Verdict) -> str:
    gpus = ", ".join(dict.fromkeys(gpu.name for gpu in verdict.host.gpus))
    return f"{gpus}, driver {verdict.host.driver}" if gpus else "no GPU"


def _counts(
    cards: list[EnvironmentCard], waiting: tuple[Environment, ...], material: Material
) -> tuple[tuple[str, int], ...]:
    words = [one.word for one in cards] + ["FAILED" for one in cards if one.elsewhere and one.word != "FAILED"]
    counted = [(word, words.count(word)) for word in ("PASSED", "INCONCLUSIVE", "FAILED")]
    counted += [(UNKNOWN, len(waiting)), (REJECTED, len(material.rejections)), (EXCLUDED, len(material.excluded))]
    return tuple((word, number) for word, number in counted if number or word == "PASSED")


Column = tuple[str, ...]
Placed = dict[tuple[str, Column], list[GridCell]]


def _grid(name: str, corner: str, placed: Placed, columns: list[Column]) -> Grid:
    """Lay out cells by row and column, the newest release first; environments have the order of their cards."""
    rows = sorted(dict.fromkeys(row for row, _ in placed), key=order, reverse=True)
    cells = ((row, tuple(tuple(placed.get((row, column), ())) for column in columns)) for row in rows)
    return Grid(name, corner, tuple(columns), tuple(cells))


def _systems(material: Material, cards: list[EnvironmentCard], waiting: tuple[Environment, ...]) -> Grid:
    placed: Placed = {}
    judged = [(card.verdict.environment, _judged_cell(card.run, card)) for card in cards if card.verdict.environment]
    for one in waiting:
        text = " · ".join(filter(None, (_variant(one), f"CUDA {one.cuda}" if one.cuda else "")))
        cell = GridCell(UNKNOWN, text, _anchor(one.id), f"{one.id} has no verdict yet", one.id.casefold())
        judged.append((one, cell))
    for environment, cell in judged:
        placed.setdefault((environment.tensorflow, _column(environment)), []).append(cell)
    known = sorted({column for _, column in placed}, key=_column_order)
    left_out = [*(one.combination for one in material.rejections), *(one.combination for one in material.excluded)]
    for combination, (word, name, codes, why, _) in zip(left_out, _without_environment(material), strict=True):
        cell = GridCell(word, codes or "by the matrix", "left-out", why, f"{name} {codes} {why}".casefold())
        cells = placed.setdefault((combination.tensorflow, _fitting(_column(combination), known)), [])
        cells.extend([cell] if cell not in cells else [])
    return _grid("system", "TensorFlow", placed, sorted({column for _, column in placed}, key=_column_order))


def _column(one: Combination | Environment) -> Column:
    python = f"Python {one.python}" if one.python else "any Python"
    return (one.flavor.upper(), python, (one.os or "").removeprefix("debian-") or "any system")


def _column_order(column: Column) -> tuple[str, tuple[bool, Key], str]:
    flavor, python, system = column
    return flavor, order(python.removeprefix("Python ")), system


def _fitting(column: Column, columns: list[Column]) -> Column:
    """Return the first column of an environment that fits a combination with open choices, else its own."""
    wanted = [None if value.startswith("any ") else value for value in column]
    fits = (known for known in columns if all(mine in (None, value) for mine, value in zip(wanted, known, strict=True)))
    return next(fits, column)


AGES = ((1, "last day"), (7, "last week"), (30, "last month"), (90, "last 90 days"))


def _host_grids(cards: list[EnvironmentCard], now: datetime) -> Iterator[Grid]:
    """Lay out environments against GPUs, drivers and ages: the newest real verdict of each place."""
    places: tuple[tuple[str, Callable[[Verdict], Iterable[str]]], ...] = (
        ("GPU", lambda run: [gpu.name for gpu in run.host.gpus] or ["no GPU"]),
        ("driver", lambda run: [run.host.driver or "no driver"]),
        ("age", lambda run: [_bucket(_age(run, now))]),
    )
    for name, values in places:
        newest: dict[tuple[str, Column], tuple[EnvironmentCard, Run]] = {
            (card.name, (value,)): (card, run)
            for card in cards
            for run in (card.runs if name != "age" else [card.run])
            if not run.verdict.unreal
            for value in values(run.verdict)
        }
        placed: Placed = {place: [_judged_cell(run, card)] for place, (card, run) in newest.items()}
        labels = [label for _, label in AGES]
        columns = sorted({column for _, column in placed}, key=lambda column: (order(column[0]), column))
        columns.sort(key=lambda column: labels.index(column[0]) if column[0] in labels else len(labels))
        yield _grid(name, "environment", placed, columns)


def _bucket(age: timedelta | None) -> str:
    return next((label for days, label in AGES if age and age < timedelta(days=days)), "older" if age else "no time")


def _judged_cell(run: Run, card: EnvironmentCard) -> GridCell:
    verdict = run.verdict
    cuda = verdict.environment.cuda if verdict.environment else None
    text = " · ".join(filter(None, (card.variant, run.reached, f"CUDA {cuda}" if cuda else "")))
    title = f"{card.name}: {run.title}" + (f". {verdict.reasons[0]}" if verdict.reasons else "")
    return GridCell(verdict.verdict, text, card.anchor, title, card.search, verdict.finished[:10])


def _without_environment(material: Material) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield word, name, codes, reason and fix of what cannot work, then of what the matrix excludes."""
    for one in material.rejections:
        codes = " ".join(dict.fromkeys(finding.code for finding in one.findings))
        fix = " ".join(dict.fromkeys(finding.fix for finding in one.findings if finding.fix))
        yield REJECTED, one.id, codes, one.sentence, fix
    for excluded in material.excluded:
        given = excluded.combination
        parts = (given.tensorflow, given.flavor, given.python, given.os, given.cuda, given.variant)
        yield EXCLUDED, " ".join(part for part in parts if part and part != WHOLE), "", excluded.reason, ""


def _search_words(verdict: Verdict) -> str:
    environment = verdict.environment
    parts = [name_of(verdict), verdict.verdict, verdict.level, *verdict.reasons, _host(verdict)]
    parts += [f"{finding.code} {finding.message} {finding.fix}" for finding in _findings(verdict)]
    if environment is not None:
        parts += [environment.tensorflow, environment.python, environment.os, environment.flavor]
        parts += [f"cuda {environment.cuda}", f"cudnn {environment.cudnn}"] if environment.cuda else []
    return " ".join([*parts, _variant(environment)]).casefold()


def _findings(verdict: Verdict) -> tuple[Finding, ...]:
    """Return a verdict's findings and those of its plan, the most severe first."""
    planned = verdict.environment.findings if verdict.environment else ()
    return worst_first(dict.fromkeys((*verdict.findings, *planned)))


def _anchor(name: str) -> str:
    """Return a fragment of an address; different names never share one."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in name)[:80]
    return f"env-{plain}" if plain == name else f"env-{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
