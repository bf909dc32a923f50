"""`fleet run --kubernetes` by the real kubectl: Jobs held to the published schemas, pods as processes of this machine.

The hosts' GPUs and the suite's answers are what the test says (`fleet_worker`); the API is a small one of the tests'
own (`small_kubernetes`), the registry is real, and so is what runs in the judge's container.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from factories import check, failed_verdict
from fleet_commands import begin, ended, states, verified
from fleet_world import FleetWorld, fleet_world
from registries import docker_registry
from small_kubernetes import Cluster, small_kubernetes

pytestmark = [
    pytest.mark.engine,  # docker-registry is installed with the engine
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl here"),
]

ARCH = {"kubernetes.io/arch": "amd64"}
NODES = {"n1": {"gpu": "h100", **ARCH}, "n2": {"gpu": "a100", **ARCH}, "n3": {"gpu": "t4", **ARCH}}
RUN = ("--kubernetes", "--runner", "registry.example.org/ml/envbuilder:1")


@dataclass
class Judge:
    """A pod whose judge is a process of this machine; its folder is what the pod's volumes are."""

    process: subprocess.Popen[bytes]
    log: Path

    def ended(self) -> int | None:
        return self.process.poll()

    def said(self) -> str:
        return self.log.read_text()

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@dataclass
class Nodes:
    """The kubelets: each runs the very command of the judge's container, its mounts put where they are."""

    world: FleetWorld
    folder: Path
    count: int = 0

    def __call__(self, node: str, spec: Mapping[str, Any], maps: Mapping[str, Mapping[str, str]]) -> Judge:
        self.count += 1
        place = self.folder / f"pod-{self.count}"
        (judge,) = (one for one in spec["containers"] if one["name"] == "judge")
        (order,) = (one["configMap"]["name"] for one in spec["volumes"] if "configMap" in one)
        mounts = {"/key": self.world.folder / "keys"}
        for at in ("/exchange", "/order", "/work"):
            mounts[at] = place / at.strip("/")
            mounts[at].mkdir(parents=True)
        for name, content in maps[order].items():
            (mounts["/order"] / name).write_text(content)

        def there(text: str) -> str:
            at = next((at for at in mounts if text == at or text.startswith(f"{at}/")), "")
            return text.replace(at, str(mounts[at]), 1) if at else text

        variables = {one["name"]: there(one["value"]) for one in judge["env"]}
        environment = {"PATH": self.world.variables["PATH"], "WORKER_NAME": node, **variables}
        log = place / "log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [there(word) for word in judge["command"]],
                cwd=mounts[judge["workingDir"]],
                env=environment,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
        return Judge(process, log)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FleetWorld]:
    with docker_registry(tmp_path / "registry") as address:
        yield fleet_world(tmp_path / "world", address)


@pytest.fixture
def cluster(world: FleetWorld, tmp_path: Path) -> Iterator[tuple[Cluster, dict[str, str]]]:
    with small_kubernetes(tmp_path / "cluster", NODES, Nodes(world, tmp_path / "pods")) as running:
        yield running


def until(world: FleetWorld, node: str, process: subprocess.Popen[str]) -> None:
    """Wait until the suite was begun on a node."""
    end = time.monotonic() + 90
    while not any(where == node for where, _ in world.runs()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, world.runs()
        time.sleep(0.05)


def test_two_environments_on_three_kinds_with_a_node_lost_in_mid_job(
    world: FleetWorld, cluster: tuple[Cluster, dict[str, str]], tmp_path: Path
) -> None:
    """Complete and right: each digest proven once on each kind, what the lost node had begun is begun again there.

    `verify --on` says yes. Nothing that the cluster was sent, nor any log, holds the key; no ConfigMap is left behind.
    """
    kubernetes, variables = cluster
    (world.folder / "hold-n2").touch()
    running = begin(world, variables, *RUN)
    until(world, "n2", running)
    kubernetes.lose("n2")
    (world.folder / "hold-n2").unlink()
    code, document, err = ended(running)
    assert code == 0, (err, document)
    assert set(states(document).values()) == {"passed"}
    by_node = world.runs()
    assert [sum(times for (node, _), times in by_node.items() if node == name) for name in NODES] == [2, 3, 2]
    said = verified(world, world.choice.environments[0].id, "--on", "H100/535, A100/550, T4/545")
    assert said.returncode == 0, said.stdout
    core = max((world.folder / "keys" / "envbuilder.key").read_text().splitlines(), key=len)
    assert core not in json.dumps([[str(key), one] for key, one in kubernetes.objects.items()])
    assert not world.secrets_in(tmp_path)
    assert {kind for kind, _ in kubernetes.objects} == {"jobs", "pods"}
    again, after, _ = ended(begin(world, variables, *RUN))
    assert (again, after["ran"], world.runs()) == (0, [], by_node)


@pytest.mark.full
def test_what_failed_is_never_run_until_it_passes(world: FleetWorld, cluster: tuple[Cluster, dict[str, str]]) -> None:
    """A FAILED is an answer: the Job ends with it at once, and neither cluster nor controller begins it again."""
    name = world.choice.environments[0].id
    world.answer(name, failed_verdict(checks=(check("matmul", "failed", level="gpu"),), level="cpu"))
    code, document, _ = ended(begin(world, cluster[1], *RUN))
    assert code == 1
    assert sorted(states(document).values()) == ["failed"] * 3 + ["passed"] * 3
    assert max(cluster[0].begun.values()) == 1
    before = world.runs()
    assert ended(begin(world, cluster[1], *RUN))[0] == 1
    assert world.runs() == before


@pytest.mark.full
def test_killed_and_started_twice_while_the_api_is_away(
    world: FleetWorld, cluster: tuple[Cluster, dict[str, str]]
) -> None:
    """Jobs that are under way are joined; while the API is away nobody concludes anything, and nothing runs twice."""
    kubernetes, variables = cluster
    (world.folder / "hold-n1").touch()
    first = begin(world, variables, *RUN)
    until(world, "n1", first)
    first.kill()
    first.communicate()
    held = [name for (kind, name) in kubernetes.objects if kind == "jobs" and "h100" in name]
    before = sum(kubernetes.asked[name] for name in held)
    both = [begin(world, variables, *RUN) for _ in range(2)]
    end = time.monotonic() + 90
    while sum(kubernetes.asked[name] for name in held) < before + 2 * len(held):  # each has joined them
        assert time.monotonic() < end, kubernetes.asked
        time.sleep(0.1)
    kubernetes.away = True
    (world.folder / "hold-n1").unlink()
    threading.Timer(6.0, setattr, (kubernetes, "away", False)).start()
    ends = [ended(one) for one in both]
    assert [code for code, _, _ in ends] == [0, 0], ends
    assert max(world.runs().values()) == 1, world.runs()


@pytest.mark.full
def test_a_pod_that_is_not_of_its_kind_proves_nothing(
    world: FleetWorld, cluster: tuple[Cluster, dict[str, str]]
) -> None:
    """A label that lies leads to an error, begun again a bounded number of times, and to no verdict."""
    (world.folder / "host-n1.json").write_bytes((world.folder / "host-n3.json").read_bytes())
    code, document, _ = ended(begin(world, cluster[1], *RUN), 300)
    rows = [row for row in document["rows"] if row["kind"] == "H100/535"]
    assert (code, {row["state"] for row in rows}) == (5, {"missing"})
    assert all("H100/535 was asked for" in row["error"] for row in rows), rows


@pytest.mark.full
def test_what_a_cluster_refuses_is_said_and_not_asked_again(
    world: FleetWorld, cluster: tuple[Cluster, dict[str, str]]
) -> None:
    """No right to create Jobs: each row says so in the cluster's words, at once."""
    cluster[0].refuses = "jobs.batch is forbidden: User cannot create"
    code, document, _ = ended(begin(world, cluster[1], *RUN))
    assert code == 2
    assert all("is forbidden" in row["error"] for row in document["rows"]), document["rows"]
