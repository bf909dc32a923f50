"""Write what a publish did, or would do, for people: one table, a row an image."""

from __future__ import annotations

from collections.abc import Iterator

from envbuilder.publish.publish_document import PublishDocument, PublishRow, ZstdForm
from envbuilder.support.console import table


def as_text(document: PublishDocument) -> str:
    """Write the table that ends a publish: environment, what came of it, verdict, digest, tags or why not."""
    rows = [line for row in document.rows for line in _lines(row, document)]
    return table(("environment", "result", "verdict", "digest", "tags"), rows)


def _lines(row: PublishRow, document: PublishDocument) -> Iterator[tuple[str, ...]]:
    """Write a line for the image, and one for its second manifest."""
    verdict = row.verdict or "-"
    yield row.environment, _word(row, document), verdict, row.digest[:19] or "-", _where(row, document)
    if row.zstd:
        yield row.environment, "in zstd", verdict, row.zstd.digest[:19], _names_and_size(row.zstd)


def _names_and_size(form: ZstdForm) -> str:
    sizes = f"{form.compressed / 1e6:,.1f} MB instead of {form.gzip / 1e6:,.1f}"
    return f"{', '.join(tag.name for tag in form.tags)} ({sizes})"


def _word(row: PublishRow, document: PublishDocument) -> str:
    if row.error and row.published:
        return "in gzip alone"
    if row.error:
        return "refused" if row.verdict else "failed"
    return "would publish" if document.dry_run else "published"


def _where(row: PublishRow, document: PublishDocument) -> str:
    if row.error:
        return row.error.splitlines()[0]
    if document.dry_run:
        return ", ".join(f"{tag.name} ({tag.before[:19] or 'new'})" for tag in row.tags)
    allowed = f" (allowed: {', '.join(row.allowed)})" if row.allowed else ""
    return ", ".join(tag.name for tag in row.tags) + allowed
