"""Publishing onto a disk that fills up or may not be written, at every step: a clear end, nothing public unproven."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import pytest
from publisher import PushingEngine
from publishing_world import ENVIRONMENT, World, answering
from registries import modern_registry

from envbuilder.attest.envelope import KeyOpener
from envbuilder.attest.keys import create
from envbuilder.attest.requirements import Requirement
from envbuilder.errors import InfrastructureError
from envbuilder.publish.publish import publish
from envbuilder.publish.verify import VerifyQuestion, verify
from envbuilder.registry.reference import Reference

Break = Callable[[Path], None]
STEPS = 7
"""Lines of progress of one publication; each is said before what may fail."""


def fills(disk: Path) -> None:
    with (disk / "fill").open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)


def locks(disk: Path) -> None:
    """Let nobody write any more: by a second mount over it, since the first is in use."""
    for options in (["--bind", disk], ["-o", "remount,bind,ro"]):
        subprocess.run(["mount", *options, disk], check=True)


def mends(disk: Path) -> None:
    if not os.access(disk, os.W_OK):
        subprocess.run(["umount", disk], check=True)
    (disk / "fill").unlink(missing_ok=True)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Give a world whose ``out`` is a disk of its own, which only root can mount."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs a disk of its own: only root may mount one")
    try:
        with modern_registry() as (address, _):
            engine = PushingEngine()
            engine.add("scratch:1", labels={"number": "1"})
            yield World(engine, create(tmp_path / "key"), disk, address, "team/image")
    finally:
        mends(disk)
        subprocess.run(["umount", "-l", disk], check=True)


def accepted(world: World, tag: str = ENVIRONMENT) -> bool:
    now = world.tools().now()
    question = VerifyQuestion(Requirement(level="gpu"))
    return verify(world.client(tag), (KeyOpener((world.key.public,)),), question, now).accepted


def attempted(world: World, say: Callable[[str], None]) -> InfrastructureError | None:
    try:
        assert publish(world.publication("scratch:1"), world.tools(say=say)).published
    except InfrastructureError as error:
        return error
    return None


@pytest.mark.parametrize("breaks", [fills, locks])
@pytest.mark.parametrize("step", range(STEPS))
def test_publication_resumes_after_a_disk_failure_at_any_step(world: World, step: int, breaks: Break) -> None:
    said: list[str] = []

    def say(text: str) -> None:
        if len(said) == step:
            breaks(world.folder)
        said.append(text)

    error = attempted(world, say)
    assert len(said) > step, "the disk never failed"
    public = [tag for tag in world.client().tags() if not tag.startswith(("staging-", "sha256-"))]
    assert [tag for tag in public if not accepted(world, tag)] == []
    if error is None:
        assert accepted(world)
    else:
        assert str(world.folder) in error.message
        assert error.exit_code == 5
    mends(world.folder)
    assert attempted(world, lambda _: None) is None
    assert accepted(world)
    assert not list(world.folder.rglob(".*.tmp")), "a temporary file was left"


@pytest.mark.parametrize("breaks", [fills, locks])
def test_disk_failure_before_the_first_step_changes_nothing(world: World, breaks: Break) -> None:
    breaks(world.folder)

    def never(_: Reference) -> NoReturn:
        raise AssertionError("validated although nothing can be kept")

    with pytest.raises(InfrastructureError, match="cannot write"):
        publish(world.publication("scratch:1"), world.tools(never, say=lambda _: None))
    assert not [tag for tag in world.client().tags() if not tag.startswith("staging-")]
    mends(world.folder)
    assert publish(world.publication("scratch:1"), world.tools(answering())).published
