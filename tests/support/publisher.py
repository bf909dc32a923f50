"""A world to publish in without an engine: images of nothing, pushed into a real registry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from fake_engine import FakeEngine
from publishing_world import World

from envbuilder.attest.keys import create
from envbuilder.engine.port import Image
from envbuilder.registry.client import Repository
from envbuilder.registry.manifests import OCI_MANIFEST, digest_of
from envbuilder.registry.reference import Reference

REPOSITORY = "team/image"


class PushingEngine(FakeEngine):
    """An engine in memory that writes an image's configuration and manifest into a real registry."""

    def add(self, tag: str, content: bytes = b"", labels: Mapping[str, str] | None = None) -> Image:
        made = super().add(tag, content, labels)
        self._store[tag] = replace(made, id=digest_of(contents(made.labels["number"])))
        return self._store[tag]

    def push(self, reference: str) -> str:
        image = self.image(reference)
        assert image is not None
        name, _, tag = reference.rpartition(":")
        host, _, path = name.partition("/")
        repository = Repository(Reference(host, path), {})
        config = repository.put_blob(contents(image.labels["number"]), "application/vnd.oci.image.config.v1+json")
        described = {"mediaType": config.media_type, "digest": config.digest, "size": config.size}
        content = json.dumps({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": described, "layers": []})
        repository.put_manifest(tag, content.encode(), OCI_MANIFEST)
        return digest_of(content.encode())

    def pull(self, reference: str) -> Image:
        """Have what was pushed: it is the one image here."""
        self._store[reference] = next(iter(self._store.values()))
        return self._store[reference]


def contents(number: str) -> bytes:
    return json.dumps({"architecture": "amd64", "os": "linux", "number": number}).encode()


def scratch_world(folder: Path, host: str, out: Path | None = None) -> World:
    """Make a world with a new key, and an engine with the image ``scratch:1``."""
    engine = PushingEngine()
    engine.add("scratch:1", labels={"number": "1"})
    return World(engine, create(folder / "key"), out or folder / "out", host, REPOSITORY)
