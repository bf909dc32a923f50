"""An image as its registry describes it, for a host without an engine: manifest and configuration, by their digests."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from envbuilder.engine.port import Image
from envbuilder.errors import PublishError
from envbuilder.registry.bounded_json import parsed
from envbuilder.registry.client import Repository
from envbuilder.registry.manifests import Descriptor, Manifest

_ARCHS = {"amd64": "x86_64", "arm64": "aarch64"}


class _Manifest(msgspec.Struct, frozen=True):
    config: Descriptor | None = None


class _Settings(msgspec.Struct, frozen=True, rename="pascal"):
    env: tuple[str, ...] | None = None
    labels: dict[str, str] | None = None
    user: str | None = None


class _Config(msgspec.Struct, frozen=True):
    architecture: str = ""
    config: _Settings | None = None


@dataclass(frozen=True)
class RegistryImages:
    """What stating needs of an engine where there is none: images as their registry describes them, never pulled."""

    repository: Repository

    def image(self, reference: str) -> Image | None:
        """Describe the image of a reference with a digest; None where the registry lacks it."""
        manifest = self.repository.manifest(reference.rpartition("@")[2])
        return described(self.repository, manifest, reference) if manifest is not None else None

    def pull(self, reference: str) -> Image:
        """Raise PublishError: what is not in the registry cannot be fetched from it."""
        raise PublishError(f"the registry has no {reference}")


def described(repository: Repository, manifest: Manifest, reference: str) -> Image:
    """Read an image's configuration. Raises PublishError for a list of several images, or what is no image."""
    config = parsed(manifest.content, _Manifest, "a manifest").config
    if config is None:
        raise PublishError(f"{reference} is no image of one machine", hint="name the digest of one image")
    told: _Config = parsed(repository.blob(config.digest), _Config, "an image's configuration")
    settings = told.config or _Settings()
    variables = (entry.partition("=")[::2] for entry in settings.env or ())
    return Image(
        id=config.digest,
        tags=(),
        digests=(reference,),
        size=0,
        labels=settings.labels or {},
        env=dict(variables),
        user=settings.user or "",
        architecture=_ARCHS.get(told.architecture, told.architecture),
    )
