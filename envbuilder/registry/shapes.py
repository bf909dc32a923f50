"""What a manifest's bytes are: one image, or a list of images for several platforms; and whether that is certain."""

from __future__ import annotations

from typing import Any

import msgspec

from envbuilder.registry.bounded_json import MalformedError, check_unambiguous, parsed
from envbuilder.registry.client import Manifest


class _Platform(msgspec.Struct, frozen=True):
    os: str = ""
    architecture: str = ""
    variant: str = ""


class _Entry(msgspec.Struct, frozen=True):
    platform: _Platform | None = None


class _Shape(msgspec.Struct, frozen=True, rename="camel"):
    media_type: str = ""
    layers: Any = None
    config: Any = None
    manifests: tuple[_Entry, ...] | None = None


class _Config(msgspec.Struct, frozen=True):
    digest: str


class _Configured(msgspec.Struct, frozen=True):
    config: _Config


_NO_PLATFORM = "unknown"
"""What builders write for entries that are no image: records of how one was built."""


def ambiguity(manifest: Manifest) -> str:
    """Say why a manifest can be read in two ways, so that what was judged need not be what is run; '' where it cannot.

    One that is both an image and a list, or that says another type than the registry, is taken for either by somebody
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
    """Return the digest of an image's configuration, which an engine takes for the image's id; '' for an index."""
    try:
        return str(parsed(manifest.content, _Configured, "an image's manifest").config.digest)
    except MalformedError:
        return ""


def platforms(manifest: Manifest) -> tuple[str, ...]:
    """Name the platforms that a manifest lists images for, each once; empty where it is one image."""
    try:
        shape: _Shape = parsed(manifest.content, _Shape, "a manifest")
    except MalformedError:
        return ()
    named = [one.platform or _Platform() for one in shape.manifests or ()]
    real = [one for one in named if _NO_PLATFORM not in (one.os, one.architecture)]
    return tuple(dict.fromkeys("/".join(filter(None, (one.os, one.architecture, one.variant))) for one in real))
