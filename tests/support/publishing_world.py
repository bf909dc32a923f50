"""A small world to publish in: an engine, a registry on loopback, images of one file, and a validator that answers."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from factories import digest, gpu_verdict, tar
from fake_engine import FakeEngine

from envbuilder.attest.envelope import KeyOpener, KeySealer
from envbuilder.attest.keys import PrivateKey, create
from envbuilder.attest.requirements import Requirement
from envbuilder.engine.port import Engine, Image, OnBytes
from envbuilder.publish.attestation import PublishSession, PublishTools, ValidationTerms
from envbuilder.publish.publish_all import Publication
from envbuilder.publish.results import Tag
from envbuilder.publish.verification import Verification
from envbuilder.publish.verify_request import verify
from envbuilder.registry.client import Repository
from envbuilder.registry.manifests import OCI_MANIFEST, Artifact, Manifest, digest_of
from envbuilder.registry.reference import Reference
from envbuilder.registry.referrers import listing
from envbuilder.verdict import ImageRef, Verdict
from envbuilder.workspace import Workspace

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
        image = ImageRef(id=reference.digest, digest=reference.digest, reference=str(reference))
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

    def publication(self, image: str, moving: tuple[str, ...] = (ENVIRONMENT, "latest"), **given: Any) -> Publication:
        fixed = Tag(name=f"pin-{image.rpartition(':')[2]}", moving=False)
        tags = (fixed, *(Tag(name=name, moving=True) for name in moving))
        values: dict[str, Any] = {"environment": ENVIRONMENT, "image": image, "tags": tags}
        return Publication(**{**values, **given})

    def tools(self, validate: Callable[[Reference], Verdict] | None = None, **given: Any) -> PublishTools:
        host, say = gpu_verdict().host, given.pop("say", lambda *_: None)
        session = PublishSession(self.engine, Workspace(self.folder), say, {}, host)
        judge, folder = validate or answering(), self.folder / "publish"
        tools = PublishTools(session, self.client(), KeySealer(self.key), judge, folder, ValidationTerms(host))
        return replace(tools, **{"now": lambda: NOW, **given})

    def verified(
        self, target: str = ENVIRONMENT, demand: Requirement | None = None, now: datetime = NOW
    ) -> Verification:
        """Verify what a tag or digest leads to: by this world's key, at level gpu unless a demand is given."""
        wanted = demand or Requirement(level="gpu")
        return verify(self.client(target), (KeyOpener((self.key.public,)),), wanted, now)


def attached(repository: Repository, digest: str, media_type: str) -> set[str]:
    """Return the digests of the documents of one type that are attached to a digest."""
    items = listing(repository, digest).items
    return {stored for stored, kind in items.items() if kind in ("", media_type)}


def push_image(repository: Repository, tag: str, content: bytes = b"layer", kind: str = OCI_MANIFEST) -> Manifest:
    """Push an image of one layer, without an engine."""
    config = repository.put_blob(
        b'{"architecture":"amd64","os":"linux","rootfs":{"type":"layers"}}', "application/vnd.oci.image.config.v1+json"
    )
    layers = (repository.put_blob(content, "text/plain"),)
    data = msgspec.json.encode(Artifact(schema_version=2, media_type=kind, config=config, layers=layers))
    repository.put_manifest(tag, data, kind)
    return Manifest(kind, data, digest_of(data))


def public_tags(client: Repository) -> dict[str, str]:
    """Return every tag that is neither a list of statements nor staged, and the digest that it leads to."""
    names = [tag for tag in client.tags() if not tag.startswith(("sha256-", "staging-"))]
    found = {name: client.manifest(name) for name in names}
    return {name: manifest.digest for name, manifest in found.items() if manifest is not None}


class PushingEngine(FakeEngine):
    """An engine in memory that writes an image's configuration and manifest into a real registry."""

    def add(self, tag: str, content: bytes = b"", labels: Mapping[str, str] | None = None) -> Image:
        made = super().add(tag, content, labels)
        self._store[tag] = replace(made, id=digest_of(contents(made.labels["number"])))
        return self._store[tag]

    def push(self, reference: str, _moved: OnBytes | None = None) -> str:
        image = self.image(reference)
        assert image is not None
        name, _, tag = reference.rpartition(":")
        host, _, path = name.partition("/")
        repository = Repository(Reference(host, path), {})
        config = repository.put_blob(contents(image.labels["number"]), "application/vnd.oci.image.config.v1+json")
        described = {"mediaType": config.media_type, "digest": config.digest, "size": config.size}
        parts = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": described, "layers": [described]}
        content = json.dumps(parts)
        repository.put_manifest(tag, content.encode(), OCI_MANIFEST)
        return digest_of(content.encode())

    def pull(self, reference: str, _moved: OnBytes | None = None) -> Image:
        """Have what was pushed: it is the one image here."""
        self._store[reference] = next(iter(self._store.values()))
        return self._store[reference]


def contents(number: str) -> bytes:
    return json.dumps({"architecture": "amd64", "os": "linux", "number": number}).encode()


def scratch_world(folder: Path, host: str, out: Path | None = None) -> World:
    """Make a world with a new key, and an engine with the image ``scratch:1``."""
    engine = PushingEngine()
    engine.add("scratch:1", labels={"number": "1"})
    return World(engine, create(folder / "key"), out or folder / "out", host, "team/image")
