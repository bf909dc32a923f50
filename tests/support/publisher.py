"""One publisher as a program, to be killed: publishes an image of nothing to a registry, all of it but the engine real.

Run: ``python publisher.py HOST FOLDER NUMBER``; ends with 0 where it published, 3 where its verdict forbids that.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from factories import failed_verdict, gpu_verdict
from fake_engine import FakeEngine
from publishing_world import World, answering

from envbuilder.attest.keys import create, load_private
from envbuilder.engine.port import Image
from envbuilder.errors import EnvbuilderError
from envbuilder.publish.attestation import PublishTools
from envbuilder.publish.publish import publish
from envbuilder.registry.client import Repository
from envbuilder.registry.manifests import OCI_MANIFEST, digest_of
from envbuilder.registry.reference import Reference

FAILED_EVERY = 10
"""Each so many-th publisher's image fails its validation."""

REPOSITORY = "team/image"


class PushingEngine(FakeEngine):
    """An engine in memory that writes an image's configuration and manifest into a real registry."""

    def add(self, tag: str, content: bytes = b"", labels: Mapping[str, str] | None = None) -> Image:
        """Put an image into the store under the id that its configuration has."""
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


def main(host: str, folder: Path, number: int) -> int:
    engine = PushingEngine()
    engine.add(f"scratch:{number}", labels={"number": str(number)})
    failing = number % FAILED_EVERY == 0
    world = World(engine, load_private(folder / "key" / "envbuilder.key"), folder, host, REPOSITORY)
    publication = world.publication(
        f"scratch:{number}",
        environment=f"e{number}",
        tags=(f"pin-{number}",),
        moving=(f"e{number}", "latest"),
        folder=folder / f"publish{number}",
    )
    tools: PublishTools = world.tools(
        answering(failed_verdict if failing else gpu_verdict, finished=datetime.now(UTC).isoformat()),
        say=lambda text: print(text, flush=True),  # noqa: T201 - by its lines the killer knows how far it is
    )
    return 0 if publish(publication, tools).published else 3


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
    except EnvbuilderError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
