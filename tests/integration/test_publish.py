"""Publishing and verifying against a real engine and a real registry on loopback."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from factories import digest, gpu_verdict, inconclusive_verdict
from publishing_world import ENVIRONMENT, SCRATCH, World, altered, answering, attached, public_tags, scratch_image
from registries import docker_registry

from envbuilder.attest import envelope, statements
from envbuilder.attest.envelope import ENVELOPE, KeyOpener, KeySealer
from envbuilder.attest.keys import create
from envbuilder.attest.requirements import Requirement
from envbuilder.attest.statements import VerdictPredicate
from envbuilder.engine.docker import connect
from envbuilder.errors import InfrastructureError, PublishError, Reason
from envbuilder.publish.attached_statements import published as read_repository
from envbuilder.publish.journal import Journal, exclusively
from envbuilder.publish.publish import publish
from envbuilder.publish.verification import Verification
from envbuilder.registry.reference import Reference
from envbuilder.registry.referrers import attach, document
from envbuilder.verdict import Verdict

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


def reasons(found: Verification) -> set[Reason]:
    assert found.accepted == (not found.refusals)
    return {refusal.reason for refusal in found.refusals}


def published(world: World, text: str = "first", **given: Any) -> str:
    row = publish(world.publication(scratch_image(world.engine, world.folder, text)), world.tools(**given))
    assert row.published
    return row.digest


def test_a_published_image_is_accepted_by_every_name(world) -> None:
    image = scratch_image(world.engine, world.folder, "first")
    row = publish(world.publication(image), world.tools())
    assert (row.published, row.verdict, row.level, row.exit_code) == (True, "PASSED", "gpu", 0)
    for target in (*(tag.name for tag in row.tags), row.digest):
        found = world.verified(target)
        assert (found.accepted, found.digest, found.signed_by) == (True, row.digest, world.key.keyid)
    pushed = world.client().manifest(row.digest)
    assert pushed is not None
    config = json.loads(pushed.content)["config"]["digest"]
    assert config == world.engine.image(image).id


def test_refused_image_pushed_again_under_the_tag(world) -> None:
    first = published(world)
    assert world.push("something else", ENVIRONMENT) != first
    assert reasons(world.verified()) == {Reason.TAG_MOVED}
    assert reasons(world.verified("never")) == {Reason.NO_IMAGE}
    assert world.verified(first).accepted


def test_refused_inconclusive(world) -> None:
    image = scratch_image(world.engine, world.folder, "first")
    tools = world.tools(answering(inconclusive_verdict))
    row = publish(world.publication(image), tools)
    assert (row.published, row.exit_code, row.tags) == (False, 8, ())
    assert [tag for tag in world.client().tags() if not tag.startswith(("sha256-", "staging-"))] == []
    row = publish(world.publication(image, allow=("inconclusive",)), tools)
    assert (row.published, row.allowed) == (True, ("inconclusive",))
    for level in ("none", "static", "load", "gpu"):
        assert Reason.INCONCLUSIVE in reasons(world.verified(demand=Requirement(level=level)))
    stated = [
        json.loads(bytes(statements.parse(envelope.payload_of(envelope.parse(sealed))).predicate))
        for item in attached(world.client(), row.digest, ENVELOPE)
        for _, sealed in [document(world.client(), item.digest, frozenset({ENVELOPE}))]
    ]
    assert {"WARNED"} == {statement["result"] for statement in stated if "result" in statement}
    assert ["inconclusive"] in [statement.get("allowed") for statement in stated]


def test_refused_simulated(world) -> None:
    image = scratch_image(world.engine, world.folder, "first")
    with pytest.raises(PublishError, match="simulated"):
        publish(world.publication(image, allow=("inconclusive",)), world.tools(answering(simulated=True)))
    assert set(world.client().tags()) == {f"staging-{ENVIRONMENT}"}
    manifest = world.client().manifest(f"staging-{ENVIRONMENT}")
    verdict = answering(simulated=True)(Reference("x", "x", digest=manifest.digest))
    forged = statements.about("x", manifest.digest, statements.VERDICT, VerdictPredicate(verdict=verdict))
    attach(world.client(), manifest, KeySealer(world.key).seal(statements.encode(forged)), ENVELOPE, {})
    assert reasons(world.verified(f"staging-{ENVIRONMENT}")) == {Reason.SIMULATED}


def test_an_immutable_tag_is_never_overwritten(world) -> None:
    first = published(world)
    tag = world.publication(scratch_image(world.engine, world.folder, "first")).tags[0]
    second = scratch_image(world.engine, world.folder, "second")

    def never(reference: str) -> Verdict:
        raise AssertionError("validated although the tag is taken")

    with pytest.raises(PublishError, match="never overwritten"):
        publish(world.publication(second, tags=(tag,)), world.tools(never))
    assert world.client().manifest(tag).digest == first


def test_the_verdict_must_be_about_the_pushed_digest(world) -> None:
    image = scratch_image(world.engine, world.folder, "first")
    with pytest.raises(PublishError, match="not about"):
        publish(world.publication(image), world.tools(lambda _: gpu_verdict()))
    assert set(world.client().tags()) == {f"staging-{ENVIRONMENT}"}


def test_after_a_failed_move_each_tag_leads_to_a_validated_image(world) -> None:
    first = published(world)
    second = scratch_image(world.engine, world.folder, "second")
    tools = world.tools()
    real = tools.repository.put_manifest

    def failing(target: str, content: bytes, media_type: str) -> bool:
        if target == "latest":
            raise InfrastructureError("the disk is full")
        return bool(real(target, content, media_type))

    tools.repository.put_manifest = failing
    with pytest.raises(InfrastructureError, match="disk is full"):
        publish(world.publication(second), tools)
    assert world.client().manifest("latest").digest == first
    assert world.verified().accepted
    assert publish(world.publication(second), world.tools()).published
    assert world.verified().digest != first


def test_two_processes_do_not_publish_the_same_environment(world) -> None:
    image = scratch_image(world.engine, world.folder, "first")
    with exclusively(world.folder / "publish"), pytest.raises(PublishError, match="another command"):
        publish(world.publication(image), world.tools())


def test_people_share_their_history_through_the_registry(world) -> None:
    published(world, "first")
    published(world, "second", validate=answering(finished="2026-11-20T11:00:00+00:00"))
    found = read_repository(world.client(), (KeyOpener((world.key.public,)),)).verdicts
    assert sorted(one.finished[11:16] for one in found) == ["10:03", "11:00"]
    other = create(world.folder / "other")
    assert read_repository(world.client(), (KeyOpener((other.public,)),)).verdicts == ()


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
            send = tools.repository.transport.send

            def counted(method: str, path: str, **kwargs: Any) -> Any:
                return (send if method in ("GET", "HEAD") else killer.around(send))(method, path, **kwargs)

            tools.repository.transport.send = counted  # type: ignore[method-assign]
            Journal.note = killer.around(Journal.note)  # type: ignore[method-assign]
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


def test_what_is_signed_is_what_was_judged(world) -> None:
    row = publish(
        world.publication(scratch_image(world.engine, world.folder, "first")),
        world.tools(lambda ref: altered(answering()(ref), suite=digest("another suite"))),
    )
    (item,) = (
        each
        for found in attached(world.client(), row.digest, ENVELOPE)
        for _, sealed in [document(world.client(), found.digest, frozenset({ENVELOPE}))]
        for each in [statements.parse(envelope.payload_of(envelope.parse(sealed)))]
        if each.predicate_type == statements.VERDICT
    )
    verdict = msgspec.json.decode(item.predicate, type=VerdictPredicate).verdict
    assert (verdict.suite, verdict.image.digest) == (digest("another suite"), row.digest)
    assert Path(world.folder / "publish").is_dir()
