"""Manifests: their types, digests and forms, and whether every reader takes one for the same image."""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, cast

import msgspec

from envbuilder.errors import Reason
from envbuilder.registry.errors import MalformedError, parsed
from envbuilder.registry.reference import DIGEST

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"

Digest = Annotated[str, msgspec.Meta(pattern=rf"\A{DIGEST.pattern}")]
MAX_DOCUMENT = 4 << 20  # bytes of a manifest or statement, written or read: real ones have a tenth of it

IMAGES, _INDEXES = (OCI_MANIFEST, DOCKER_MANIFEST), (OCI_INDEX, DOCKER_LIST)
MEDIA_TYPES = (*IMAGES, *_INDEXES)
_FIELDS = ("schemaVersion", "mediaType", "config", "layers", "manifests", "digest", "size", "platform", "fsLayers")
_CONFIGS = tuple(f"application/vnd.{one}.v1+json" for one in ("oci.image.config", "docker.container.image"))


class Descriptor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A manifest's entry for another document; ``size`` in bytes, ``urls`` if it is elsewhere."""

    media_type: str = ""
    digest: Digest
    size: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] = 0
    urls: tuple[str, ...] = ()
    artifact_type: str = ""
    annotations: dict[str, str] = {}
    platform: dict[str, Any] | None = None
    data: bytes | None = None  # a copy of the document, in base64

    @property
    def platform_name(self) -> str:
        return "/".join(str(one) for at in ("os", "architecture", "variant") if (one := (self.platform or {}).get(at)))

    @property
    def is_build_record(self) -> bool:
        """Return True for BuildKit's record of how an image was built, which is not an image."""
        kind = self.annotations.get("vnd.docker.reference.type")
        return (self.platform_name, kind) == ("unknown/unknown", "attestation-manifest")


@dataclass(frozen=True)
class Manifest:
    media_type: str
    content: bytes
    digest: str

    @property
    def descriptor(self) -> Descriptor:
        shape, size = shape_of(self), len(self.content)
        more: dict[str, Any] = {"artifact_type": shape.artifact_type, "annotations": shape.annotations}
        return Descriptor(media_type=self.media_type, digest=self.digest, size=size, **more)


class Artifact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A manifest: an image, a document about a ``subject``, or an index of ``manifests``."""

    schema_version: int = 0
    media_type: str = ""
    artifact_type: str = ""
    config: Descriptor | None = None
    layers: tuple[Descriptor, ...] | None = None
    manifests: tuple[Descriptor, ...] | None = None
    subject: Descriptor | None = None
    annotations: dict[str, str] = {}
    fs_layers: msgspec.Raw | None = None


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def ambiguity(manifest: Manifest) -> tuple[Reason, str] | None:
    """Return why readers of a manifest may run different images; None if it is one image.

    One that is both an image and an index, or that has the type of the other, is taken for either (CVE-2021-41190).
    An index is one image if its only other entries are build records.
    """
    try:
        shape: Artifact = parsed(manifest.content, Artifact, "one manifest", _FIELDS)
    except MalformedError as error:
        if manifest.media_type in ("", *MEDIA_TYPES):
            return Reason.AMBIGUOUS, error.message
        return Reason.BAD_ANSWER, f"the answer is {manifest.media_type[:100]!r}, not an image"
    if shape.schema_version != 2 or shape.fs_layers is not None:  # noqa: PLR2004 - the only version since 2016
        return Reason.AMBIGUOUS, "it is a manifest of schema 1, or one of several versions"
    entries = filter(None, (shape.config, *(shape.layers or ()), *(shape.manifests or ())))
    if any(one.data is not None and digest_of(one.data) != one.digest for one in entries):
        return Reason.AMBIGUOUS, "it holds a copy of a document that has another digest"
    types = [one for one in dict.fromkeys((shape.media_type, manifest.media_type)) if one]
    if len(types) > 1:
        return Reason.AMBIGUOUS, f"it says that it is {types[0][:100]!r}, and the registry {types[1][:100]!r}"
    config, has_layers = shape.config.media_type if shape.config else None, shape.layers is not None
    is_index = shape.manifests is not None and not has_layers and config is None
    if shape.artifact_type or not (is_index or (shape.manifests is None and shape.layers and config in _CONFIGS)):
        return Reason.AMBIGUOUS, "it is an artifact of another kind, no index or image with layers, or both at once"
    if not {*types} <= {*(IMAGES if shape.manifests is None else _INDEXES)}:
        return Reason.AMBIGUOUS, f"its content is not that of the type {types[0][:100]!r}"
    return None if shape.manifests is None else _several(shape.manifests)


def _several(entries: tuple[Descriptor, ...]) -> tuple[Reason, str] | None:
    images = [one for one in entries if not one.is_build_record]
    if any(one.media_type not in IMAGES for one in images):
        return Reason.AMBIGUOUS, "it is an index that lists something else than images"
    if len(images) == 1:
        return None
    shown = ", ".join(one.platform_name or "no platform" for one in images[:5])
    names = {one.platform_name for one in images} - {""}
    reason = Reason.MANY_PLATFORMS if images and len(names) == len(images) else Reason.AMBIGUOUS
    return reason, f"it is {len(images)} images ({shown}), and a verdict is about one: name the image by its own digest"


def only_image(manifest: Manifest) -> str:
    """Return the digest of the one image of an index; '' for an image, and for an index of several."""
    entries = shape_of(manifest).manifests or ()
    images = [one.digest for one in entries if not one.is_build_record]
    return images[0] if len(images) == 1 else ""


def config_digest(manifest: Manifest) -> str:
    """Return the digest of an image's configuration, which an engine uses as the image's id; '' for an index."""
    return getattr(shape_of(manifest).config, "digest", "")


def shape_of(manifest: Manifest) -> Artifact:
    """Read the parts of a manifest; none of one that cannot be read."""
    with suppress(MalformedError):
        return cast("Artifact", parsed(manifest.content, Artifact, "a manifest"))
    return Artifact()
