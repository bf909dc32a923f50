"""Many publishers of one image at once, in a registry that fails now and then: no statement is lost."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

import pytest
from hostile import Front, hostile
from publishing_world import attached, push_image
from registries import docker_registry, modern_registry

from envbuilder.errors import EnvbuilderError
from envbuilder.registry import referrers
from envbuilder.registry.client import Repository
from envbuilder.registry.manifests import Descriptor, Manifest
from envbuilder.registry.reference import Reference
from envbuilder.registry.referrers import attach, confirm, fallback_tag

KIND = "application/vnd.dsse.envelope.v1+json"
_Answer = TypeVar("_Answer")

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
    return answered(lambda: push_image(Repository(Reference(host, "team/image"), {}), "image"))


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

    threads = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return image, {item.digest for item in said}, len(failed)


def listed(host: str, digest: str) -> set[str]:
    """Read what a verifier would find, tried again where the registry fails."""
    return answered(lambda: attached(Repository(Reference(host, "team/image"), {}), digest, KIND))


@pytest.mark.parametrize("count", [20, pytest.param(40, marks=pytest.mark.full)])
def test_publishers_at_once_lose_nothing(host, count: int) -> None:
    """What publishers were told is attached is listed."""
    image, made, failures = publish_at_once(host, count)
    found = listed(host, image.digest)
    print(f"{count} publishers, {len(made)} statements, {failures} failures told, {len(made - found)} lost")  # noqa: T201
    assert len(made) == count * DOCUMENTS
    assert made <= found


def test_list_that_somebody_wrote_over_is_made_up_for(monkeypatch) -> None:
    """A document that another writer's list has lost is still found, and the next writer puts it back.

    A registry that accepts the list and keeps the old one is an error: not everybody may list tags.
    """
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
        second = attach(repository, image, b"second", KIND, {})
        state.tags[tag] = before.digest  # what a writer does that had read the list before the second was there
        assert attached(repository, image.digest, KIND) == {first.digest, second.digest}
        attach(repository, image, b"third", KIND, {})
        assert second.digest.encode() in repository.manifest(tag).content
        rules.actions.insert(0, (f"PUT .*/manifests/{tag}$", lambda one: one.say(201)))
        monkeypatch.setattr(referrers, "PAUSE_S", 0.001)
        fourth = attach(repository, image, b"fourth", KIND, {})
        with pytest.raises(EnvbuilderError, match="does not list"):
            confirm(repository, image.digest, (fourth,))
