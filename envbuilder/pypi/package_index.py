"""The port to package indexes: values and protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec

from envbuilder.errors import InfrastructureError


class IndexUnavailableError(InfrastructureError):
    """The index did not answer, or its answer cannot be used."""


class DistFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a project on an index; ``size`` in bytes.

    ``sha256`` is '' if the index has none. ``has_metadata`` says if the index serves ``<url>.metadata``, None if
    unknown; ``metadata_sha256`` is the digest of that, '' if unknown.
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
    """One file in a wheel: its name, its packed and its real size in bytes."""

    name: str
    packed: int
    size: int


class PackageIndex(Protocol):
    """An index, for several threads. Every method raises IndexUnavailableError if the index fails."""

    def files(self, project: str) -> tuple[DistFile, ...]:
        """List a project's files; none if the index does not know it."""

    def metadata(self, file: DistFile) -> str:
        """Return a wheel's METADATA."""

    def members(self, file: DistFile) -> tuple[Member, ...]:
        """List the files in a wheel; only its directory is read."""

    def member(self, file: DistFile, name: str) -> bytes | None:
        """Return one file of a wheel; None if the wheel has no such file."""

    def stream(self, file: DistFile, member: Member) -> Iterator[bytes]:
        """Yield one file of a wheel, unpacked, piece by piece; only its own bytes are read."""

    def whole(self, file: DistFile) -> Iterator[bytes]:
        """Yield a file as it is, piece by piece; its hash is not checked."""

    def size(self, file: DistFile) -> int:
        """Return a file's size in bytes."""
