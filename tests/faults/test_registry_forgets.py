"""A registry that collects garbage between two steps, or says yes and keeps nothing: told, and mended by a rerun."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from publisher import PushingEngine
from publishing_world import ENVIRONMENT, World
from registries import State, docker_registry, modern_registry

from envbuilder.attest.envelope import KeyOpener
from envbuilder.attest.keys import create
from envbuilder.attest.requirements import Requirement
from envbuilder.errors import EnvbuilderError
from envbuilder.publish import tags
from envbuilder.publish.publish import publish
from envbuilder.publish.verification import Verification
from envbuilder.publish.verify import VerifyQuestion, verify
from envbuilder.registry import referrers

STEPS = ("pushing", "validating", "attaching", "attaching", "tagged", "moved", "moved")
"""What a publication says, before what may fail, or after what it did."""
PUBLIC = ("pin-1", ENVIRONMENT, "latest")


@dataclass(frozen=True)
class Bench:
    world: World
    state: State

    def attempted(self, say: Callable[[str], None] = lambda _: None) -> EnvbuilderError | None:
        try:
            assert self.world.publication("scratch:1").tags == ("pin-1",)
            assert publish(self.world.publication("scratch:1"), self.world.tools(say=say)).published
        except EnvbuilderError as error:
            return error
        return None

    def asked(self, tag: str) -> Verification:
        question = VerifyQuestion(Requirement(level="gpu"))
        opener = KeyOpener((self.world.key.public,))
        return verify(self.world.client(tag), (opener,), question, self.world.tools().now())

    def is_whole(self, tag: str) -> bool:
        found = self.state.manifests.get(self.state.tags.get(tag, ""))
        return found is not None and self._has_blobs(found[1]) and self.asked(tag).accepted

    def _has_blobs(self, manifest: bytes) -> bool:
        document = json.loads(manifest)
        return self.state.blobs.keys() >= {part["digest"] for part in (document["config"], *document["layers"])}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Give a registry of which everything can be taken away, and what publishes into it, without long pauses."""
    for module in (tags, referrers):
        monkeypatch.setattr(module, "PAUSE_S", 0.005)
    with modern_registry() as (address, state):
        state.strict = True
        engine = PushingEngine()
        engine.add("scratch:1", labels={"number": "1"})
        yield Bench(World(engine, create(tmp_path / "key"), tmp_path / "out", address, "team/image"), state)


def staged(state: State) -> str:
    return next((digest for tag, digest in state.tags.items() if tag.startswith("staging-")), "")


def statements(state: State) -> list[str]:
    return [name for name, (_, content) in state.manifests.items() if "subject" in json.loads(content)]


def untag(state: State) -> None:
    """Delete the staging tag, as a rule for old tags does, and collect what nothing leads to then."""
    for tag in [tag for tag in state.tags if tag.startswith("staging-")]:
        del state.tags[tag]
    state.collect()


def lose_manifest(state: State) -> None:
    """Lose the image's manifest, the tag as well."""
    digest = staged(state)
    state.tags = {tag: one for tag, one in state.tags.items() if one != digest}
    state.manifests.pop(digest, None)


def lose_blobs(state: State) -> None:
    """Lose the image's configuration; its manifest stays."""
    for manifest in (state.manifests.get(staged(state)),):
        if manifest is not None:
            state.blobs.pop(json.loads(manifest[1])["config"]["digest"], None)


def lose_statements(state: State) -> None:
    """Lose what was attached; the documents' blobs stay."""
    for name in statements(state):
        del state.manifests[name]


def lose_documents(state: State) -> None:
    """Lose the attached documents themselves; they are listed still."""
    for name in statements(state):
        for layer in json.loads(state.manifests[name][1])["layers"]:
            state.blobs.pop(layer["digest"], None)


def lose_everything(state: State) -> None:
    """Begin anew, as a registry whose store was not mounted."""
    state.tags, state.manifests, state.blobs = {}, {}, {}


LOSSES = (untag, lose_manifest, lose_blobs, lose_statements, lose_documents, lose_everything)
SEEN_UNTIL: dict[Callable[[State], None], int] = {
    untag: 5,
    lose_manifest: 6,
    lose_everything: 6,
    lose_blobs: 4,
    lose_statements: 4,
    lose_documents: 4,
}
"""Before which step a loss is seen by the publication itself: what is lost later, whoever verifies or pulls sees."""


LOST = [
    pytest.param(loss, step, id=f"{loss.__name__}-{step}", marks=() if (number + step) % 3 == 0 else pytest.mark.full)
    for number, loss in enumerate(LOSSES)
    for step in range(len(STEPS))
]
"""A third of them is tried in each run of the tests."""


@pytest.mark.parametrize(("loss", "step"), LOST)
def test_lost_content_of_a_registry_is_reported_and_pushed_again(
    bench: Bench, loss: Callable[[State], None], step: int
) -> None:
    said: list[str] = []

    def say(text: str) -> None:
        assert text.startswith(STEPS[len(said)])
        if len(said) == step:
            loss(bench.state)
        said.append(text)

    error = bench.attempted(say)
    assert len(said) > step
    if error is not None:
        assert error.exit_code in (5, 7)
        assert error.hint
    elif step < SEEN_UNTIL[loss]:
        assert all(bench.is_whole(tag) for tag in PUBLIC), "it said that it published"
    for tag in PUBLIC:
        found = bench.asked(tag)
        assert found.accepted or found.refusals
    assert bench.attempted() is None
    assert [tag for tag in PUBLIC if not bench.is_whole(tag)] == []


FORGOTTEN = {
    "the staging tag": r"/manifests/staging-",
    "an immutable tag": r"/manifests/pin-",
    "a moving tag": rf"/manifests/{ENVIRONMENT}",
    "the last moving tag": r"/manifests/latest",
    "statements": r"/manifests/sha256:",
    "every blob": r"/blobs/",
    "every manifest": r"/manifests/",
}


@pytest.mark.parametrize("pattern", FORGOTTEN.values(), ids=FORGOTTEN.keys())
@pytest.mark.parametrize("older", [0, 1], ids=["the first", "over an older one"])
def test_registry_that_stores_nothing_is_reported(bench: Bench, pattern: str, older: int) -> None:
    if older:
        bench.world.engine.add("scratch:0", labels={"number": "0"})  # type: ignore[attr-defined]
        assert publish(bench.world.publication("scratch:0"), bench.world.tools()).published
    before = dict(bench.state.tags)
    bench.state.forgets = lambda _, path: re.search(pattern, path) is not None
    error = bench.attempted()
    assert error is not None, "it was called published"
    assert error.exit_code in (5, 7)
    assert error.hint
    for tag in PUBLIC:
        assert bench.state.tags.get(tag) == before.get(tag) or bench.is_whole(tag)
    bench.state.forgets = lambda _, __: False
    assert bench.attempted() is None
    assert [tag for tag in PUBLIC if not bench.is_whole(tag)] == []


def test_eventually_consistent_registry_is_waited_for(bench: Bench) -> None:
    times = iter(range(100))
    bench.state.forgets = lambda _, path: (
        re.search("/manifests/(pin|latest)", path) is not None and next(times) % 2 == 0
    )
    assert bench.attempted() is None
    assert [tag for tag in PUBLIC if not bench.is_whole(tag)] == []


@pytest.mark.engine  # docker-registry is installed with the engine
@pytest.mark.parametrize("step", range(1, 5))
def test_garbage_collection_of_docker_registry_is_reported_and_repaired(step: int, tmp_path: Path) -> None:
    said: list[str] = []
    with docker_registry(tmp_path / "registry") as address:
        engine = PushingEngine()
        engine.add("scratch:1", labels={"number": "1"})
        world = World(engine, create(tmp_path / "key"), tmp_path / "out", address, "team/image")

        def say(text: str) -> None:
            if len(said) == step:
                found = world.client().manifest(
                    next(tag for tag in world.client().tags() if tag.startswith("staging-"))
                )
                assert found is not None
                url = f"http://{address}/v2/team/image/manifests/{found.digest}"
                urllib.request.urlopen(urllib.request.Request(url, method="DELETE")).close()
                words = ["docker-registry", "garbage-collect", str(tmp_path / "registry" / "registry.yml")]
                subprocess.run(words, check=True, capture_output=True)
                assert world.client().manifest(found.digest) is None
            said.append(text)

        with pytest.raises(EnvbuilderError) as told:
            publish(world.publication("scratch:1"), world.tools(say=say))
        assert told.value.exit_code in (5, 7)
        assert told.value.hint
        assert not [tag for tag in world.client().tags() if tag in PUBLIC]
        assert publish(world.publication("scratch:1"), world.tools()).published
        opener = KeyOpener((world.key.public,))
        for tag in PUBLIC:
            manifest = world.client().manifest(tag)
            assert manifest is not None
            assert world.client().lacking(manifest) == ""
            assert verify(
                world.client(tag), (opener,), VerifyQuestion(Requirement(level="gpu")), world.tools().now()
            ).accepted
