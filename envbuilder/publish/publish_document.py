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


class ZstdForm(msgspec.Struct, frozen=True, kw_only=True):
    """The same image with its layers in zstd: its manifest's digest, what names it, and what is attached to that.

    ``compressed`` and ``gzip`` are the bytes of its layers as they are stored, in this form and in the first.
    """

    digest: str
    tags: tuple[Tag, ...]
    statements: tuple[str, ...]
    compressed: int
    gzip: int


class PublishRow(msgspec.Struct, frozen=True, kw_only=True):
    """How one image fared. ``statements`` are the digests under which they are attached.

    ``zstd`` is its second manifest, where one was asked for; with ``published`` and an ``error`` that one is lacking.
    """

    environment: str
    repository: str
    published: bool = False
    digest: str = ""
    verdict: Word | None = None
    level: Level | None = None
    allowed: tuple[Allowance, ...] = ()
    tags: tuple[Tag, ...] = ()
    statements: tuple[str, ...] = ()
    zstd: ZstdForm | None = None
    error: str = ""
    exit_code: int = 0


class PublishDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a publish did, or with ``dry_run`` would do, image by image."""

    schema: str = "envbuilder/publish/v1"
    dry_run: bool = False
    rows: tuple[PublishRow, ...]
