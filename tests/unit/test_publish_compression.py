"""Publishing with layers in zstd: the layers of the validated image, one manifest, the same statements and tags."""

import gzip
import io
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from backports import zstd
from factories import gpu_environment, gpu_verdict, tar
from layered_engine import LayeredEngine, configuration, layer, saved
from publishing_world import ENVIRONMENT, World, public_tags
from registries import State, modern_registry

from envbuilder.attest.keys import create
from envbuilder.errors import EnvbuilderError, InfrastructureError, PublishError, Reason, UsageError
from envbuilder.publish import zstd_push
from envbuilder.publish.publish_all import publish
from envbuilder.publish.results import PublishRow
from envbuilder.publish.zstd_push import ZSTD_LAYER, ZstdPusher
from envbuilder.registry.client import Repository
from envbuilder.registry.errors import RegistryRefusedError
from envbuilder.registry.manifests import MAX_DOCUMENT, digest_of
from envbuilder.registry.reference import Reference
from envbuilder.verdict import ImageRef, Verdict

BASE, TENSORFLOW, OTHER = layer("base"), layer("tensorflow", MAX_DOCUMENT + 1), layer("other")
LAYERS = (BASE, TENSORFLOW)


@dataclass
class Bench:
    """A registry, and an engine with an image of a small and a large layer."""

    world: World
    state: State
    engine: LayeredEngine
    said: list[str]

    def publish(
        self,
        image: str = "scratch:1",
        make: Callable[..., Verdict] = gpu_verdict,
        *,
        compression: str = "zstd",
        pusher: ZstdPusher | None = None,
        say: Callable[[str], None] | None = None,
        **publication: Any,
    ) -> PublishRow:
        held = self.engine.image(image)

        def judge(reference: Reference) -> Verdict:
            judged = ImageRef(id=held.id, digest=reference.digest, reference=str(reference))
            return make(image=judged, environment=gpu_environment(id=ENVIRONMENT))

        say = say or self.said.append
        chosen = pusher or ZstdPusher(self.world.client(), self.world.folder, say)
        tools = self.world.tools(judge, zstd=chosen if compression == "zstd" else None, say=say)
        return publish(self.world.publication(image, **publication), tools)

    def manifest(self, target: str = ENVIRONMENT) -> dict[str, Any]:
        found = self.world.client().manifest(target)
        document: dict[str, Any] = json.loads(found.content)
        return document


@pytest.fixture
def bench(tmp_path) -> Iterator[Bench]:
    with modern_registry() as (host, state):
        state.strict = True
        engine = LayeredEngine()
        engine.have("scratch:1", *LAYERS)
        yield Bench(World(engine, create(tmp_path / "keys"), tmp_path, host, "team/image"), state, engine, [])


def decompressed(data: bytes) -> bytes:
    with zstd.ZstdFile(io.BytesIO(data)) as file:
        return file.read()


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_each_form_is_one_manifest_of_the_validated_image(bench: Bench, compression: str) -> None:
    row = bench.publish(compression=compression)
    assert (row.published, row.error, row.compression) == (True, "", compression)
    pin = next(tag.name for tag in row.tags if not tag.moving)
    assert public_tags(bench.world.client()) == dict.fromkeys((pin, ENVIRONMENT, "latest"), row.digest)
    manifest = bench.manifest()
    assert manifest["config"]["digest"] == digest_of(configuration(LAYERS))
    unpack = decompressed if compression == "zstd" else gzip.decompress
    assert tuple(unpack(bench.state.blobs[one["digest"]]) for one in manifest["layers"]) == LAYERS
    assert [len(bench.state.blobs[one["digest"]]) for one in manifest["layers"]] == [
        one["size"] for one in manifest["layers"]
    ]
    assert all((one["mediaType"] == ZSTD_LAYER) == (compression == "zstd") for one in manifest["layers"])
    assert bench.world.verified(ENVIRONMENT).accepted
    assert bench.world.verified(pin).accepted
    assert not list(bench.world.folder.rglob("envbuilder-zstd-*")), "a temporary file was left"


def test_same_image_gives_the_same_digest_without_the_finished_steps(bench: Bench) -> None:
    first = bench.publish()
    content = dict(bench.state.manifests), dict(bench.state.tags)
    assert bench.publish() == first
    assert any(line.startswith("already pushed") for line in bench.said)
    shutil.rmtree(bench.world.folder / "publish")
    assert bench.publish() == first
    assert (bench.state.manifests, bench.state.tags) == content


def test_other_form_under_an_immutable_tag_is_refused(bench: Bench) -> None:
    row = bench.publish(compression="gzip")
    with pytest.raises(PublishError, match="never overwritten") as caught:
        bench.publish()
    assert "--compression" in caught.value.hint
    assert len([line for line in bench.said if line.startswith("validating")]) == 1
    assert set(public_tags(bench.world.client()).values()) == {row.digest}


def test_layer_of_several_images_is_compressed_once(bench: Bench) -> None:
    bench.engine.have("scratch:2", TENSORFLOW, OTHER)
    shared = ZstdPusher(bench.world.client(), bench.world.folder, bench.said.append)
    bench.publish(pusher=shared)
    bench.publish("scratch:2", pusher=shared, moving=("two",))
    assert len([line for line in bench.said if "in zstd" in line]) == 3


def gzipped(layers: tuple[bytes, ...]) -> bytes:
    return saved(layers, **{f"blobs/sha256/{digest_of(one)[7:]}": gzip.compress(one) for one in layers})


def linked(layers: tuple[bytes, ...]) -> bytes:
    """Save an image as Docker 20.10 does, with a layer that it has twice as a link."""
    index = [{"Config": "c.json", "Layers": ["a/layer.tar", "b/layer.tar", "c/layer.tar"]}]
    files = {"a/layer.tar": layers[0], "b/layer.tar": layers[1], "c.json": configuration(layers)}
    return tar({**files, "manifest.json": json.dumps(index)}, {"c/layer.tar": "../a/layer.tar"})


@pytest.mark.parametrize(("archive", "layers"), [(gzipped, LAYERS), (linked, (*LAYERS, BASE))])
def test_archives_of_other_engines_are_read(bench: Bench, archive: Any, layers: tuple[bytes, ...]) -> None:
    bench.engine.have("scratch:1", *layers)
    bench.engine.archive = archive
    assert bench.publish().published
    assert tuple(decompressed(bench.state.blobs[one["digest"]]) for one in bench.manifest()["layers"]) == layers


def replaced(layers: tuple[bytes, ...]) -> bytes:
    return saved(layers, **{f"blobs/sha256/{digest_of(BASE)[7:]}": OTHER})


def without_layers(layers: tuple[bytes, ...]) -> bytes:
    index = [{"Config": "config.json", "Layers": ["blobs/none"]}]
    return saved(layers, **{"manifest.json": json.dumps(index).encode()})


@pytest.mark.parametrize(
    ("archive", "kind", "message"),
    [
        (replaced, PublishError, "are not those of its configuration"),
        (without_layers, PublishError, "has no file blobs/none"),
        (lambda layers: saved(layers, **{"config.json": configuration((OTHER,))}), PublishError, "another image"),
        (lambda layers: saved(layers, **{"manifest.json": b"[]"}), PublishError, "holds 0 images"),
        (lambda layers: saved(layers, **{"manifest.json": b"{"}), InfrastructureError, "cannot be read"),
        (lambda layers: saved(layers)[:-300_000], InfrastructureError, "cannot be read"),
        (lambda _: b"", InfrastructureError, "cannot be read"),
    ],
)
def test_damaged_archive_is_refused(bench: Bench, archive: Any, kind: type[EnvbuilderError], message: str) -> None:
    bench.engine.archive = archive
    with pytest.raises(kind, match=message):
        bench.publish()
    assert bench.state.tags == {}


def test_layer_that_decompresses_to_other_bytes_is_not_uploaded(bench: Bench, monkeypatch) -> None:
    class Altering:
        def __init__(self, **given: Any) -> None:
            self.compressor = compressor(**given)
            self.flush = self.compressor.flush

        def compress(self, data: bytes) -> bytes:
            return self.compressor.compress(data.replace(b"base", b"BASE"))

    compressor = zstd.ZstdCompressor
    monkeypatch.setattr(zstd, "ZstdCompressor", Altering)
    with pytest.raises(PublishError, match="does not survive compression"):
        bench.publish()
    assert not [
        name for name, data in bench.state.blobs.items() if data.startswith(b"\x28\xb5\x2f\xfd") and b"BASE" in data
    ]


def test_registry_that_refuses_layers_in_zstd_is_named_with_a_next_step(bench: Bench, monkeypatch) -> None:
    accepted = Repository.put_manifest

    def picky(self: Repository, target: str, content: bytes, media_type: str) -> bool:
        if ZSTD_LAYER.encode() in content:
            raise RegistryRefusedError(Reason.REJECTED, "the registry answered 400: MANIFEST_INVALID")
        return accepted(self, target, content, media_type)

    monkeypatch.setattr(Repository, "put_manifest", picky)
    with pytest.raises(PublishError, match="MANIFEST_INVALID") as caught:
        bench.publish()
    assert "--compression gzip" in caught.value.hint


def test_zstd_without_its_library_is_a_usage_error(bench: Bench, monkeypatch) -> None:
    monkeypatch.setattr(zstd_push, "zstd", None)
    with pytest.raises(UsageError, match=r"backports\.zstd"):
        bench.publish()


def test_tag_that_no_registry_accepts_is_refused_before_the_push(bench: Bench) -> None:
    with pytest.raises(UsageError, match="not a tag"):
        bench.publish(moving=("x" * 129,))
    assert bench.state.manifests == {}
