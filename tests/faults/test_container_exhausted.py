"""A container that takes all it can of processes, files, space, memory, output: it ends, and the host is clean."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from tiny_image import PROGRAMS, write_tiny_root
from waiting import wait_for

from envbuilder.engine.docker import DockerEngine
from envbuilder.engine.port import ContainerResult, ContainerSpec
from envbuilder.support.yaml_reader import read_yaml

pytestmark = pytest.mark.engine

MEMORY = 96 << 20
"""Of these containers, in bytes; half of it is scratch space."""
LIMIT_S = 6.0
"""How long one may take."""
WITHIN_S = 30.0
"""Within which the engine is done with it, whatever it did."""


class Greed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of greedy.yaml; its first lines explain the fields."""

    name: str
    line: str
    codes: tuple[int, ...] = ()
    says: str = ""
    limit: bool = False
    memory: bool = False
    spec: dict[str, int] = {}
    fast: bool = False


GREEDY = read_yaml(Path(__file__).with_name("greedy.yaml"), tuple[Greed, ...])


@pytest.fixture(scope="module")
def image(engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    tag = f"scratch-greed-{uuid4().hex[:8]}:base"
    tar = tmp_path_factory.mktemp("base") / "base.tar"
    write_tiny_root(tar, (*PROGRAMS, "mkdir"))
    engine.import_base(tar, tag, {})
    yield tag
    engine.remove(tag)


def processes(mark: str) -> int:
    number = 0
    for one in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # gone meanwhile
            number += f"GREED={mark}".encode() in one.read_bytes().split(b"\0")
    return number


def mine(engine: DockerEngine) -> list[Any]:
    label = {"label": [f"org.envbuilder.run={os.getpid()}"]}
    volumes: Any = engine._api.volumes(filters=label)
    return [*engine._api.containers(all=True, filters=label), *(volumes["Volumes"] or ())]


def run(engine: DockerEngine, image: str, greed: Greed, mark: str) -> tuple[ContainerResult, str]:
    """Run it, with a file of its own, so that it has a volume too, and with this in its environment."""
    said = bytearray()
    given: dict[str, Any] = {"memory": MEMORY, "time_limit": LIMIT_S, "pids": 256, "env": {"GREED": mark}, **greed.spec}
    given["stdin"] = b"x" * greed.spec.get("stdin", 0)
    spec = ContainerSpec(image, ("/bin/sh", "-c", greed.line), files={"a": b"1"}, **given)
    return engine.run(spec, said.extend, said.extend), said.decode(errors="replace")


@pytest.mark.parametrize(
    "greed", [pytest.param(one, id=one.name, marks=() if one.fast else pytest.mark.full) for one in GREEDY]
)
def test_greedy_container_ends_in_time_and_leaves_nothing(engine: DockerEngine, image: str, greed: Greed) -> None:
    mark, began = uuid4().hex, time.monotonic()
    ended, said = run(engine, image, greed, mark)
    assert time.monotonic() - began < WITHIN_S
    ends = (ended.timed_out, ended.out_of_memory)
    assert ends == (greed.limit, greed.memory) if any(ends) else ended.exit_code in greed.codes, (ended, said[-500:])
    assert ended.flooded == ("lines" in greed.spec or "output" in greed.spec)
    assert greed.says in said, said[-500:]
    assert mine(engine) == []
    wait_for(lambda: not processes(mark), 5, lambda: "processes were left")
    again, _ = run(engine, image, Greed("", "exit 0"), mark)
    assert again.exit_code == 0


def test_running_process_of_a_container_is_found(engine: DockerEngine, image: str) -> None:
    mark = uuid4().hex
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run, engine, image, Greed("", "sleep 3"), mark)
        wait_for(lambda: processes(mark), WITHIN_S)
        running.result()
