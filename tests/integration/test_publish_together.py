"""Many publishers of one image at once, in a registry that fails now and then: no statement is lost."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import publisher
import pytest
from hostile import Front, hostile
from publisher import FAILED_EVERY, REPOSITORY
from publishing_world import attached, public_tags
from registries import docker_registry, modern_registry

from envbuilder.attest.envelope import KeyOpener
from envbuilder.attest.keys import create
from envbuilder.attest.requirements import Requirement
from envbuilder.errors import EnvbuilderError, InfrastructureError
from envbuilder.publish.verify import VerifyQuestion, verify
from envbuilder.registry.client import Repository
from envbuilder.registry.manifests import OCI_MANIFEST, Descriptor, Manifest, digest_of
from envbuilder.registry.reference import Reference
from envbuilder.registry.referrers import attach, confirm, fallback_tag

KIND = "application/vnd.dsse.envelope.v1+json"
_Answer = TypeVar("_Answer")

PUBLISHER = Path(publisher.__file__)
DOCUMENTS = 4
"""What one publisher attaches, as `publish` does."""


DOCKER_REGISTRY = pytest.param("docker-registry", marks=pytest.mark.engine)


@pytest.fixture(params=[DOCKER_REGISTRY, "OCI 1.1"])
def host(request, tmp_path) -> Iterator[str]:
    """Yield each kind of registry, behind a front that fails one request in twelve."""
    chance = random.Random(7)  # noqa: S311 - the same failures in every run, as far as threads allow

    def fails(front: Front) -> None:
        kind = chance.randrange(36)
        if kind == 0:
            front.say(500)
        elif kind == 1:
            front.say(503, Retry_After="0")
        elif kind == 2:  # what was asked is done, and nobody hears of it
            front.upstream()
            front.close_connection = True
        else:
            front.forward()

    running = docker_registry(tmp_path, memory=True) if request.param == "docker-registry" else modern_registry()
    with running as found, hostile(found if isinstance(found, str) else found[0]) as (address, rules):
        rules.on("", fails)
        yield address


def answered(ask: Callable[[], _Answer]) -> _Answer:
    """Ask again where the registry fails."""
    for _ in range(20):
        with suppress(EnvbuilderError):
            return ask()
    raise AssertionError("the registry never answered")


def put_image(host: str) -> Manifest:
    """Push an image of nothing, whatever it takes."""
    repository = Repository(Reference(host, "team/image"), {})

    def put() -> Manifest:
        config = repository.put_blob(b"{}", "application/vnd.oci.empty.v1+json")
        described = {"mediaType": config.media_type, "digest": config.digest, "size": 2}
        parts = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": described, "layers": []}
        content = json.dumps(parts).encode()
        repository.put_manifest("image", content, OCI_MANIFEST)
        return Manifest(OCI_MANIFEST, content, digest_of(content))

    return answered(put)


def publish_at_once(host: str, count: int) -> tuple[Manifest, set[str], int]:
    """Let so many publishers attach their documents at once; returns what each that ended well had attached."""
    image = put_image(host)
    said: list[Descriptor] = []
    failed: list[str] = []

    def one(number: int) -> None:
        repository = Repository(Reference(host, "team/image"), {})
        for _ in range(25):  # a publisher that is told of a failure runs again, on a busy machine more often
            try:
                made = tuple(attach(repository, image, f"{number}.{i}".encode(), KIND, {}) for i in range(DOCUMENTS))
                confirm(repository, image.digest, made)
            except EnvbuilderError as error:
                failed.append(error.message)
                continue
            said.extend(made)
            break
        repository.transport.close()

    threads = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return image, {item.digest for item in said}, len(failed)


def listed(host: str, digest: str) -> set[str]:
    """Read what a verifier would find, tried again where the registry fails."""
    return answered(
        lambda: {item.digest for item in attached(Repository(Reference(host, "team/image"), {}), digest, KIND)}
    )


def check_together(host: str, count: int) -> None:
    image, made, failures = publish_at_once(host, count)
    found = listed(host, image.digest)
    print(f"{count} publishers, {len(made)} statements, {failures} failures told, {len(made - found)} lost")  # noqa: T201
    assert len(made) == count * DOCUMENTS
    assert made <= found


def test_twenty_publishers_lose_nothing(host) -> None:
    """What 20 publishers were told is attached is listed."""
    check_together(host, 20)


@pytest.mark.full
def test_forty_publishers_lose_nothing(host) -> None:
    check_together(host, 40)


@dataclass
class Publishers:
    """Publishers as processes, many at once: each is killed up to twice, after so many lines of progress."""

    host: str
    folder: Path
    chance: random.Random = field(default_factory=lambda: random.Random(11))  # noqa: S311 - no secret
    killed: int = 0
    codes: dict[int, int] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def publish(self, number: int) -> None:
        """Bring one image to its end, whatever happens on the way."""
        for attempt in range(12):
            lines = self.chance.randrange(8) if attempt < 2 else 1_000
            command = [sys.executable, str(PUBLISHER), self.host, str(self.folder), str(number)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
                assert process.stdout is not None
                said = [line for _, line in zip(range(lines), process.stdout, strict=False)]
                if len(said) == lines:
                    time.sleep(self.chance.uniform(0, 0.05))
                    process.kill()
            self.killed += process.returncode == -signal.SIGKILL
            if process.returncode in (0, 3):
                self.codes[number] = process.returncode
                return
            if process.returncode != -signal.SIGKILL:
                self.said += said[-1:]

    def all(self, count: int) -> None:
        """Run so many publications, eight at a time."""
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(self.publish, range(count)))


def check_killed(host: str, folder: Path, count: int) -> None:
    """Publish with kills; no tag is ever on an image that has no PASSED, and in the end everything is there."""
    key = create(folder / "key")
    client = Repository(Reference(host, REPOSITORY), {})
    put_image(host)  # what the registry needs to have a repository at all
    stated: dict[str, bool] = {}
    over = threading.Event()

    def accepted(digest: str) -> bool:
        asked = Repository(Reference(host, REPOSITORY).at(digest), {})

        def ask() -> bool:
            answer = verify(
                asked, (KeyOpener((key.public,)),), VerifyQuestion(Requirement(level="gpu")), datetime.now(UTC)
            )
            if answer.unanswered:
                raise InfrastructureError("the registry failed, which is no answer")
            return answer.accepted

        return answered(ask)

    def watch() -> None:
        while not over.is_set():
            for digest in set(answered(lambda: public_tags(client)).values()) - stated.keys():
                stated[digest] = accepted(digest)

    watcher = threading.Thread(target=watch, daemon=True)
    ours = answered(lambda: public_tags(client))  # the repository's first image, which nobody publishes
    stated |= dict.fromkeys(ours.values(), True)
    watcher.start()
    publishers = Publishers(host, folder)
    publishers.all(count)
    over.set()
    watcher.join()
    tags = answered(lambda: public_tags(client))
    failing = {number for number in range(count) if number % FAILED_EVERY == 0}
    print(f"{count} publications, {publishers.killed} kills, {len(publishers.said)} errors told")  # noqa: T201
    assert {n: code for n, code in publishers.codes.items() if code != (3 if n in failing else 0)} == {}, (
        publishers.said
    )
    assert len(publishers.codes) == count
    assert publishers.killed > count // 2, "the killer came too late"
    assert [digest for digest, sound in stated.items() if not sound] == []
    for number in set(range(count)) - failing:
        assert tags[f"e{number}"] == tags[f"pin-{number}"]
        assert accepted(tags[f"e{number}"])
    assert not {f"e{number}" for number in failing} & tags.keys()
    assert tags["latest"] in {tags[f"e{number}"] for number in set(range(count)) - failing}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("host", [DOCKER_REGISTRY], indirect=True)
def test_killed_publishers_leave_nothing_unvalidated(host, tmp_path) -> None:
    """Six publications with kills and a failing registry: no public tag is unvalidated, all end as they should."""
    check_killed(host, tmp_path, 6)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_forty_killed_publishers_leave_nothing_unvalidated(host, tmp_path) -> None:
    check_killed(host, tmp_path, 40)


def test_a_list_that_somebody_wrote_over_is_made_up_for(tmp_path) -> None:
    """A document that another writer's list has lost is still found, and the next writer puts it back."""
    with modern_registry() as (address, state), hostile(address) as (front, rules):
        rules.on("GET .*/referrers/", lambda one: one.say(404))

        def without_api(one: Front) -> None:
            status, headers, body = one.upstream()
            one.say(status, body, **{name: value for name, value in headers.items() if name != "OCI-Subject"})

        rules.on("PUT .*/manifests/", without_api)
        repository = Repository(Reference(front, "team/image"), {})
        image = put_image(front)
        first = attach(repository, image, b"first", KIND, {})
        tag = fallback_tag(image.digest)
        before = repository.manifest(tag)
        assert before is not None
        second = attach(repository, image, b"second", KIND, {})
        state.tags[tag] = before.digest  # what a writer does that had read the list before the second was there
        assert {item.digest for item in attached(repository, image.digest, KIND)} == {first.digest, second.digest}
        attach(repository, image, b"third", KIND, {})
        whole = repository.manifest(tag)
        assert whole is not None
        assert second.digest.encode() in whole.content
