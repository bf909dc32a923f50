"""`fleet run --dask` on a real scheduler with four workers of different kinds, over TLS, verdicts in a real registry.

GPUs, builds and the suite's answers are what the test says (`fleet_worker`); all between is the real thing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dask_cluster import DaskCluster, dask_cluster, start_scheduler
from factories import check, failed_verdict
from fleet_world import KINDS, FleetWorld, fleet_world
from registries import docker_registry

pytestmark = pytest.mark.engine  # docker-registry is installed with the engine

HOSTS = {**KINDS, "n4": KINDS["n2"]}
"""Four workers: an H100, two A100 alike, a T4."""

SECOND = """\
name: second
include:
  - {tensorflow: 2.14.1, flavor: gpu}
  - {tensorflow: 2.15.0, flavor: gpu}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DaskCluster]:
    with dask_cluster(tmp_path / "dask") as running:
        yield running


@pytest.fixture
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with docker_registry(tmp_path_factory.mktemp("registry")) as address:
        yield address


def start_worker(cluster: DaskCluster, world: FleetWorld, name: str) -> None:
    """Become a worker as a user does; the host's facts are those of the world's file."""
    variables = {**world.variables, "WORKER_NAME": name}
    cluster.start(name, "envbuilder", "fleet", "worker", cluster.address, "--name", name, variables=variables)


def begin(world: FleetWorld, cluster: DaskCluster, *words: str) -> subprocess.Popen[str]:
    """Start a run of the fleet as a user does, in the folder of the world."""
    command = (sys.executable, "-m", "envbuilder", "fleet", "run", *world.words, "--dask", cluster.address, *words)
    variables = {**os.environ, **cluster.variables, "HOME": world.variables["HOME"]}
    return subprocess.Popen(
        (*command, "--format", "json"),
        cwd=world.folder,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str], seconds: float = 150) -> tuple[int, dict[str, Any], str]:
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(process.communicate()[1]) from None
    assert out, err
    return process.returncode, json.loads(out), err


def until(world: FleetWorld, process: subprocess.Popen[str], what: str, nodes: tuple[str, ...]) -> str:
    """Wait until something was begun on one of some workers; names it."""
    end = time.monotonic() + 90
    while True:
        found = [node for node, said in world.runs() if node in nodes and said.startswith(what)]
        if found:
            return found[0]
        assert process.poll() is None, process.communicate()
        if time.monotonic() > end:
            process.kill()
            raise AssertionError(f"nothing of {what} on {nodes}: {world.runs()}, {process.communicate()}")
        time.sleep(0.05)


def test_two_matrices_with_workers_killed_in_mid_build_and_in_mid_validation(
    tmp_path: Path, cluster: DaskCluster, registry: str
) -> None:
    """Complete and right: four images, each built once and proven once a kind, but for what the dead had begun.

    Builds go to any worker, proofs to those of their kind; nothing that Dask kept or logged holds the key.
    """
    one = fleet_world(tmp_path / "world", registry, hosts=HOSTS, published=False)
    two = fleet_world(tmp_path / "second", registry, matrix=SECOND, hosts=HOSTS, published=False)
    for path in (*two.folder.glob("verdict-*"), two.folder / "keys" / "envbuilder.pub"):
        place = one.folder / path.relative_to(two.folder)
        if path.parent == two.folder:
            place.write_bytes(path.read_bytes())  # the workers are of one team: one key, all answers
    (two.folder / "keys" / "envbuilder.pub").write_bytes((one.folder / "keys" / "envbuilder.pub").read_bytes())
    for node in HOSTS:
        (one.folder / f"hold-make-{node}").touch()
        start_worker(cluster, one, node)
    runs = [begin(one, cluster, "--build"), begin(two, cluster, "--build")]
    builder = until(one, runs[0], "make-", tuple(HOSTS))
    cluster.kill(builder)
    for node in HOSTS:
        (one.folder / f"hold-make-{node}").unlink()
    (one.folder / "hold-n2").touch()
    (one.folder / "hold-n4").touch()
    start_worker(cluster, one, builder)
    prover = until(one, runs[0], "sha256:", ("n2", "n4"))
    cluster.kill(prover)
    for node in ("n2", "n4"):
        (one.folder / f"hold-{node}").unlink()
    for run in runs:
        code, document, err = ended(run)
        assert code == 0, (err, document)
        assert len(document["rows"]) == 6
        assert {row["state"] for row in document["rows"]} == {"passed"}
    seen = one.runs()
    made = {
        said: sum(times for (_, what), times in seen.items() if what == said) for _, said in seen if "make-" in said
    }
    assert sorted(made.values()) == [1, 1, 1, 2], made
    proofs = {key: times for key, times in seen.items() if key[1].startswith("sha256:")}
    assert sum(proofs.values()) == 13, proofs
    for node, kinds in (("n1", 4), ("n3", 4)):
        assert sum(times for (where, _), times in proofs.items() if where == node) == kinds
    again = begin(one, cluster)
    assert ended(again)[:2][0] == 0
    assert one.runs() == seen
    assert not one.secrets_in(tmp_path / "dask")
    assert not [path for path in one.secrets_in(one.folder) if "keys" not in path.parts]


def test_what_failed_is_never_run_until_it_passes(tmp_path: Path, cluster: DaskCluster, registry: str) -> None:
    """A FAILED is an answer, on whichever worker; the exit code is that of a failure, and no log asks for the key."""
    world = fleet_world(tmp_path / "world", registry, hosts=HOSTS)
    name = world.choice.environments[0].id
    world.answer(name, failed_verdict(checks=(check("matmul", "failed", level="gpu"),), level="cpu"))
    for node in HOSTS:
        start_worker(cluster, world, node)
    code, document, err = ended(begin(world, cluster))
    assert code == 1, (err, document)
    assert max(world.runs().values()) == 1
    before = world.runs()
    assert ended(begin(world, cluster))[0] == 1
    assert world.runs() == before


@pytest.mark.full
def test_a_scheduler_that_restarts_and_two_controllers(tmp_path: Path, cluster: DaskCluster, registry: str) -> None:
    """Two runs of the same share their tasks; a scheduler that is killed and comes back is gone on with."""
    world = fleet_world(tmp_path / "world", registry, hosts=HOSTS)
    (world.folder / "hold-n1").touch()
    for node in HOSTS:
        start_worker(cluster, world, node)
    runs = [begin(world, cluster), begin(world, cluster)]
    until(world, runs[0], "sha256:", ("n1",))
    cluster.kill("scheduler")
    (world.folder / "hold-n1").unlink()
    for name in HOSTS:
        cluster.kill(name)  # a worker ends by itself some time after its scheduler
    start_scheduler(cluster)
    for name in HOSTS:
        start_worker(cluster, world, name)
    for run in runs:
        code, document, err = ended(run)
        assert code == 0, (err, document)
    counted = world.runs()
    assert {node for node, _ in counted} <= set(HOSTS)
    assert 6 <= sum(counted.values()) <= 6 + len(HOSTS), "what each worker was at when it was killed, and no more"
