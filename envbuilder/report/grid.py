"""The report's grid: releases against flavours, Pythons and systems; and what has no environment, with the reason."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from envbuilder.environment import WHOLE, Combination, Environment
from envbuilder.report.report_data import Material
from envbuilder.versions import Key, key, order

UNKNOWN, REJECTED, EXCLUDED = "NOT RUN", "IMPOSSIBLE", "EXCLUDED"

SIGNS = {"PASSED": "✔", "FAILED": "✘", "INCONCLUSIVE": "?", UNKNOWN: "○", REJECTED: "—", EXCLUDED: "∅"}
"""Every state has a sign and a word, so that nothing is told by colour alone."""

Column = tuple[str, str, str]


@dataclass(frozen=True)
class Cell:
    """What the grid says of one combination; ``anchor`` leads to its details ('' where there are none)."""

    word: str
    text: str
    anchor: str
    title: str
    search: str


@dataclass(frozen=True)
class GridRow:
    """One release; cells are by column, each a list since a release may have several environments there."""

    name: str
    cells: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class LeftOut:
    """A combination without an environment, and why."""

    word: str
    name: str
    codes: str
    why: str
    fix: str


def anchor_of(name: str) -> str:
    """Make an id for a link: letters, digits, ``.``, ``_`` and ``-`` alone; different names never share one."""
    return f"env-{file_of(name)}"


def file_of(name: str) -> str:
    """Make a file's name of the same letters; different names never share one."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in name)
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _column(one: Combination | Environment) -> Column:
    """Return flavour, Python and system; '' where a combination leaves the choice open."""
    return (one.flavor, one.python or "", (one.os or "").removeprefix("debian-"))


def _column_order(column: Column) -> tuple[str, tuple[bool, Key], str]:
    flavor, python, system = column
    return flavor, order(python), system


def _fitting(column: Column, columns: list[Column]) -> Column:
    """Find the column of an environment that a combination with open choices would have stood in."""
    fits = (known for known in columns if all(wish in ("", value) for wish, value in zip(column, known, strict=True)))
    return next(fits, column)


def grid(
    material: Material, judged: list[tuple[Environment, Cell]], waiting: tuple[Environment, ...]
) -> tuple[tuple[Column, ...], tuple[GridRow, ...]]:
    """Lay out releases against flavours, Pythons and systems; the newest release first."""
    made = [*judged, *((one, _waiting_cell(one)) for one in waiting)]
    placed: dict[tuple[str, Column], list[Cell]] = {}
    for environment, cell in made:
        placed.setdefault((environment.tensorflow, _column(environment)), []).append(cell)
    known = sorted({column for _, column in placed}, key=_column_order)
    for wish, cell in _left_out_cells(material):
        cells = placed.setdefault((wish.tensorflow, _fitting(_column(wish), known)), [])
        cells.extend([cell] if cell not in cells else [])
    columns = sorted({column for _, column in placed}, key=_column_order)
    releases = sorted({release for release, _ in placed}, key=key, reverse=True)
    rows = tuple(
        GridRow(release, tuple(tuple(placed.get((release, column), ())) for column in columns)) for release in releases
    )
    return tuple(columns), rows


def _waiting_cell(one: Environment) -> Cell:
    return Cell(UNKNOWN, kind_of(one), anchor_of(one.id), f"{one.id} has no verdict yet", one.id.casefold())


def _left_out_cells(material: Material) -> list[tuple[Combination, Cell]]:
    cells = []
    for one in material.rejections:
        codes = " ".join(dict.fromkeys(finding.code for finding in one.findings))
        search = f"{one.id} {codes}".casefold()
        cells.append((one.combination, Cell(REJECTED, codes, "left-out", one.sentence, search)))
    for left_out in material.excluded:
        cell = Cell(EXCLUDED, "by the matrix", "left-out", left_out.reason, left_out.reason.casefold())
        cells.append((left_out.combination, cell))
    return cells


def kind_of(environment: Environment) -> str:
    """Name what its column does not: the CUDA of an environment, and its form where that is not the whole one."""
    return " ".join(filter(None, (f"CUDA {environment.cuda}" if environment.cuda else "", environment.form or "")))


def left_out(material: Material) -> tuple[LeftOut, ...]:
    """List what has no environment: combinations that cannot work, then those that the matrix excludes."""
    rows = [
        LeftOut(
            REJECTED,
            one.id,
            " ".join(dict.fromkeys(finding.code for finding in one.findings)),
            one.sentence,
            " ".join(dict.fromkeys(finding.fix for finding in one.findings if finding.fix)),
        )
        for one in material.rejections
    ]
    for excluded in material.excluded:
        wish = excluded.combination
        name = f"{wish.tensorflow} {wish.flavor}" + "".join(
            f" {part}" for part in (wish.python, wish.os, wish.cuda, wish.form) if part and part != WHOLE
        )
        rows.append(LeftOut(EXCLUDED, name, "", excluded.reason, ""))
    return tuple(rows)
