"""`fleet run --dask` with a broken worker, scheduler or address: it names the fault meanwhile and at the end.

Real Dask, TLS, registry and command line; only GPUs and the suite's answers come from the test (`fleet_worker`).
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dask_cluster import DaskCluster, dask_cluster
from fleet_commands import begin, command, ended, start_worker, states, until
from fleet_world import KINDS, FleetWorld, fleet_world
from registries import docker_registry

pytestmark = pytest.mark.engine  # docker-registry is installed with the engine

HOSTS = {**KINDS, "n4": KINDS["n2"]}
"""Four workers: an H100, two A100 alike, a T4."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DaskCluster]:
    with dask_cluster(tmp_path / "dask") as running:
        yield running


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FleetWorld]:
    with docker_registry(tmp_path / "registry") as address:
        yield fleet_world(tmp_path / "world", address, hosts=HOSTS)


def wait_for_workers(cluster: DaskCluster, *names: str) -> None:
    """Wait until the workers have passed their checks and are connected."""
    end = time.monotonic() + 60
    for name in names:
        while "Registered to" not in (cluster.folder / f"{name}.log").read_text():
            assert time.monotonic() < end, (cluster.folder / f"{name}.log").read_text()
            time.sleep(0.1)


def test_a_worker_is_refused_when_it_starts(cluster: DaskCluster, world: FleetWorld) -> None:
    """Without an engine, without a key, with an address that anybody may listen to."""
    (world.folder / "broken-n1").touch()
    start_worker(cluster, world, "n1")
    start_worker(cluster, world, "n2", TF_ENVBUILDER_SIGNING_KEY="")
    start_worker(cluster, world, "n3", TF_ENVBUILDER_SIGNING_KEY="/nowhere/envbuilder.key")
    for name, code, text in (
        ("n1", 5, "no container engine answers"),
        ("n2", 2, "no signing key"),
        ("n3", 2, "/nowhere/envbuilder.key"),
    ):
        assert cluster.processes.pop(name).wait(60) == code
        assert text in (cluster.folder / f"{name}.log").read_text()
    refused = command(world, "fleet", "worker", "tcp://192.0.2.1:8786")
    assert (refused.returncode, "no TLS" in refused.stderr) == (2, True)


def test_a_broken_worker_gets_no_job_and_a_class_without_workers_is_named(
    cluster: DaskCluster, world: FleetWorld
) -> None:
    """The engine of n2 ends after its start, the clock of n4 is wrong, nobody is of n3's class."""
    for name in ("n1", "n2", "n4"):
        start_worker(cluster, world, name)
    wait_for_workers(cluster, "n1", "n2", "n4")
    (world.folder / "broken-n2").touch()
    (world.folder / "clock-n4").write_text(str(200 * 86400))
    code, document, err = ended(begin(world, cluster, "--timeout", "12s"))
    assert code == 5, err
    rows = {row["kind"]: row for row in document["rows"]}
    assert {name: row["state"] for name, row in rows.items()} == {
        "H100/535": "passed",
        "A100/550.54.15": "missing",
        "T4/545": "missing",
    }
    assert {node for node, _ in world.runs()} == {"n1"}
    assert len(document["ran"]) == 2
    assert err.count("n2 is not used: no container engine answers (next: start it)") == 1
    assert err.count("n4 is not used: this host's clock differs by 17280") == 1
    assert "no usable worker of host class A100/550.54.15: " in rows["A100/550.54.15"]["error"]
    assert "no worker of host class T4/545; there are: 2 of A100/550.54.15, 1 of H100/535.104.05; 2 jobs wait" in err
    assert "for H100/535: started on n1" in err
    assert " for H100/535 on n1: validating " in err


@pytest.mark.full
def test_a_job_that_kills_its_workers_is_started_four_times_and_names_them(
    cluster: DaskCluster, world: FleetWorld
) -> None:
    """Dask's own count does not multiply ours; the other classes go on."""
    for name in HOSTS:
        start_worker(cluster, world, name)
    for name in ("n2", "n4"):
        (world.folder / f"kill-{name}").touch()
    environment = world.choice.environments[0].id
    code, document, err = ended(begin(world, cluster, "-s", environment))
    assert code == 5, err
    killed = {node: sum(times for (where, _), times in world.runs().items() if where == node) for node in HOSTS}
    assert killed == {"n1": 1, "n2": 2, "n3": 1, "n4": 2}
    (row,) = (row for row in document["rows"] if row["state"] != "passed")
    assert row["error"].startswith("4 workers died while they ran it (n")
    assert sorted(row["error"].partition("(")[2].strip(")").split(", ")) == ["n2", "n2", "n4", "n4"]
    assert err.count(": the worker died") == 4
    assert ", attempt 4 of 4" in err


@pytest.mark.full
def test_a_scheduler_that_does_not_come_back_ends_with_a_table_of_what_is_known(
    cluster: DaskCluster, world: FleetWorld
) -> None:
    (world.folder / "hold-n1").touch()
    start_worker(cluster, world, "n1")
    start_worker(cluster, world, "n3")
    running = begin(world, cluster, "--timeout", "20s")
    until(world, "sha256:", ("n1",), running)
    until(world, "sha256:", ("n3",), running)
    cluster.kill("scheduler")
    code, document, err = ended(running)
    assert code == 5, err
    assert len(document["rows"]) == 6
    assert "does not answer" in err
    assert any("does not answer" in row["error"] for row in document["rows"])
    assert "Traceback" not in err
    assert set(states(document).values()) <= {"passed", "missing"}


def test_a_wrong_address_ends_at_once_without_a_traceback(world: FleetWorld) -> None:
    """Dask's own client waits for a minute at a port that is silent."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for address, code, text in (
            ("tls://bla", 2, "is not the address of a scheduler"),
            (f"tcp://127.0.0.1:{silent.getsockname()[1]}", 5, "does not answer"),
        ):
            begun = time.monotonic()
            refused = command(world, "fleet", "run", *world.words, "--dask", address)
            assert (refused.returncode, text in refused.stderr) == (code, True), refused.stderr
            assert "Traceback" not in refused.stderr
            assert time.monotonic() - begun < 20, "5 s, on a busy machine"
