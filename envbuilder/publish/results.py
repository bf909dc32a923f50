"""The document that `publish` prints, and its table for people."""

from typing import Literal

import msgspec

from envbuilder.attest.statements import Allowance
from envbuilder.support.tables import table
from envbuilder.verdict import Level, Word

Compression = Literal["gzip", "zstd"]  # of the layers of a published image


class Tag(msgspec.Struct, frozen=True, kw_only=True):
    """One public tag; a moving one follows the newest image that was published under it."""

    name: str
    moving: bool
    before: str = ""


class PublishRow(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one image. ``statements`` are the digests under which they are attached.

    ``notice`` is set if a person withdrew the image or answered statements about it, for a ``reason``.
    """

    environment: str
    repository: str
    published: bool = False
    digest: str = ""
    compression: Compression = "gzip"
    verdict: Word | None = None
    level: Level | None = None
    allowed: tuple[Allowance, ...] = ()
    tags: tuple[Tag, ...] = ()
    statements: tuple[str, ...] = ()
    notice: Literal["", "withdrawn", "answered"] = ""
    reason: str = ""
    error: str = ""
    exit_code: int = 0


class PublishDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `publish`, image by image; a plan if ``dry_run``."""

    schema: str = "envbuilder/publish/v1"
    dry_run: bool = False
    rows: tuple[PublishRow, ...]


def as_text(document: PublishDocument) -> str:
    rows = []
    for row in document.rows:
        name, verdict, digest = row.environment or row.repository, row.verdict or "-", row.digest[:19] or "-"
        failure = ("refused" if row.verdict else "failed") if row.error else ""
        result = failure or row.notice or ("would publish" if document.dry_run else "published")
        rows.append((name, result, verdict, digest, _details(row, document)))
    return table(("image", "result", "verdict", "digest", "details"), rows)


def _details(row: PublishRow, document: PublishDocument) -> str:
    if row.error:
        return row.error.splitlines()[0]
    if row.notice:
        return row.reason
    if document.dry_run:
        return ", ".join(f"{tag.name} ({tag.before[:19] or 'new'})" for tag in row.tags)
    allowed = f" (allowed: {', '.join(row.allowed)})" if row.allowed else ""
    return ", ".join(tag.name for tag in row.tags) + allowed
