"""Manifests: their types, digests and forms, and whether every reader takes one for the same image."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import msgspec

from envbuilder.registry.bounded_json import MalformedError, check_unambiguous, parsed

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"

MAX_DOCUMENT = 4 << 20
"""Bytes above which a manifest or statement is refused, written or read: real ones have a tenth of it."""

_PIECE = 1 << 20
_NO_PLATFORM = "unknown"
"""What builders write for entries that are not an image: records of how one was built."""


class Descriptor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A manifest's entry for another document: its type, digest and size in bytes."""

    media_type: str
    digest: str
    size: int
    artifact_type: str = ""
    annotations: dict[str, str] = {}


@dataclass(frozen=True)
class Manifest:
    """A manifest's bytes, their type and their digest; ``etag`` as the registry gave it."""

    media_type: str
    content: bytes
    digest: str
    etag: str = field(default="", compare=False)

    @property
    def descriptor(self) -> Descriptor:
        """The entry for another manifest's ``subject``."""
        return Descriptor(media_type=self.media_type, digest=self.digest, size=len(self.content))


def digest_of(content: bytes) -> str:
    """Return the SHA-256 digest of content, as registries write it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def digest_of_file(file: BinaryIO) -> str:
    """Return the digest of a complete file, and rewind it."""
    hashed = hashlib.sha256()
    file.seek(0)
    while piece := file.read(_PIECE):
        hashed.update(piece)
    file.seek(0)
    return f"sha256:{hashed.hexdigest()}"


class _Platform(msgspec.Struct, frozen=True):
    os: str = ""
    architecture: str = ""
    variant: str = ""


class _ListEntry(msgspec.Struct, frozen=True):
    platform: _Platform | None = None


class _Shape(msgspec.Struct, frozen=True, rename="camel"):
    media_type: str = ""
    layers: Any = None
    config: Any = None
    manifests: tuple[_ListEntry, ...] | None = None


class _Blob(msgspec.Struct, frozen=True):
    digest: str
    urls: tuple[str, ...] = ()


class _Blobs(msgspec.Struct, frozen=True):
    config: _Blob | None = None
    layers: tuple[_Blob, ...] | None = None


def ambiguity(manifest: Manifest) -> str:
    """Return why a manifest can be read in two ways, so that readers may run different images; '' if it cannot.

    One that is both an image and a list, or that names another type than the registry, is taken for either
    (CVE-2021-41190); so is one with a key twice.
    """
    try:
        shape: _Shape = parsed(manifest.content, _Shape, "a manifest")
        check_unambiguous(manifest.content, "one manifest")
    except MalformedError as error:
        return error.message
    if shape.manifests is not None and (shape.layers is not None or shape.config is not None):
        return "it is an image and a list of images at once"
    if shape.media_type and manifest.media_type and shape.media_type != manifest.media_type:
        return f"it says that it is {shape.media_type[:100]!r}, and the registry {manifest.media_type[:100]!r}"
    return ""


def config_digest(manifest: Manifest) -> str:
    """Return the digest of an image's configuration, which an engine uses as the image's id; '' for an index."""
    blobs = _blobs(manifest)
    return blobs.config.digest if blobs.config else ""


def blob_digests(manifest: Manifest) -> tuple[str, ...]:
    """Return the blobs that a manifest needs in its registry; empty for an index."""
    blobs = _blobs(manifest)
    every = (blobs.config, *(blobs.layers or ()))
    return tuple(dict.fromkeys(blob.digest for blob in every if blob is not None and not blob.urls))


def _blobs(manifest: Manifest) -> _Blobs:
    try:
        found: _Blobs = parsed(manifest.content, _Blobs, "a manifest")
    except MalformedError:
        return _Blobs()
    return found


def platforms(manifest: Manifest) -> tuple[str, ...]:
    """Return the platforms that a manifest lists images for, each once; empty for one image."""
    try:
        shape: _Shape = parsed(manifest.content, _Shape, "a manifest")
    except MalformedError:
        return ()
    named = [one.platform or _Platform() for one in shape.manifests or ()]
    real = [one for one in named if _NO_PLATFORM not in (one.os, one.architecture)]
    return tuple(dict.fromkeys("/".join(filter(None, (one.os, one.architecture, one.variant))) for one in real))
