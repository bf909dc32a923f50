"""An engine that is stopped, upgraded or interfered with while a command works: never a verdict on the image."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from own_engine import OwnEngine, own_engine
from strange_engine import answering
from tiny_image import write_tiny_root
from waiting import wait_for

from envbuilder.engine.docker import DockerEngine, connect
from envbuilder.engine.port import BuildRequest, ContainerResult, ContainerSpec
from envbuilder.errors import InfrastructureError
from envbuilder.support.console import Step

REPOSITORY = Path(__file__).parents[2]
AFTER_S = 1.5
"""When it happens: the container, or the step, has begun."""

Happens = Callable[[OwnEngine], None]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnEngine]:
    folder = tmp_path_factory.mktemp("engine")
    with own_engine(OwnEngine(folder, folder / "docker")) as made:
        write_tiny_root(folder / "base.tar")
        made.connect().import_base(folder / "base.tar", "tiny:base", {})
        yield made


LINE = "trap 'exit 9' TERM; echo up; sleep 20 & wait"
"""Ends in order where it is told to, as a program that minds signals does."""


def run(engine: DockerEngine, line: str = LINE, **given: Any) -> ContainerResult:
    spec = ContainerSpec("tiny:base", ("/bin/sh", "-c", line), files={"a": b"1"}, **{"time_limit": 60.0, **given})
    return engine.run(spec, lambda _: None, lambda _: None)


def build(engine: DockerEngine, folder: Path, line: str, report: Callable[[Step], None] = lambda _: None) -> str:
    (folder / "Dockerfile").write_text(f"FROM tiny:base\nRUN {line}\n")
    return engine.build(BuildRequest(folder, "tiny:built"), report).id


def docker(*words: str) -> Happens:
    def happens(own: OwnEngine) -> None:
        asked = ["docker", "-H", own.host, "ps", "-q"]
        listed = wait_for(lambda: subprocess.run(asked, capture_output=True, check=True, text=True).stdout, 60)
        subprocess.run(["docker", "-H", own.host, *words, *listed.split()], capture_output=True, check=True)

    return happens


@dataclass(frozen=True)
class Exchange:
    """What happens to an engine in mid-run; ``lives`` is whether it answers all along."""

    name: str
    happens: Happens
    lives: bool = False


EXCHANGES = (
    Exchange("an operator kills the container", docker("kill"), lives=True),
    Exchange("an operator stops the container", docker("stop"), lives=True),
    Exchange("an operator removes the container", docker("rm", "-f"), lives=True),
    Exchange("it is restarted, as for an upgrade", OwnEngine.restart),
    Exchange("its host goes down and comes back", lambda own: own.restart(kill=True)),
    Exchange("it is stopped for good", OwnEngine.stop),
)
ALWAYS = (EXCHANGES[1], EXCHANGES[3])
"""Those that are tried in each run of the tests."""


@pytest.mark.engine
@pytest.mark.parametrize(
    "exchange", [pytest.param(one, id=one.name, marks=() if one in ALWAYS else pytest.mark.full) for one in EXCHANGES]
)
def test_container_that_is_ended_from_outside_gives_no_verdict(own: OwnEngine, exchange: Exchange) -> None:
    engine = own.connect()
    began = time.monotonic()
    ended: list[BaseException] = []

    def happen() -> None:
        try:
            exchange.happens(own)
        except BaseException as error:
            ended.append(error)
            raise

    other = threading.Timer(AFTER_S, happen)
    other.start()
    with pytest.raises(InfrastructureError) as told:
        run(engine)
    assert time.monotonic() - began < 60
    other.join()
    assert not ended
    assert told.value.exit_code == 5
    assert told.value.hint
    if not exchange.lives:
        own.stop()
        own.start()
    sweep = "from envbuilder.engine.docker import connect; connect().sweep()"
    environment = {**os.environ, "DOCKER_HOST": own.host, "PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, "-c", _GONE + sweep], check=True, env=environment)
    assert own.left() == ""
    assert own.connect().image("tiny:base") is not None
    assert run(own.connect(), "true").exit_code == 0


_GONE = "from envbuilder.engine import containers; containers._is_abandoned = lambda found: True; "
"""To another command the process of this test is there still; what is tried here is that it finds what was left."""


@pytest.mark.engine
@pytest.mark.full
@pytest.mark.parametrize("exchange", EXCHANGES[3:5], ids=lambda one: one.name)
def test_build_in_an_engine_that_ends_is_no_failed_step(own: OwnEngine, exchange: Exchange, tmp_path: Path) -> None:
    engine, begun = own.connect(), threading.Thread(target=exchange.happens, args=(own,))

    def report(step: Step) -> None:
        if step.kind == "log" and step.text.startswith("begun"):
            begun.start()

    with pytest.raises(InfrastructureError) as told:
        build(engine, tmp_path, f"echo begun, {exchange.name}; sleep 20", report)
    begun.join()
    assert told.value.hint
    assert build(own.connect(), tmp_path, "echo right")


@pytest.mark.engine
@pytest.mark.full
def test_context_that_is_pruned_during_a_build_is_no_failed_step(own: OwnEngine, tmp_path: Path) -> None:
    ended = threading.Event()

    def prune() -> None:
        while not ended.is_set():
            own.connect().trim_cache(0)

    other = threading.Thread(target=prune)
    other.start()
    try:
        with pytest.raises(InfrastructureError, match="lost the context") as told:
            [build(own.connect(), tmp_path, f"echo {number}") for number in range(200)]
    finally:
        ended.set()
        other.join()
    assert told.value.hint


@pytest.mark.engine
def test_container_that_ends_itself_has_its_own_result(own: OwnEngine) -> None:
    engine = own.connect()
    assert run(engine, "exit 137").exit_code == 137
    assert run(engine, "sleep 20", time_limit=1.0).timed_out
    assert run(engine, "sleep 20", overdue=lambda: True).exit_code == 137


@pytest.mark.parametrize(
    "asked",
    [
        lambda engine, _: engine.image("a:b"),
        lambda engine, _: run(engine),
        lambda engine, folder: build(engine, folder, "true"),
    ],
    ids=["image", "run", "build"],
)
def test_upgraded_engine_refuses_our_version(asked: Callable[[DockerEngine, Path], object], tmp_path: Path) -> None:
    message = "client version 1.41 is too old. Minimum supported API version is 1.44, please upgrade your client"
    with answering(tmp_path) as server:
        engine = connect({"DOCKER_HOST": f"unix://{tmp_path}/e.sock"})
        server.answers["/"] = lambda handler: handler.send(json.dumps({"message": message}).encode(), 400)
        with pytest.raises(InfrastructureError, match=r"client version .* is too old") as told:
            asked(engine, tmp_path)
    assert told.value.hint
