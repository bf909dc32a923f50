"""An engine in memory that pushes images of real layers in gzip into a real registry, as Docker does."""

import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from factories import tar
from fake_engine import FakeEngine

from envbuilder.engine.port import Image, OnBytes
from envbuilder.registry.client import Repository
from envbuilder.registry.manifests import DOCKER_MANIFEST, digest_of
from envbuilder.registry.reference import parse

GZIP_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
CONFIG = "application/vnd.docker.container.image.v1+json"


def layer(text: str, size: int = 200_000) -> bytes:
    data = (text * (size // len(text) + 1)).encode()
    return tar({text: data})


def configuration(layers: tuple[bytes, ...]) -> bytes:
    root = {"type": "layers", "diff_ids": [digest_of(one) for one in layers]}
    return json.dumps({"architecture": "amd64", "os": "linux", "rootfs": root}).encode()


def saved(layers: tuple[bytes, ...], **given: bytes) -> bytes:
    """Write an image as Docker 25 and later save it."""
    files = {f"blobs/sha256/{digest_of(one)[7:]}": one for one in layers}
    config = configuration(layers)
    index = [
        {"Config": "config.json", "RepoTags": None, "Layers": [f"blobs/sha256/{digest_of(one)[7:]}" for one in layers]}
    ]
    return tar({**files, "config.json": config, "manifest.json": json.dumps(index), **given})


@dataclass
class LayeredEngine(FakeEngine):
    """Holds images of ``layers``, by their id; ``archive`` writes what `docker save` gives of an image."""

    layers: dict[str, tuple[bytes, ...]] = field(default_factory=dict)
    archive: Callable[[tuple[bytes, ...]], bytes] = saved

    def have(self, tag: str, *layers: bytes) -> Image:
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

    def push(self, reference: str, _moved: OnBytes | None = None) -> str:
        image = self.image(reference)
        assert image is not None
        name, _, tag = reference.rpartition(":")
        repository = Repository(parse(name), {})
        config = repository.put_blob(configuration(self.layers[image.id]), CONFIG)
        described = [{"mediaType": config.media_type, "digest": config.digest, "size": config.size}]
        for one in self.layers[image.id]:
            blob = repository.put_blob(gzip.compress(one, mtime=0), GZIP_LAYER)
            described.append({"mediaType": GZIP_LAYER, "digest": blob.digest, "size": blob.size})
        manifest = {"schemaVersion": 2, "mediaType": DOCKER_MANIFEST, "config": described[0], "layers": described[1:]}
        content = json.dumps(manifest).encode()
        repository.put_manifest(tag, content, DOCKER_MANIFEST)
        return digest_of(content)

    @contextmanager
    def export(self, *references: str) -> Iterator[Iterable[bytes]]:
        (reference,) = references
        image = self._required(reference, "save")
        data = self.archive(self.layers[image.id])
        yield (data[start : start + 65_537] for start in range(0, len(data), 65_537))

    def pull(self, reference: str, _moved: OnBytes | None = None) -> Image:
        digest = reference.rpartition("@")[2]
        manifest = Repository(parse(reference), {}).manifest(digest)
        assert manifest is not None
        config = json.loads(manifest.content)["config"]["digest"]
        self._store[reference] = next(image for image in self._store.values() if image.id == config)
        return self._store[reference]
