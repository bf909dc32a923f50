"""An engine in memory that pushes images of real layers in gzip into a real registry, as Docker does."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from dataclasses import dataclass, field

from envbuilder.engine.fake import FakeEngine
from envbuilder.engine.port import Image
from envbuilder.registry.client import DOCKER_MANIFEST, Repository, digest_of
from envbuilder.registry.reference import parse

GZIP_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
CONFIG = "application/vnd.docker.container.image.v1+json"


def layer(text: str, size: int = 200_000) -> bytes:
    """Write a layer: a tar of one file, of about so many bytes."""
    data = (text * (size // len(text) + 1)).encode()
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        info = tarfile.TarInfo(text)
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return made.getvalue()


def configuration(layers: tuple[bytes, ...]) -> bytes:
    """Write the configuration of an image with these layers."""
    root = {"type": "layers", "diff_ids": [digest_of(one) for one in layers]}
    return json.dumps({"architecture": "amd64", "os": "linux", "rootfs": root}).encode()


@dataclass
class LayeredEngine(FakeEngine):
    """Holds images of ``layers``, by their tag; ``packed`` replaces what is pushed for one, by its diff id.

    ``pushed`` are layers that are pushed in the place of an image's own, by its tag, behind its configuration.
    """

    layers: dict[str, tuple[bytes, ...]] = field(default_factory=dict)
    packed: dict[str, bytes] = field(default_factory=dict)
    pushed: dict[str, tuple[bytes, ...]] = field(default_factory=dict)

    def have(self, tag: str, *layers: bytes) -> Image:
        """Put an image of these layers into the store."""
        self._store[tag] = Image(
            id=digest_of(configuration(layers)),
            tags=(tag,),
            digests=(),
            size=sum(map(len, layers)),
            labels={},
            env={},
            user="",
            architecture="amd64",
        )
        self.layers[self._store[tag].id] = layers
        return self._store[tag]

    def push(self, reference: str) -> str:
        """Push the image under a tag; returns the manifest's digest."""
        image = self.image(reference)
        assert image is not None
        name, _, tag = reference.rpartition(":")
        repository = Repository(parse(name), {})
        config = repository.put_blob(configuration(self.layers[image.id]), CONFIG)
        described = [{"mediaType": config.media_type, "digest": config.digest, "size": config.size}]
        replaced = [self.pushed[tag] for tag in image.tags if tag in self.pushed]
        for one in replaced[0] if replaced else self.layers[image.id]:
            data = self.packed.get(digest_of(one), gzip.compress(one, mtime=0))
            blob = repository.put_blob(data, GZIP_LAYER)
            described.append({"mediaType": GZIP_LAYER, "digest": blob.digest, "size": blob.size})
        manifest = {
            "schemaVersion": 2,
            "mediaType": DOCKER_MANIFEST,
            "config": described[0],
            "layers": described[1:],
        }
        content = json.dumps(manifest).encode()
        repository.put_manifest(tag, content, DOCKER_MANIFEST)
        return digest_of(content)

    def pull(self, reference: str) -> Image:
        """Have what was pushed."""
        digest = reference.rpartition("@")[2]
        manifest = Repository(parse(reference), {}).manifest(digest)
        assert manifest is not None
        config = json.loads(manifest.content)["config"]["digest"]
        self._store[reference] = next(image for image in self._store.values() if image.id == config)
        return self._store[reference]
