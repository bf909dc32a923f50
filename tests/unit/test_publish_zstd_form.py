"""The same image with its layers in zstd: made of what was judged, read back, and only then stated and tagged."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from factories import digest, failed_verdict, gpu_environment, gpu_verdict
from layered_engine import LayeredEngine, configuration, layer
from publishing_world import ENVIRONMENT, NOW, World, public_tags
from registries import State, modern_registry

from envbuilder.attest.demand import Demand, Refused
from envbuilder.attest.envelope import KeyOpener
from envbuilder.attest.keys import create
from envbuilder.attest.kinds import Kind
from envbuilder.errors import ExitCode, UsageError
from envbuilder.publish import packing
from envbuilder.publish.publish import publish
from envbuilder.publish.publish_document import PublishDocument, PublishRow
from envbuilder.publish.publish_text import as_text
from envbuilder.publish.stating import state
from envbuilder.publish.verify import Question, verify
from envbuilder.publish.verify_document import Verification
from envbuilder.publish.zstd_form import Repacker
from envbuilder.registry.client import OCI_MANIFEST, Manifest, Repository, digest_of
from envbuilder.registry.faults import Fault, RegistryRefusedError
from envbuilder.registry.reference import Reference
from envbuilder.verdict import ImageRef, Verdict

BASE, TENSORFLOW, OTHER = layer("base"), layer("tensorflow", 3_000_000), layer("other")
ZSTD = f"{ENVIRONMENT}-zstd"
LAYER = "application/vnd.oci.image.layer.v1.tar+zstd"
ENV = gpu_environment(id=ENVIRONMENT)


@dataclass
class Place:
    """A registry, and an engine with an image of two layers; ``said`` is the progress of every publication."""

    world: World
    state: State
    engine: LayeredEngine
    said: list[str]

    @property
    def client(self) -> Repository:
        return self.world.client()

    def publish(
        self,
        image: str = "scratch:1",
        make: Callable[..., Verdict] = gpu_verdict,
        *,
        seen_id: str = "",
        publication: dict[str, Any] | None = None,
        **tools: Any,
    ) -> PublishRow:
        """Publish an image in both forms, by a validator that knows its id, or says that it saw another."""
        held = self.engine.image(image)
        assert held is not None

        def judge(reference: Reference) -> Verdict:
            seen = ImageRef(id=seen_id or held.id, digest=reference.digest, reference=str(reference))
            return make(image=seen, environment=ENV)

        ports = self.world.tools(judge, **{"repacker": Repacker(3), "say": self.said.append, **tools})
        return publish(self.world.publication(image, **(publication or {})), ports)

    def manifest(self, target: str = ZSTD) -> dict[str, Any]:
        found = self.client.manifest(target)
        assert found is not None
        made: dict[str, Any] = json.loads(found.content)
        return made

    def check(self, target: str = ZSTD, demand: Demand | None = None, on: str = "") -> Verification:
        opener = KeyOpener((self.world.key.public,))
        kinds = (Kind(gpu=on.partition("/")[0], driver=on.partition("/")[2]),) if on else ()
        asked = demand or Demand(level="gpu", driver=None if on else "535", environment=target)
        return verify(self.world.client(target), (opener,), Question(asked, on=kinds), NOW)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with modern_registry() as (host, state_of):
        state_of.strict = True
        engine = LayeredEngine()
        engine.have("scratch:1", BASE, TENSORFLOW)
        yield Place(World(engine, create(tmp_path / "keys"), tmp_path, host, "team/image"), state_of, engine, [])


def in_zstd(data: bytes, level: int = 3) -> bytes:
    made = io.BytesIO()
    packing.pack(iter((data,)), level, made)
    return made.getvalue()


def put(place: Place, layers: list[dict[str, Any]], *tags: str) -> Manifest:
    """Write a second manifest past the project, of whatever layers."""
    document = {**place.manifest(), "layers": layers}
    content = json.dumps(document).encode()
    place.state.strict = False
    for tag in tags:
        place.client.put_manifest(tag, content, OCI_MANIFEST)
    found = place.client.manifest(tags[0])
    assert found is not None
    return found


def test_the_same_image_in_zstd_is_published_beside_the_first(place: Place) -> None:
    """Its configuration is the very same, its layers unpack to the diff ids, every tag has its other form."""
    row = place.publish()
    assert row.published
    assert not row.error
    assert row.zstd is not None
    first, second = place.manifest(row.digest), place.manifest(row.zstd.digest)
    assert second["mediaType"] == OCI_MANIFEST
    assert second["config"]["digest"] == first["config"]["digest"] == digest_of(configuration((BASE, TENSORFLOW)))
    for described, plain in zip(second["layers"], (BASE, TENSORFLOW), strict=True):
        assert described["mediaType"] == LAYER
        packed = place.state.blobs[described["digest"]]
        assert len(packed) == described["size"]
        assert b"".join(packing.unpacked(io.BytesIO(packed))) == plain
    tags = public_tags(place.client)
    pin = next(tag.name for tag in row.tags if not tag.moving)
    assert {tag: where for tag, where in tags.items() if tag.endswith("-zstd")} == dict.fromkeys(
        (f"{pin}-zstd", ZSTD, "latest-zstd"), row.zstd.digest
    )
    assert {tags[name] for name in (pin, ENVIRONMENT, "latest")} == {row.digest}
    assert row.zstd.compressed == sum(one["size"] for one in second["layers"])
    assert row.zstd.gzip == sum(one["size"] for one in first["layers"])
    assert not list(place.world.folder.rglob("envbuilder-zstd-*")), "a temporary file was left"


def test_the_first_form_is_what_it_is_without_the_second(place: Place, tmp_path: Path) -> None:
    """With or without zstd, the manifest in gzip, its tags and what is stated of it are the same."""
    one = place.publish(repacker=None, publication={"folder": tmp_path / "one"})
    kept = dict(place.state.manifests)
    both = place.publish(publication={"folder": tmp_path / "two"})
    assert one.zstd is None
    assert msgspec.structs.replace(both, zstd=None) == one
    assert kept.items() <= place.state.manifests.items()


def test_verify_accepts_it_by_the_same_rules(place: Place) -> None:
    """The verdict names the manifest in zstd, and the one that the suite ran on; what is not met is refused alike."""
    row = place.publish()
    assert row.zstd is not None
    found = place.check()
    assert found.accepted
    assert (found.digest, found.environment) == (row.zstd.digest, ENVIRONMENT)
    pinned = next(tag.name for tag in row.zstd.tags if not tag.moving)
    assert place.check(pinned, Demand(level="gpu")).accepted
    assert place.check(on="H100/535").accepted
    assert not place.check(on="A100/550").accepted
    refused = place.check(demand=Demand(level="gpu", driver="550"))
    assert {one.reason for one in refused.refusals} == {Refused.OTHER_DRIVER}


def test_the_environments_other_form_is_no_name_of_the_first(place: Place) -> None:
    """A manifest in gzip under a tag that says zstd is not what is meant."""
    row = place.publish()
    first = place.client.manifest(row.digest)
    assert first is not None
    place.client.put_manifest(ZSTD, first.content, first.media_type)
    assert {one.reason for one in place.check().refusals} == {Refused.OTHER_ENVIRONMENT}


def test_each_kind_of_statement_is_attached_to_both(place: Place) -> None:
    """What is attached to the first form is attached to the second, about its own digest."""
    row = place.publish()
    assert row.zstd is not None
    kinds = {}
    for target in (row.digest, row.zstd.digest):
        about = [
            json.loads(content)
            for _, content in place.state.manifests.values()
            if (json.loads(content).get("subject") or {}).get("digest") == target
        ]
        kinds[target] = sorted(one["annotations"]["in-toto.io/predicate-type"] for one in about)
    assert kinds[row.digest] == kinds[row.zstd.digest] != []
    assert len(row.statements) == len(row.zstd.statements)


def test_a_run_again_packs_nothing_and_changes_nothing(place: Place) -> None:
    """What the immutable tag names is read back and stays, at whatever level the second run would pack."""
    first = place.publish()
    before = {**place.state.manifests}, {**place.state.tags}, {**place.state.blobs}
    place.said.clear()
    assert place.publish(repacker=Repacker(7)).zstd == first.zstd
    assert (place.state.manifests, place.state.tags, place.state.blobs) == before
    assert not [line for line in place.said if "MB in gzip" in line]
    assert any(line.startswith("already packed") for line in place.said)


def test_a_layer_is_packed_once_a_run_and_found_by_the_next(place: Place, tmp_path: Path) -> None:
    """Images that share a layer share its bytes in zstd: in one run by memory, in the next by what the registry has."""
    place.engine.have("scratch:2", BASE, OTHER)
    place.engine.have("scratch:3", BASE, TENSORFLOW, OTHER)
    shared = Repacker(3)
    rows = [
        place.publish(repacker=shared),
        place.publish("scratch:2", repacker=shared, publication={"moving": ("two",), "folder": tmp_path / "two"}),
    ]
    assert len([line for line in place.said if "MB in gzip" in line]) == 3
    assert len([line for line in place.said if "packed already in this run" in line]) == 1
    place.said.clear()
    rows += [place.publish("scratch:3", publication={"moving": ("three",), "folder": tmp_path / "three"})]
    assert len([line for line in place.said if line.endswith("packed already")]) == 3
    assert not [line for line in place.said if "MB in gzip" in line]
    assert all(row.published and not row.error for row in rows)


def test_another_level_is_packed_anew(place: Place, tmp_path: Path) -> None:
    """What was packed at one level is not taken for another, where no immutable tag stands for it."""
    place.publish()
    place.engine.have("scratch:2", BASE, OTHER)
    place.said.clear()
    place.publish("scratch:2", repacker=Repacker(9), publication={"moving": ("two",), "folder": tmp_path / "two"})
    assert len([line for line in place.said if "MB in gzip" in line]) == 2


def refused(place: Place, **given: Any) -> str:
    """Publish where the second form cannot be; the first one stands, and nothing public is in zstd."""
    before = {tag: where for tag, where in public_tags(place.client).items() if tag.endswith("-zstd")}
    row = place.publish(**given)
    assert row.published
    assert row.zstd is None
    assert row.exit_code in (ExitCode.PUBLISH_FAILED, ExitCode.INFRASTRUCTURE)
    assert row.error.startswith("published in gzip; in zstd not: ")
    tags = public_tags(place.client)
    assert tags[ENVIRONMENT] == tags["latest"] == row.digest
    assert {tag: where for tag, where in tags.items() if tag.endswith("-zstd")} == before
    assert place.check(ENVIRONMENT).accepted
    assert not list(place.world.folder.rglob("envbuilder-zstd-*")), "a temporary file was left"
    return row.error


def test_a_layer_that_is_not_what_the_image_says_is_not_packed(place: Place) -> None:
    """Where the layer in gzip unpacks to other bytes than its diff id, nothing is made of it."""
    place.engine.packed[digest_of(TENSORFLOW)] = gzip.compress(OTHER)
    assert "the image's configuration says" in refused(place)


@pytest.mark.parametrize(
    ("packed", "said"),
    [
        (gzip.compress(TENSORFLOW)[:-9], "ends before its time"),
        (b"no gzip", "not gzip"),
        (gzip.compress(bytes(8 << 20)), "more than"),
    ],
)
def test_a_layer_that_cannot_be_unpacked_is_an_error(place: Place, monkeypatch, packed: bytes, said: str) -> None:
    """Cut, no gzip at all, and a bomb beyond what the image can have: it ends there."""
    monkeypatch.setattr("envbuilder.publish.publish._BESIDES", 0)
    place.engine.packed[digest_of(TENSORFLOW)] = packed
    assert said in refused(place)


@pytest.mark.parametrize("spoiled", ["other bytes", "cut", "longer", "of another layer", "a bomb"])
def test_what_comes_back_is_held_to_the_layer(place: Place, monkeypatch, spoiled: str) -> None:
    """A registry that gives something else back than it took ends it before anything is stated or tagged."""
    wrong: Callable[[bytes], bytes] = {
        "other bytes": lambda data: data[:-1] + bytes((data[-1] ^ 1,)),
        "cut": lambda data: data[:-20],
        "longer": lambda data: data + b"x",
        "of another layer": lambda _: in_zstd(OTHER),
        "a bomb": lambda _: in_zstd(bytes(32 << 20)),
    }[spoiled]
    taken = Repository.upload

    def spoil(self: Repository, name: str, file: Any) -> None:
        taken(self, name, file)
        place.state.blobs[name] = wrong(place.state.blobs[name])

    monkeypatch.setattr(Repository, "upload", spoil)
    refused(place)
    subjects = {json.loads(content).get("subject", {}).get("digest") for _, content in place.state.manifests.values()}
    assert subjects == {None, place.client.manifest(ENVIRONMENT).digest}  # type: ignore[union-attr]


@pytest.mark.parametrize("layers", [(BASE,), (BASE, TENSORFLOW, OTHER), ()])
def test_layers_and_diff_ids_have_to_be_as_many(place: Place, layers: tuple[bytes, ...]) -> None:
    """A manifest with a layer more or fewer than its configuration names is not packed."""
    place.engine.pushed["scratch:1"] = layers
    assert f"has {len(layers)} layers, and its configuration names 2" in refused(place)


def test_a_verdict_about_another_image_is_not_restated(place: Place) -> None:
    """The second form is the judged image's only by its configuration: a verdict of another one says nothing of it."""
    assert "the verdict is about" in refused(place, seen_id=digest("another"))


@pytest.mark.parametrize("tag", [ZSTD, "latest-zstd"])
def test_a_foreign_tag_is_not_moved(place: Place, tag: str) -> None:
    """A tag that would move but names something else today is nobody's to lose: that is said before any work."""
    place.client.put_manifest(tag, b'{"schemaVersion":2,"layers":[],"config":{}}', OCI_MANIFEST)
    assert f"{tag} exists" in refused(place)
    assert not [line for line in place.said if "packing" in line or "MB in gzip" in line]


def test_an_immutable_tag_on_another_image_is_never_overwritten(place: Place, tmp_path: Path) -> None:
    """One that is no second form, of another image, with a layer less or more, or with words of its own, is refused."""
    row = place.publish()
    assert row.zstd is not None
    pin = next(tag.name for tag in row.zstd.tags if not tag.moving)
    own = place.manifest()["layers"]
    foreign = {**own[0], "urls": ["https://elsewhere.example.org/x"]}
    for layers in (own[:1], [*own, own[0]], [foreign, own[1]], [own[1], own[0]], []):
        there = put(place, layers, pin)
        assert "never overwritten" in refused(place)
        assert place.client.manifest(pin) == there


def test_what_a_tag_names_is_not_believed(place: Place, tmp_path: Path) -> None:
    """A manifest that names blobs of its own for a layer is looked at, found out, and the layer packed all the same."""
    place.publish()
    own = place.manifest()["layers"]
    lies = [
        {**own[0], "digest": place.client.put_blob(in_zstd(OTHER), LAYER).digest, "size": len(in_zstd(OTHER))},
        {**own[1], "digest": digest("nowhere"), "size": 5},
    ]
    for tag in [tag for tag in place.client.tags() if tag.endswith("-zstd")]:
        put(place, lies, tag)
    place.engine.have("scratch:2", BASE, TENSORFLOW, OTHER)
    place.said.clear()
    row = place.publish("scratch:2", publication={"moving": ("two",), "tags": ("pin-two",), "folder": tmp_path / "two"})
    assert row.zstd is not None
    assert len([line for line in place.said if "it is packed again" in line]) == 2
    assert [one["digest"] for one in place.manifest("two-zstd")["layers"][:2]] == [one["digest"] for one in own]


def test_a_tampered_manifest_is_refused(place: Place) -> None:
    """Another manifest under the tag has nothing attached; a statement that is copied to it is about another digest."""
    place.publish()
    own = place.manifest()["layers"]
    put(place, [own[0], {**own[1], "digest": own[0]["digest"], "size": own[0]["size"]}], ZSTD)
    found = place.check()
    assert not found.accepted
    assert {one.reason for one in found.refusals} <= {Refused.NO_STATEMENT, Refused.TAG_MOVED}


def test_a_restated_verdict_holds_for_its_own_configuration_alone(place: Place) -> None:
    """Even signed by a trusted key, a verdict that was restated about a manifest of another image is refused."""
    row = place.publish()
    place.engine.have("scratch:2", OTHER)
    other = place.publish("scratch:2", publication={"moving": ("two",), "folder": place.world.folder / "two"})
    assert other.zstd is not None
    manifest = place.client.manifest(other.zstd.digest)
    assert manifest is not None
    image = place.engine.image("scratch:1")
    assert image is not None
    lie = gpu_verdict(image=ImageRef(id=image.id, digest=manifest.digest, repacked=row.digest), environment=ENV)
    state(place.world.reference.name, manifest, lie, place.world.tools())
    found = place.check("two-zstd", Demand(level="gpu"))
    assert {one.reason for one in found.refusals} == {Refused.WRONG_SUBJECT}


def test_a_failure_of_the_first_form_forbids_the_second(place: Place) -> None:
    """It is the same image: a FAILED that some host attaches to the digest in gzip counts for the one in zstd too."""
    row = place.publish()
    first = place.client.manifest(row.digest)
    image = place.engine.image("scratch:1")
    assert first is not None
    assert image is not None
    assert place.check().accepted
    seen = ImageRef(id=image.id, digest=row.digest)
    later = failed_verdict(image=seen, environment=ENV, finished=NOW.isoformat())
    state(place.world.reference.name, first, later, place.world.tools())
    for found in (place.check(ENVIRONMENT), place.check(), place.check(on="H100/535")):
        assert not found.accepted
        assert Refused.FAILED in {one.reason for one in found.refusals}


def test_a_registry_that_takes_no_such_manifest_is_an_error_with_a_next_step(place: Place, monkeypatch) -> None:
    """The first form stands, and the message says what to do."""
    taken = Repository.put_manifest

    def picky(self: Repository, target: str, content: bytes, media_type: str) -> bool:
        if LAYER.encode() in content:
            raise RegistryRefusedError(Fault.REJECTED, "the registry answered 400: MANIFEST_INVALID")
        return taken(self, target, content, media_type)

    monkeypatch.setattr(Repository, "put_manifest", picky)
    error = refused(place)
    assert "MANIFEST_INVALID" in error
    assert "leave --zstd out" in error


@pytest.mark.parametrize("step", range(1, 15))
def test_killed_anywhere_a_run_again_completes_it(place: Place, step: int) -> None:
    """Ended at any line of progress, no public tag in zstd is on what is not believed; the same command goes on."""

    class KilledError(BaseException):
        pass

    lines: list[str] = []

    def say(text: str) -> None:
        lines.append(text)
        if len(lines) == step:
            raise KilledError

    with pytest.raises(KilledError):
        place.publish(say=say)
    tags = [tag for tag in public_tags(place.client) if tag.endswith("-zstd")]
    assert [tag for tag in tags if not place.check(tag, Demand(level="gpu")).accepted] == []
    row = place.publish()
    assert row.zstd is not None
    assert place.check().accepted
    assert not list(place.world.folder.rglob("envbuilder-zstd-*"))


def test_a_tag_that_becomes_too_long_is_refused_before_anything_is_pushed(place: Place) -> None:
    """With what is put behind it a tag of 125 characters is none: nothing is in the registry then."""
    with pytest.raises(UsageError, match="not a tag"):
        place.publish(publication={"moving": ("x" * 125,)})
    assert place.state.manifests == {}


def test_one_tag_is_not_meant_for_both_forms(place: Place) -> None:
    """Who names a tag that zstd makes of another would have it moved twice a run: refused, with nothing pushed."""
    with pytest.raises(UsageError, match="latest-zstd is the name of latest in zstd"):
        place.publish(publication={"moving": ("latest", "latest-zstd")})
    assert place.state.manifests == {}
    assert place.publish(publication={"moving": ("latest", "latest-zstd")}, repacker=None).published


def test_a_failed_image_has_no_second_form(place: Place) -> None:
    """Only what is published is packed."""
    row = place.publish(make=failed_verdict)
    assert (row.published, row.zstd) == (False, None)
    assert public_tags(place.client) == {}


def test_people_see_both_forms_and_what_one_saves(place: Place) -> None:
    """A row for each manifest, with the bytes of both; where the second is lacking, that is the result."""
    row = place.publish()
    text = as_text(PublishDocument(rows=(row,)))
    assert "in zstd" in text
    assert "MB instead of" in text
    lacking = msgspec.structs.replace(row, zstd=None, error="published in gzip; in zstd not: why", exit_code=7)
    assert "in gzip alone" in as_text(PublishDocument(rows=(lacking,)))
