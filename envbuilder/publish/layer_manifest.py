"""Manifests of images whose layers are packed in gzip or in zstd: read as far as is needed, and written one way."""

from __future__ import annotations

from typing import Annotated

import msgspec

from envbuilder.errors import PublishError
from envbuilder.registry.bounded_json import MalformedError, parsed
from envbuilder.registry.client import OCI_MANIFEST, Manifest, Repository

_CONFIG = "application/vnd.oci.image.config.v1+json"
ZSTD_LAYER = "application/vnd.oci.image.layer.v1.tar+zstd"
_GZIP = ("application/vnd.docker.image.rootfs.diff.tar.gzip", "application/vnd.oci.image.layer.v1.tar+gzip")

DIFF_ID, PACKER = "org.envbuilder.diff-id", "org.envbuilder.packer"
"""Annotations of a layer: what it unpacks to, and what packed it. By them it is found again; neither is believed."""

_Digest = Annotated[str, msgspec.Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]
_Size = Annotated[int, msgspec.Meta(ge=0)]


class LayerBlob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What a manifest says of a layer or a configuration: its type, digest, size in bytes, and what anybody noted."""

    media_type: str
    digest: _Digest
    size: _Size
    annotations: dict[str, str] = {}
    urls: tuple[str, ...] = ()


class LayeredImage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A manifest of one image, as far as it is read here, and all of it where it is written."""

    schema_version: int = 2
    media_type: str = OCI_MANIFEST
    config: LayerBlob
    layers: tuple[LayerBlob, ...]


class _Root(msgspec.Struct, frozen=True):
    diff_ids: tuple[_Digest, ...]


class _Config(msgspec.Struct, frozen=True):
    rootfs: _Root


def read_judged(repository: Repository, judged: Manifest) -> tuple[LayeredImage, tuple[str, ...]]:
    """Read the judged manifest and its configuration's diff ids. Raises PublishError where they do not fit."""
    image: LayeredImage = parsed(judged.content, LayeredImage, "an image's manifest")
    config: _Config = parsed(repository.blob(image.config.digest), _Config, "an image's configuration")
    diff_ids = config.rootfs.diff_ids
    if len(diff_ids) != len(image.layers):
        raise PublishError(
            f"{judged.digest} has {len(image.layers)} layers, and its configuration names {len(diff_ids)}",
            hint="do not use this image: build and publish it again",
        )
    for layer in image.layers:
        if layer.media_type not in _GZIP or layer.urls:
            raise PublishError(
                f"{judged.digest} has a layer of type {layer.media_type[:100]!r}: only layers in gzip are packed again",
                hint="have the engine push layers in gzip, as is usual, or leave --zstd out",
            )
    return image, diff_ids


def zstd_layers(manifest: Manifest) -> tuple[LayerBlob, ...] | None:
    """Return the layers of a second manifest; None for anything else."""
    try:
        image: LayeredImage = parsed(manifest.content, LayeredImage, "an image's manifest")
    except MalformedError:
        return None
    named = all(
        layer.media_type == ZSTD_LAYER and {DIFF_ID, PACKER} <= layer.annotations.keys() for layer in image.layers
    )
    return image.layers if named else None


def written(config: LayerBlob, layers: tuple[LayerBlob, ...]) -> bytes:
    """Write the second manifest; the same layers give the same bytes."""
    described = LayerBlob(media_type=_CONFIG, digest=config.digest, size=config.size)
    plain = tuple(
        LayerBlob(media_type=ZSTD_LAYER, digest=layer.digest, size=layer.size, annotations=_ours(layer))
        for layer in layers
    )
    return msgspec.json.encode(LayeredImage(config=described, layers=plain))


def _ours(layer: LayerBlob) -> dict[str, str]:
    return {name: layer.annotations[name] for name in (DIFF_ID, PACKER)}


def compressed(manifest: Manifest) -> int:
    """Return how many bytes an image's layers have as they are stored; what is pulled of it, and pushed."""
    image: LayeredImage = parsed(manifest.content, LayeredImage, "an image's manifest")
    return sum({layer.digest: layer.size for layer in image.layers}.values())
