"""The documents that `publish` prints."""

from __future__ import annotations

import msgspec

from envbuilder.attest.predicates import Allowance
from envbuilder.verdict import Level, Word


class Tag(msgspec.Struct, frozen=True, kw_only=True):
    """One public tag; a moving one follows the newest image that was published under it."""

    name: str
    moving: bool
    before: str = ""


class PublishRow(msgspec.Struct, frozen=True, kw_only=True):
    """How one image fared. ``statements`` are the digests under which they are attached."""

    environment: str
    repository: str
    published: bool = False
    digest: str = ""
    verdict: Word | None = None
    level: Level | None = None
    allowed: tuple[Allowance, ...] = ()
    tags: tuple[Tag, ...] = ()
    statements: tuple[str, ...] = ()
    error: str = ""
    exit_code: int = 0


class PublishDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a publish did, or with ``dry_run`` would do, image by image."""

    schema: str = "envbuilder/publish/v1"
    dry_run: bool = False
    rows: tuple[PublishRow, ...]
