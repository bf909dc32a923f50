"""A container that takes all it can of processes, files, space, memory, output: it ends, and the host is clean."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tiny_image import PROGRAMS, write_tiny_root

from envbuilder.engine.docker import DockerEngine, connect
from envbuilder.engine.port import ContainerResult, ContainerSpec

pytestmark = pytest.mark.engine

MEMORY = 96 << 20
"""Of these containers, in bytes; half of it is scratch space."""
LIMIT_S = 6.0
"""How long one may take."""
WITHIN_S = 30.0
"""Within which the engine is done with it, whatever it did."""


@dataclass(frozen=True)
class Greed:
    """What a container does (a line of shell), how it ends, and what it has said by then.

    ``codes`` are the exit codes that are right where it is neither its ``limit`` that ends it nor its ``memory``.
    """

    name: str
    line: str
    codes: tuple[int, ...] = ()
    says: str = ""
    limit: bool = False
    memory: bool = False
    spec: dict[str, Any] = field(default_factory=dict)
    fast: bool = False


TAKE = "dd if=/dev/zero of=/dev/null bs=%dM count=1"
GREEDY = (
    Greed(
        "a fork bomb",
        "bomb() { bomb | bomb & }; bomb; echo up; sleep 30",
        limit=True,
        says="fork",
        spec={"memory": 1 << 30},
        fast=True,
    ),
    Greed(
        "a fork bomb in a container of few processes",
        "bomb() { bomb | bomb & }; bomb; sleep 30",
        limit=True,
        says="fork",
        spec={"pids": 16},
    ),
    Greed(
        "processes that are never waited for",
        "i=0; while [ $i -lt 3000 ]; do sleep 30 & i=$((i+1)); done; echo all",
        codes=(2, 254, 255),
        says="fork",
        spec={"pids": 64},
    ),
    Greed(
        "children that ignore every signal",
        "trap '' TERM INT HUP; for n in 1 2 3; do (trap '' TERM; sleep 60) & done; wait",
        limit=True,
    ),
    Greed(
        "scratch space is full",
        "dd if=/dev/zero of=/tmp/f bs=1M count=500; echo $?; echo x >/tmp/g && cat /tmp/g || echo no room",
        codes=(0,),
        says="No space left",
        fast=True,
    ),
    Greed(
        "scratch space has no inodes left",
        "i=0; while : >/tmp/f$i; do i=$((i+1)); done; echo $i files",
        codes=(0, 2),
        says="No space left",
        fast=True,
    ),
    Greed("shared memory is full", "dd if=/dev/zero of=/dev/shm/f bs=1M count=500", codes=(1,), says="No space left"),
    Greed("a file of holes", "dd if=/dev/zero of=/tmp/f bs=1 count=1 seek=200G", codes=(1, 153, 137, 0)),
    Greed(
        "descriptors run out",
        "ulimit -n 3; : </dev/null; echo opened",
        codes=(2,),
        says="Too many open files",
        fast=True,
    ),
    Greed(
        "descriptors of the container's own limit run out",
        "cat /proc/self/limits; ulimit -n 99999 && echo raised",
        codes=(2, 1),
        says="16384",
    ),
    Greed("memory just below the limit", TAKE % (MEMORY // 2 >> 20), codes=(0,), says="copied", fast=True),
    Greed("memory just above the limit", TAKE % (MEMORY + (8 << 20) >> 20), memory=True, fast=True),
    Greed(
        "a child takes the memory, and the first program goes on",
        f"{TAKE % (2 * MEMORY >> 20)}; echo lived; exit 7",
        memory=True,
        says="lived",
    ),
    Greed(
        "memory by scratch space and by a program",
        f"dd if=/dev/zero of=/tmp/f bs=1M count=44; {TAKE % 80}; echo $?",
        memory=True,
    ),
    Greed("a loop on every processor", "for n in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; wait", limit=True),
    Greed("output without end", "while :; do echo yes; done", codes=(137,), spec={"lines": 20_000}),
    Greed(
        "output without a line's end",
        "while :; do printf xxxxxxxxxxxxxxxx; done",
        codes=(137,),
        spec={"output": 1 << 16},
    ),
    Greed("standard output closed, and it goes on", "exec >&- 2>&-; while :; do :; done", limit=True),
    Greed("its own input is never read", "sleep 2; exit 3", codes=(3,), spec={"stdin": b"x" * (8 << 20)}),
    Greed("it stops itself", "kill -STOP -1; sleep 30", limit=True),
    Greed("it signals everybody", "sleep 30 & kill -KILL -1; echo alive; exit 4", codes=(4,), says="alive"),
    Greed("the root cannot be written", "echo x >/x", codes=(2,), says="Read-only"),
)


@pytest.fixture(scope="module")
def engine() -> DockerEngine:
    return connect()


@pytest.fixture(scope="module")
def image(engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    tag = f"scratch-greed-{uuid4().hex[:8]}:base"
    tar = tmp_path_factory.mktemp("base") / "base.tar"
    write_tiny_root(tar, (*PROGRAMS, "mkdir"))
    engine.import_base(tar, tag, {})
    yield tag
    engine.remove(tag)


def processes(mark: str) -> int:
    """Count the processes of this host that began with this in their environment."""
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
    spec = ContainerSpec(image, ("/bin/sh", "-c", greed.line), files={"a": b"1"}, **given)
    return engine.run(spec, said.extend, said.extend), said.decode(errors="replace")


@pytest.mark.parametrize(
    "greed", [pytest.param(one, id=one.name, marks=() if one.fast else pytest.mark.full) for one in GREEDY]
)
def test_greedy_container_ends_in_time_and_leaves_nothing(engine: DockerEngine, image: str, greed: Greed) -> None:
    mark, began = uuid4().hex, time.monotonic()
    ended, said = run(engine, image, greed, mark)
    assert time.monotonic() - began < WITHIN_S
    assert (ended.timed_out, ended.out_of_memory) == (greed.limit, greed.memory), (ended, said[-500:])
    assert greed.limit or greed.memory or ended.exit_code in greed.codes, (ended, said[-500:])
    assert ended.flooded == ("lines" in greed.spec or "output" in greed.spec)
    assert greed.says in said, said[-500:]
    assert mine(engine) == []
    until = time.monotonic() + 5
    while processes(mark) and time.monotonic() < until:
        time.sleep(0.1)
    assert processes(mark) == 0, "processes were left"
    again, _ = run(engine, image, Greed("", "exit 0"), mark)
    assert again.exit_code == 0


def test_a_running_process_of_a_container_is_found(engine: DockerEngine, image: str) -> None:
    mark = uuid4().hex
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run, engine, image, Greed("", "sleep 3"), mark)
        until = time.monotonic() + WITHIN_S
        while not (seen := processes(mark)) and not running.done() and time.monotonic() < until:
            time.sleep(0.05)
        running.result()
    assert seen > 0
