"""`fleet run --slurm` on a real Slurm with three nodes of three kinds, verdicts in a real registry on loopback.

The hosts' GPUs and the suite's answers are what the test says (`fleet_worker`); all between is the real thing.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from factories import check, failed_verdict
from fleet_commands import begin, ended, states, verified
from fleet_world import FleetWorld, fleet_world
from registries import docker_registry
from slurm_cluster import MISSING, Cluster, slurm_cluster

pytestmark = [
    pytest.mark.engine,  # docker-registry is installed with the engine
    pytest.mark.skipif(bool(MISSING), reason=f"no {', '.join(MISSING)}: scripts/setup slurm installs it"),
]

NODES = {"n1": "h100,driver-535", "n2": "a100,driver-550", "n3": "t4,driver-545"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with slurm_cluster(tmp_path_factory.mktemp("slurm"), NODES) as running:
        yield running


@pytest.fixture
def world(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetWorld]:
    with docker_registry(tmp_path_factory.mktemp("registry")) as address:
        yield fleet_world(tmp_path / "world", address)


def until(world: FleetWorld, node: str, process: subprocess.Popen[str]) -> None:
    """Wait until the suite was begun on a node."""
    end = time.monotonic() + 60
    while not any(where == node for where, _ in world.runs()):
        assert process.poll() is None, process.communicate()
        if time.monotonic() > end:
            process.kill()
            raise AssertionError(f"nothing runs on {node}: {world.runs()}, {process.communicate()}")
        time.sleep(0.05)


def test_two_environments_on_three_kinds_with_a_node_lost_in_mid_job(world: FleetWorld, cluster: Cluster) -> None:
    """Complete and right: each digest is proven once on each kind, what the lost node had begun is begun again there.

    `verify --on` then says yes for all three kinds. No file of Slurm's or of the run holds the key.
    """
    (world.folder / "hold-n2").touch()
    running = begin(world, cluster.environment, "--slurm")
    until(world, "n2", running)
    cluster.lose("n2")
    cluster.ask("scontrol", "update", "nodename=n2", "state=down", "reason=lost")
    (world.folder / "hold-n2").unlink()
    cluster.start_node("n2")
    cluster.ask("scontrol", "update", "nodename=n2", "state=resume")
    code, document, err = ended(running)
    assert code == 0, (err, document)
    assert set(states(document).values()) == {"passed"}
    assert len(states(document)) == 6
    by_node = world.runs()
    assert [sum(times for (node, _), times in by_node.items() if node == name) for name in NODES] == [2, 3, 2]
    said = verified(world, world.choice.environments[0].id, "--on", "H100/535, A100/550, T4/545")
    assert said.returncode == 0, said.stdout
    assert "T4/545: passed at level gpu" in said.stdout
    assert not world.secrets_in(world.folder)
    assert not world.secrets_in(cluster.folder)
    again, after, _ = ended(begin(world, cluster.environment, "--slurm"))
    assert (again, after["ran"]) == (0, [])
    assert world.runs() == by_node


@pytest.mark.full
def test_what_failed_is_never_run_until_it_passes(world: FleetWorld, cluster: Cluster) -> None:
    """A FAILED is an answer: once on its kind, not again by the next run, and the exit code is that of a failure."""
    name = world.choice.environments[0].id
    world.answer(name, failed_verdict(checks=(check("matmul", "failed", level="gpu"),), level="cpu"))
    code, document, _ = ended(begin(world, cluster.environment, "--slurm"))
    assert code == 1
    assert sorted(states(document).values()) == ["failed"] * 3 + ["passed"] * 3
    before = world.runs()
    assert max(before.values()) == 1
    assert ended(begin(world, cluster.environment, "--slurm"))[0] == 1
    assert world.runs() == before


@pytest.mark.full
def test_a_controller_that_is_killed_goes_on_where_its_jobs_are(world: FleetWorld, cluster: Cluster) -> None:
    """Killed while jobs run, and started twice: jobs that are in the queue are joined, nothing runs a second time."""
    (world.folder / "hold-n1").touch()
    first = begin(world, cluster.environment, "--slurm")
    until(world, "n1", first)
    first.kill()
    first.communicate()
    both = [begin(world, cluster.environment, "--slurm"), begin(world, cluster.environment, "--slurm")]
    threading.Timer(4.0, (world.folder / "hold-n1").unlink).start()
    codes = [ended(one)[0] for one in both]
    assert codes == [0, 0]
    assert max(world.runs().values()) == 1, world.runs()


@pytest.mark.full
def test_slurms_controller_may_restart(world: FleetWorld, cluster: Cluster) -> None:
    """While it is away nobody concludes anything; its jobs go on, and are found again when it is back."""
    (world.folder / "hold-n3").touch()
    running = begin(world, cluster.environment, "--slurm")
    until(world, "n3", running)
    cluster.stop("slurmctld", signal.SIGTERM)  # killed, Slurm itself forgets jobs of the last seconds
    (world.folder / "hold-n3").unlink()
    time.sleep(3)
    cluster.start_controller()
    code, document, err = ended(running)
    assert code == 0, (err, document)
    assert max(world.runs().values()) == 1


@pytest.mark.full
def test_a_node_that_is_not_what_slurm_says_runs_nothing(world: FleetWorld, cluster: Cluster) -> None:
    """Its driver changed since the features were written: no verdict is attached, and the row says why."""
    (world.folder / "host-n1.json").write_bytes((world.folder / "host-n3.json").read_bytes())
    code, document, _ = ended(begin(world, cluster.environment, "--slurm"))
    assert code == 5
    rows = [row for row in document["rows"] if row["kind"] == "H100/535"]
    assert {row["state"] for row in rows} == {"missing"}
    assert all("H100/535 was asked for" in row["error"] for row in rows), rows
    assert not any(node == "n1" for node, _ in world.runs())


def test_a_rehearsal_goes_the_whole_way_and_proves_nothing(world: FleetWorld, cluster: Cluster) -> None:
    """Every kind's driver is played, signed and attached as a rehearsal; `verify --on` says what is missing still."""
    code, document, err = ended(begin(world, cluster.environment, "--slurm", "--rehearse"))
    assert code == 8, err
    assert set(states(document).values()) == {"missing"}
    assert all(row["rehearsed"] and row["left"] and not row["error"] for row in document["rows"]), document["rows"]
    before = world.runs()
    assert ended(begin(world, cluster.environment, "--slurm", "--rehearse"))[0] == 8
    assert world.runs() == before, "a rehearsal is not run twice either"
    said = verified(world, world.choice.environments[0].id, "--on", "H100/535")
    assert said.returncode == 7
    assert "rehearsed with a simulated driver" in said.stdout
