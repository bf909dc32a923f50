"""A small world to publish in: an engine, a registry on loopback, images of one file, and a validator that answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from factories import digest, gpu_verdict, tar

from envbuilder.attest.envelope import KeyOpener, KeySealer
from envbuilder.attest.keys import PrivateKey
from envbuilder.attest.requirements import Requirement
from envbuilder.engine.port import Engine
from envbuilder.publish.attestation import PublishTools, ValidationTerms
from envbuilder.publish.publish_all import Publication
from envbuilder.publish.verification import Verification
from envbuilder.publish.verify_request import verify
from envbuilder.registry.client import Repository
from envbuilder.registry.manifests import OCI_MANIFEST, Artifact, Manifest, digest_of
from envbuilder.registry.reference import Reference
from envbuilder.registry.referrers import listing
from envbuilder.verdict import ImageRef, Verdict

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
ENVIRONMENT = "tf2.20.0-py311-cu12.5-cudnn9.3-bookworm"
SCRATCH = "scratch-publish"


def scratch_image(engine: Engine, folder: Path, text: str) -> str:
    """Make an image of one file, unless it is there; returns its tag."""
    tag = f"{SCRATCH}:{digest(text)[7:19]}"
    if engine.image(tag) is not None:
        return tag
    path = folder / f"{digest(text)[7:19]}.tar"
    path.write_bytes(tar({"content": text}))
    engine.import_base(path, tag, {})
    return tag


def answering(make: Callable[..., Verdict] = gpu_verdict, **given: Any) -> Callable[[Reference], Verdict]:
    """Return a validator that judges any image as told, by the digest that it is given."""

    def validate(reference: Reference) -> Verdict:
        image = ImageRef(id=digest("image"), digest=reference.digest, reference=str(reference))
        return make(**{"image": image, **given})

    return validate


@dataclass
class World:
    engine: Engine
    key: PrivateKey
    folder: Path
    host: str
    repository: str

    @property
    def reference(self) -> Reference:
        return Reference(self.host, self.repository)

    def client(self, target: str = "") -> Repository:
        return Repository(self.reference.at(target) if target else self.reference, {})

    def publication(self, image: str, **given: Any) -> Publication:
        values: dict[str, Any] = {
            "environment": ENVIRONMENT,
            "image": image,
            "tags": (f"pin-{image.rpartition(':')[2]}",),
            "moving": (ENVIRONMENT, "latest"),
        }
        return Publication(**{**values, **given})

    def tools(self, validate: Callable[[Reference], Verdict] | None = None, **given: Any) -> PublishTools:
        tools = PublishTools(
            engine=self.engine,
            repository=self.client(),
            sealer=KeySealer(self.key),
            validate=validate or answering(),
            folder=self.folder / "publish",
            terms=ValidationTerms(gpu_verdict().host),
            now=lambda: NOW,
        )
        return PublishTools(**{**{name: getattr(tools, name) for name in PublishTools.__dataclass_fields__}, **given})

    def verified(
        self, target: str = ENVIRONMENT, demand: Requirement | None = None, now: datetime = NOW
    ) -> Verification:
        """Verify what a tag or digest leads to: by this world's key, at level gpu unless a demand is given."""
        wanted = demand or Requirement(level="gpu")
        return verify(self.client(target), (KeyOpener((self.key.public,)),), wanted, now)

    def push(self, text: str, tag: str) -> str:
        """Push an image past the project, as anybody could; returns its digest."""
        image = scratch_image(self.engine, self.folder, text)
        self.engine.tag(image, f"{self.reference.name}:{tag}")
        return self.engine.push(f"{self.reference.name}:{tag}")


def attached(repository: Repository, digest: str, media_type: str) -> set[str]:
    """Return the digests of the documents of one type that are attached to a digest."""
    items = listing(repository, digest, frozenset((media_type,))).items
    return {stored for stored, kind in items.items() if kind in ("", media_type)}


def push_image(repository: Repository, tag: str, content: bytes = b"layer", kind: str = OCI_MANIFEST) -> Manifest:
    """Push an image of one layer, without an engine."""
    config = repository.put_blob(b'{"architecture":"amd64","os":"linux","rootfs":{"type":"layers"}}', "text/json")
    layers = (repository.put_blob(content, "text/plain"),)
    data = msgspec.json.encode(Artifact(schema_version=2, media_type=kind, config=config, layers=layers))
    repository.put_manifest(tag, data, kind)
    return Manifest(kind, data, digest_of(data))


def public_tags(client: Repository) -> dict[str, str]:
    """Return every tag that is neither a list of statements nor staged, and the digest that it leads to."""
    names = [tag for tag in client.tags() or () if not tag.startswith(("sha256-", "staging-"))]
    found = {name: client.manifest(name) for name in names}
    return {name: manifest.digest for name, manifest in found.items() if manifest is not None}


def altered(value: Verdict, **given: Any) -> Verdict:
    return msgspec.structs.replace(value, **given)
