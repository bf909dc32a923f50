"""A registry that dies or freezes at any step of a publication: a clear end in time, and nothing public unproven."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import registries
from publisher import PushingEngine
from publishing_world import ENVIRONMENT, World

from envbuilder.attest.envelope import KeyOpener
from envbuilder.attest.keys import create
from envbuilder.attest.requirements import Requirement
from envbuilder.errors import EnvbuilderError
from envbuilder.publish.publish import publish
from envbuilder.publish.verify import VerifyQuestion, verify
from envbuilder.registry import transport

STEPS = 7
"""Lines of progress of one publication; each is said before what may fail."""
MOVED = 5
"""The step at which the public names have been given: what follows is this host's alone."""
MOST_S = 60.0


@dataclass
class Registry:
    process: subprocess.Popen[str]
    address: str


@pytest.fixture
def registry() -> Iterator[Registry]:
    """Run the small registry as a program, so that it can be killed and stopped."""
    with subprocess.Popen([sys.executable, registries.__file__], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Registry(process, process.stdout.readline().strip())
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


@pytest.fixture
def world(registry: Registry, tmp_path: Path) -> World:
    engine = PushingEngine()
    engine.add("scratch:1", labels={"number": "1"})
    return World(engine, create(tmp_path / "key"), tmp_path / "out", registry.address, "team/image")


def ended(world: World, process: subprocess.Popen[str], sent: signal.Signals, step: int) -> EnvbuilderError | None:
    """Publish, the registry sent a signal at a step; return how it ended, None where it published all the same."""
    said: list[str] = []

    def say(text: str) -> None:
        if len(said) == step:
            process.send_signal(sent)
        said.append(text)

    try:
        publish(world.publication("scratch:1"), world.tools(say=say))
    except EnvbuilderError as error:
        return error
    assert step >= MOVED or len(said) <= step + 1, "it went on without its registry"
    return None


@pytest.mark.parametrize("step", range(STEPS))
def test_registry_killed_at_any_step_is_reported(registry: Registry, world: World, step: int) -> None:
    began = time.monotonic()
    error = ended(world, registry.process, signal.SIGKILL, step)
    assert time.monotonic() - began < MOST_S
    if error is not None:
        assert error.exit_code in (5, 7)
        assert error.hint
    assert not list(world.folder.rglob(".*.tmp"))


@pytest.mark.parametrize("step", [0, 1, 3, 5])
def test_frozen_registry_ends_in_time_and_the_next_run_completes(
    registry: Registry, world: World, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "SILENCE_S", 3.0)
    began = time.monotonic()
    error = ended(world, registry.process, signal.SIGSTOP, step)
    assert time.monotonic() - began < MOST_S
    registry.process.send_signal(signal.SIGCONT)
    if error is not None:
        assert error.exit_code in (5, 7)
    assert publish(world.publication("scratch:1"), world.tools(say=lambda _: None)).published
    question = VerifyQuestion(Requirement(level="gpu"))
    now = world.tools().now()
    assert verify(world.client(ENVIRONMENT), (KeyOpener((world.key.public,)),), question, now).accepted
