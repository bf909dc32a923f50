"""Write what a run or a build did, for people: one table, a row an environment."""

from __future__ import annotations

from envbuilder.jobs.run import RunDocument, RunRow
from envbuilder.support.console import table


def run_text(document: RunDocument) -> str:
    """Write the table that ends a run: verdict, level, size, what was done, where or why not."""
    rows = [
        (
            row.environment,
            row.verdict or "ERROR",
            row.level or "-",
            _size(row),
            f"{row.built}, {row.validated}",
            _where(row),
        )
        for row in document.rows
    ]
    return table(("environment", "verdict", "level", "size", "work", "where"), rows)


def build_text(document: RunDocument) -> str:
    """Write the table that ends a build: image, size, what was done, where or why not."""
    rows = [(row.environment, row.image or "-", _size(row), row.built, _where(row)) for row in document.rows]
    return table(("environment", "image", "size", "work", "where or why"), rows)


def _size(row: RunRow) -> str:
    return f"{row.size / 1e9:.2f} GB" if row.size else "-"


def _where(row: RunRow) -> str:
    return row.path or row.error.splitlines()[0]
