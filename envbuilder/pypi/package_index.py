"""What the rest of envbuilder asks of a package index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec

from envbuilder.errors import InfrastructureError


class IndexUnavailableError(InfrastructureError):
    """The index did not answer, or not in a way that can be used."""


class DistFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a project on an index.

    ``sha256`` is '' where the index states none; ``has_metadata`` is None where it does not say whether it serves
    ``<url>.metadata``, whose own digest is ``metadata_sha256`` ('' where it states none); ``size`` counts bytes.
    """

    project: str
    filename: str
    url: str
    sha256: str = ""
    requires_python: str = ""
    has_metadata: bool | None = None
    metadata_sha256: str = ""
    size: int | None = None
    uploaded: str = ""
    yanked: bool = False


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One file inside a wheel: its name, its packed and its real size in bytes, and where it begins."""

    name: str
    packed: int
    size: int
    offset: int
    method: int


class PackageIndex(Protocol):
    """An index. Every method raises IndexUnavailableError where the index fails; safe to call from several threads."""

    def files(self, project: str) -> tuple[DistFile, ...]:
        """List a project's files; none where the index does not know it."""
        ...

    def metadata(self, file: DistFile) -> str:
        """Return a wheel's METADATA."""
        ...

    def members(self, file: DistFile) -> tuple[Member, ...]:
        """List what is in a wheel, from its directory alone."""
        ...

    def member(self, file: DistFile, name: str) -> bytes | None:
        """Return one file of a wheel; None where the wheel has no such file."""
        ...

    def stream(self, file: DistFile, member: Member) -> Iterator[bytes]:
        """Yield one file of a wheel piece by piece, unpacked; only its own bytes are read."""
        ...

    def whole(self, file: DistFile) -> Iterator[bytes]:
        """Yield a file as it is, piece by piece; what it is, its hash says."""
        ...

    def size(self, file: DistFile) -> int:
        """Return a file's size in bytes."""
        ...
