"""A publication whose disk, registry or clock fails at any step: a clear end in time, nothing public unproven."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import registries
from hostile import Front, hostile
from publishing_world import ENVIRONMENT, NOW, World, answering, public_tags, scratch_world
from registries import State, modern_registry

from envbuilder.errors import EnvbuilderError, InfrastructureError, Reason
from envbuilder.publish import tags
from envbuilder.publish.publish_all import publish
from envbuilder.publish.verification import advising
from envbuilder.registry import client, referrers
from envbuilder.registry.errors import RegistryFailedError
from envbuilder.registry.reference import Reference
from envbuilder.verdict import Verdict, span

STEPS = ("pushing", "validating", "attaching", "attaching", "tagged", "moved", "moved")
"""What a publication says, before what may fail, or after what it did."""
MOVED = 5
"""The step at which the public names have been given: what follows is this host's alone."""
PUBLIC = ("pin-1", ENVIRONMENT, "latest")
MOST_S = 60.0


def attempted(
    world: World, step: int = -1, happens: Callable[[], object] = bool
) -> tuple[EnvbuilderError | None, list[str]]:
    """Publish, and let something happen at a step; return the error, None where it published, and what was said."""
    said: list[str] = []

    def say(text: str) -> None:
        if len(said) == step:
            happens()
        said.append(text)

    error = None
    try:
        with advising(world.client().reference):
            assert publish(world.publication("scratch:1"), world.tools(say=say)).published
    except EnvbuilderError as caught:
        error = caught
    assert error is None or error.exit_code in (5, 7)
    return error, said


def fills(disk: Path) -> None:
    with (disk / "fill").open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)


def mends(disk: Path) -> None:
    (disk / "fill").unlink(missing_ok=True)


@pytest.fixture
def on_a_disk(tmp_path: Path) -> Iterator[World]:
    """Give a world whose ``out`` is a disk of its own, which only root can mount."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs a disk of its own: only root may mount one")
    try:
        with modern_registry() as (address, _):
            yield scratch_world(tmp_path, address, disk)
    finally:
        mends(disk)
        subprocess.run(["umount", "-l", disk], check=True)


@pytest.mark.parametrize("step", range(len(STEPS)))
def test_publication_resumes_after_a_disk_failure_at_any_step(on_a_disk: World, step: int) -> None:
    world = on_a_disk
    error, said = attempted(world, step, lambda: fills(world.folder))
    assert len(said) > step, "the disk never failed"
    assert [tag for tag in public_tags(world.client()) if not world.verified(tag).accepted] == []
    if error is None:
        assert world.verified().accepted
    else:
        assert isinstance(error, InfrastructureError)
        assert str(world.folder) in error.message
    mends(world.folder)
    assert attempted(world)[0] is None
    assert world.verified().accepted
    assert not list(world.folder.rglob(".*.tmp")), "a temporary file was left"


@pytest.fixture
def registry() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the small registry as a program, so that it can be killed and stopped."""
    with subprocess.Popen([sys.executable, registries.__file__], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


# Python leaves a TLS socket open if the other end is killed between the connection and the handshake.
@pytest.mark.filterwarnings("ignore:unclosed <ssl:ResourceWarning")
@pytest.mark.parametrize(
    ("sent", "step"),
    [(signal.SIGKILL, step) for step in range(len(STEPS))] + [(signal.SIGSTOP, step) for step in (0, 1, 3, 5)],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_registry_that_dies_or_freezes_at_any_step_is_reported(
    registry: tuple[subprocess.Popen[str], str],
    sent: signal.Signals,
    step: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process, address = registry
    world = scratch_world(tmp_path, address)
    monkeypatch.setattr(client, "SILENCE_S", 1.0)
    monkeypatch.setattr(client, "PAUSE_S", 0.05)
    began = time.monotonic()
    error, said = attempted(world, step, lambda: process.send_signal(sent))
    assert time.monotonic() - began < MOST_S
    assert error is not None or step >= MOVED or len(said) <= step + 1, "it went on without its registry"
    assert error is None or error.hint
    assert not list(world.folder.rglob(".*.tmp"))
    if sent == signal.SIGSTOP:
        monkeypatch.setattr(client, "SILENCE_S", 60.0)
        process.send_signal(signal.SIGCONT)
        assert attempted(world)[0] is None
        assert world.verified().accepted


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"], ids=["header", "content"])
@pytest.mark.parametrize("part", ["blobs/uploads/", "manifests/sha256:", "referrers/", "manifests/latest"])
def test_publication_ends_if_the_registry_sends_a_byte_now_and_then(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: bytes, part: str
) -> None:
    monkeypatch.setattr(client, "ANSWER_S", 0.5)

    def drip(front: Front) -> None:
        front.wfile.write(start)
        while not front.rules.over.wait(0.05):
            front.wfile.write(b"a")
            front.wfile.flush()

    with hostile(bench.world.client().reference.host) as (address, rules):
        rules.on(part, drip)
        began = time.monotonic()
        error, _ = attempted(scratch_world(tmp_path / "slow", address))
        assert time.monotonic() - began < 10
    assert isinstance(error, RegistryFailedError)
    assert error.fault is Reason.TOO_SLOW


CLOCK = {"back by minutes": -600, "back by hours": -6 * 3600, "forth by hours": 6 * 3600, "forth by days": 3 * 86400}


@pytest.mark.parametrize("seconds", CLOCK.values(), ids=CLOCK.keys())
@pytest.mark.parametrize("stops_at", ["attaching", "tagged"])
def test_interrupted_publication_resumes_after_clock_change(bench: Bench, stops_at: str, seconds: int) -> None:
    world, moments, judged = bench.world, [NOW], []

    def validate(reference: Reference) -> Verdict:
        judged.append(moments[0])
        return answering(started=moments[0].isoformat(), finished=moments[0].isoformat())(reference)

    def stop(text: str) -> None:
        if text.startswith(stops_at):
            raise EnvbuilderError("stopped")

    with pytest.raises(EnvbuilderError, match="stopped"):
        publish(world.publication("scratch:1"), world.tools(validate, now=lambda: moments[0], say=stop))
    moments[0] = NOW + timedelta(seconds=seconds)
    assert publish(world.publication("scratch:1"), world.tools(validate, now=lambda: moments[0])).published
    assert len(judged) == (1 if 0 <= seconds < 86400 else 2)
    found = world.verified(now=moments[0])
    assert found.accepted, found.refusals
    assert found.age_s is not None
    assert found.age_s >= 0


def test_duration_is_that_of_the_monotonic_clock() -> None:
    """The wall clock is read once: setting it in between changes no duration."""
    started, finished = map(datetime.fromisoformat, span(time.monotonic() - 90))
    assert timedelta(seconds=89) <= finished - started <= timedelta(seconds=100)


@dataclass(frozen=True)
class Bench:
    world: World
    state: State

    def is_whole(self, tag: str) -> bool:
        """Return True if a tag leads to an image that can be pulled, and is accepted."""
        found = self.state.manifests.get(self.state.tags.get(tag, ""))
        return found is not None and self._has_blobs(found[1]) and self.world.verified(tag).accepted

    def _has_blobs(self, manifest: bytes) -> bool:
        document = json.loads(manifest)
        return self.state.blobs.keys() >= {part["digest"] for part in (document["config"], *document["layers"])}

    def check_recovery(self) -> None:
        assert attempted(self.world)[0] is None
        assert [tag for tag in PUBLIC if not self.is_whole(tag)] == []


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Give a registry of which everything can be taken away, and what publishes into it, without long pauses."""
    for module in (tags, referrers):
        monkeypatch.setattr(module, "PAUSE_S", 0.005)
    with modern_registry() as (address, state):
        state.strict = True
        yield Bench(scratch_world(tmp_path, address), state)


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
def test_lost_content_is_reported_and_pushed_again(bench: Bench, loss: Callable[[State], None], step: int) -> None:
    error, said = attempted(bench.world, step, lambda: loss(bench.state))
    assert len(said) > step
    assert all(line.startswith(begin) for line, begin in zip(said, STEPS, strict=False))
    assert error is None or error.hint
    if error is None and step < SEEN_UNTIL[loss]:
        assert all(bench.is_whole(tag) for tag in PUBLIC), "it said that it published"
    for tag in PUBLIC:
        found = bench.world.verified(tag)
        assert found.accepted or found.refusals
    bench.check_recovery()


FORGOTTEN = {
    "the staging tag": r"/manifests/staging-",
    "an immutable tag": r"/manifests/pin-",
    "a moving tag": rf"/manifests/{ENVIRONMENT}",
    "the last moving tag": r"/manifests/latest",
    "statements": r"/manifests/sha256:",
    "every blob": r"/blobs/",
    "every manifest": r"/manifests/",
}


@pytest.mark.parametrize(
    ("pattern", "older"),
    [
        pytest.param(pattern, older, id=f"{name}-{older}", marks=() if (number + older) % 2 else pytest.mark.full)
        for number, (name, pattern) in enumerate(FORGOTTEN.items())
        for older in (0, 1)
    ],
)
def test_registry_that_stores_nothing_is_reported(bench: Bench, pattern: str, older: int) -> None:
    if older:
        bench.world.engine.add("scratch:0", labels={"number": "0"})  # type: ignore[attr-defined]
        assert publish(bench.world.publication("scratch:0"), bench.world.tools()).published
    before = dict(bench.state.tags)
    bench.state.forgets = lambda _, path: re.search(pattern, path) is not None
    error, _ = attempted(bench.world)
    assert error is not None, "it was called published"
    assert error.hint
    for tag in PUBLIC:
        assert bench.state.tags.get(tag) == before.get(tag) or bench.is_whole(tag)
    bench.state.forgets = lambda _, __: False
    bench.check_recovery()


def test_eventually_consistent_registry_is_waited_for(bench: Bench) -> None:
    times = iter(range(100))
    bench.state.forgets = lambda _, path: (
        re.search("/manifests/(pin|latest)", path) is not None and next(times) % 2 == 0
    )
    bench.check_recovery()
