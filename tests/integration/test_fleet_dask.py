"""`fleet run --dask` with a real scheduler, TLS, workers of three host classes and a real registry.

Only the hosts' GPUs, builds and the suite's answers come from the test (`fleet_worker`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from dask_cluster import DaskCluster, dask_cluster, start_scheduler
from factories import check, failed_verdict
from fleet_commands import begin, ended, start, start_worker, states, until
from fleet_world import KINDS, fleet_world
from registries import docker_registry, free_port

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


def test_two_matrices_are_complete_after_workers_were_killed_in_a_build_and_a_validation(
    tmp_path: Path, cluster: DaskCluster, registry: str
) -> None:
    """Four images, each built once and validated once on each host class, except for the killed jobs.

    Nothing that Dask stored or logged holds the key.
    """
    one = fleet_world(tmp_path / "world", registry, hosts=HOSTS, published=False)
    two = fleet_world(tmp_path / "second", registry, matrix=SECOND, hosts=HOSTS, published=False)
    for path in (*two.folder.glob("verdict-*"), two.folder / "keys" / "envbuilder.pub"):
        place = one.folder / path.relative_to(two.folder)
        if path.parent == two.folder:
            place.write_bytes(path.read_bytes())  # the workers belong to one team: one key, all answers
    (two.folder / "keys" / "envbuilder.pub").write_bytes((one.folder / "keys" / "envbuilder.pub").read_bytes())
    for node in HOSTS:
        (one.folder / f"hold-make-{node}").touch()
        start_worker(cluster, one, node)
    runs = [begin(one, cluster, "--build"), begin(two, cluster, "--build")]
    builder = until(one, "make-", tuple(HOSTS), runs[0])
    cluster.kill(builder)
    for node in HOSTS:
        (one.folder / f"hold-make-{node}").unlink()
    (one.folder / "hold-n2").touch()
    (one.folder / "hold-n4").touch()
    start_worker(cluster, one, builder)
    prover = until(one, "sha256:", ("n2", "n4"), runs[0])
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


def test_a_failure_is_not_repeated(tmp_path: Path, cluster: DaskCluster, registry: str) -> None:
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
def test_two_controllers_go_on_after_the_scheduler_restarted(
    tmp_path: Path, cluster: DaskCluster, registry: str
) -> None:
    world = fleet_world(tmp_path / "world", registry, hosts=HOSTS)
    (world.folder / "hold-n1").touch()
    for node in HOSTS:
        start_worker(cluster, world, node)
    runs = [begin(world, cluster), begin(world, cluster)]
    until(world, "sha256:", ("n1",), runs[0])
    cluster.kill("scheduler")
    (world.folder / "hold-n1").unlink()
    for name in HOSTS:
        cluster.kill(name)  # a worker ends some time after its scheduler
    start_scheduler(cluster)
    for name in HOSTS:
        start_worker(cluster, world, name)
    for run in runs:
        code, document, err = ended(run)
        assert code == 0, (err, document)
    counted = world.runs()
    assert {node for node, _ in counted} <= set(HOSTS)
    assert 6 <= sum(counted.values()) <= 6 + len(HOSTS), "only the killed jobs ran twice"


def test_a_registry_that_is_away_loses_no_verdict(tmp_path: Path, cluster: DaskCluster) -> None:
    """Verdicts are attached when it is back. No suite runs twice: that would repeat it until it passes."""
    port, folder = free_port(), tmp_path / "registry"
    with ExitStack() as up:
        world = fleet_world(tmp_path / "world", up.enter_context(docker_registry(folder, port=port)))
        for node in KINDS:
            (world.folder / f"hold-{node}").touch()
            start_worker(cluster, world, node)
        running = begin(world, cluster)
        for node in KINDS:
            until(world, "sha256:", (node,), running)
        up.close()
        for node in KINDS:
            (world.folder / f"hold-{node}").unlink()
        time.sleep(6)
        up.enter_context(docker_registry(folder, port=port))
        code, document, err = ended(running, 200)
        assert (code, set(states(document).values())) == (0, {"passed"}), err
        assert sorted(world.runs().values()) == [1] * 6, world.runs()


def test_a_local_worker_builds_and_validates_only_for_its_own_host(tmp_path: Path, registry: str) -> None:
    world = fleet_world(tmp_path / "world", registry, published=False)
    program = (str(world.folder / "bin" / "envbuilder"),)
    variables = {**world.variables, "WORKER_NAME": "n2"}
    run = start(world, "--dask", "local", "--build", variables=variables, program=program)
    code, document, err = ended(run)
    assert code == 8, err
    found = states(document)
    assert {state for (_, name), state in found.items() if name == "A100/550.54.15"} == {"passed"}
    assert {state for (_, name), state in found.items() if name != "A100/550.54.15"} == {"missing"}
    assert {node for node, _ in world.runs()} == {"n2"}
    assert sum(world.runs().values()) == 4, "two builds and two validations"
