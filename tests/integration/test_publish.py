"""Publishing and verifying against a real engine and a real registry on loopback."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from publishing_world import ENVIRONMENT, SCRATCH, World, answering, public_tags, scratch_image
from registries import docker_registry

from envbuilder.attest.keys import create
from envbuilder.engine.docker import connect
from envbuilder.errors import InfrastructureError
from envbuilder.publish import attestation, publish_all
from envbuilder.publish.publish_all import publish

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def host(tmp_path_factory) -> Iterator[str]:
    with docker_registry(tmp_path_factory.mktemp("registry")) as address:
        yield address


@pytest.fixture
def world(host, tmp_path, request) -> Iterator[World]:
    name = "team/" + request.node.originalname.removeprefix("test_")[:50].strip("_")
    made = World(connect(), create(tmp_path / "keys"), tmp_path, host, name)
    yield made
    for tag in _tags_of(made):
        with suppress(InfrastructureError):
            made.engine.remove(tag)


def _tags_of(world: World) -> list[str]:
    images = world.engine._api.images()  # type: ignore[attr-defined]
    prefixes = (f"{SCRATCH}:", world.reference.name)
    names = [name for image in images for name in (image["RepoTags"] or []) + (image["RepoDigests"] or [])]
    return [name for name in names if name.startswith(prefixes)]


def published(world: World, text: str = "first", **given: Any) -> str:
    row = publish(world.publication(scratch_image(world.engine, world.folder, text)), world.tools(**given))
    assert row.published
    return row.digest


class Killer:
    def __init__(self, after: int) -> None:
        self.left = after

    def step(self) -> None:
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Make a function a step: the kill comes after its effect."""

        def call(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            self.step()
            return result

        return call


def _publish_and_die(world: World, image: str, after: int) -> bool:
    """Publish in a child that is killed after so many effects; True where it lived to the end."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            killer = Killer(after)
            engine = connect()
            for name in ("tag", "push"):
                setattr(engine, name, killer.around(getattr(engine, name)))
            world = replace(world, engine=engine)
            tools = world.tools(killer.around(answering()))
            send = tools.repository.send

            def counted(method: str, path: str, **kwargs: Any) -> Any:
                return (send if method in ("GET", "HEAD") else killer.around(send))(method, path, **kwargs)

            tools.repository.send = counted  # type: ignore[method-assign]
            for module in (attestation, publish_all):
                module.write_document = killer.around(module.write_document)  # type: ignore[attr-defined]
            killer.step()
            code = 0 if publish(world.publication(image), tools).published else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return not os.WIFSIGNALED(status)


def test_killed_after_any_step_no_tag_is_unvalidated_and_a_second_run_completes(world) -> None:
    published(world, "before")
    accepted: set[str] = set()
    for after in range(200):
        image = scratch_image(world.engine, world.folder, f"image {after}")
        before = set(public_tags(world.client()).values())
        lived = _publish_and_die(world, image, after)
        for tag, target in public_tags(world.client()).items():
            assert target in accepted or world.verified(tag).accepted, f"killed after {after}: {tag} points at {target}"
            accepted.add(target)
        row = publish(world.publication(image), world.tools())
        assert row.published
        assert row.digest not in before
        assert {public_tags(world.client())[tag] for tag in (ENVIRONMENT, "latest")} == {row.digest}
        if lived:
            break
    assert lived
    assert after > 15, "fewer steps than publishing has: the killer misses some"
