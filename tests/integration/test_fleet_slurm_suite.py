"""`fleet run --slurm --rehearse` with the whole suite: real Slurm, images, containers, drivers simulated, a node lost.

Nothing of envbuilder is replaced here, neither on the nodes nor at the controller.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fleet_commands import begin, ended, states, verified
from fleet_world import FleetWorld, fleet_world
from registries import docker_registry
from slurm_cluster import MISSING, slurm_cluster

from envbuilder.engine.docker import connect

pytestmark = [
    pytest.mark.engine,
    pytest.mark.full,
    pytest.mark.skipif(bool(MISSING), reason=f"no {', '.join(MISSING)}: scripts/setup slurm installs it"),
]

CPU = "tf2.20.0-py311-cpu-bookworm"
GPU = ("tf2.20.0-py311-cu12.5-cudnn9.3-bookworm", "tf2.21.0-py311-cu12.5-cudnn9.3-bookworm")
NODES = {"n1": "h100,driver-570", "n2": "a100,driver-550", "n3": "t4,driver-580"}
FLEET = """\
- {name: hopper, driver: '570', gpus: [H100], constraint: h100&driver-570}
- {name: ampere, driver: 550.54.15, gpus: [A100], constraint: a100&driver-550}
- {name: turing, driver: '580', gpus: [T4], constraint: t4&driver-580}
"""
KINDS = ("H100/570", "A100/550.54.15", "T4/580")
MATRIX = """\
name: proof
include:
  - {tensorflow: 2.20.0, flavor: cpu, python: '3.11', os: debian-bookworm}
  - {tensorflow: 2.20.0, flavor: gpu, python: '3.11', os: debian-bookworm}
  - {tensorflow: 2.21.0, flavor: gpu, python: '3.11', os: debian-bookworm}
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FleetWorld]:
    """Give the images of this host to a registry on loopback, and its nodes turns: it has two cores, they have one."""
    engine = connect()
    images = {name: engine.image(f"envbuilder/tensorflow:{name}") for name in (CPU, *GPU)}
    lacking = [name for name, image in images.items() if image is None]
    if lacking:
        pytest.skip(f"not built here: envbuilder run tensorflow --select ID, for {', '.join(lacking)}")
    tags = []
    with docker_registry(tmp_path / "registry") as address:
        world = fleet_world(tmp_path / "world", address, matrix=MATRIX, published=False)
        (world.folder / "fleet.yaml").write_text(FLEET)
        program = world.folder / "bin" / "envbuilder"
        turn = f'echo "$SLURMD_NODENAME" >>{tmp_path}/turns; exec {sys.executable} -m envbuilder "$@"'
        program.write_text(f"#!/bin/sh\nexec flock {tmp_path}/turn sh -c '{turn}' sh \"$@\"\n")
        try:
            for name, image in images.items():
                assert image is not None
                tags.append(f"{world.to.name}:{name}")
                engine.tag(image.id, tags[-1])
                tags.append(f"{world.to.name}@{engine.push(tags[-1])}")
            yield world
        finally:
            for tag in tags:
                engine.remove(tag)


def wait(holds: Callable[[], bool], running: subprocess.Popen[str], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.2)


def test_the_whole_suite_on_three_kinds_with_a_node_killed_in_mid_job(world: FleetWorld, tmp_path: Path) -> None:
    """Every GPU image is rehearsed on every kind, and proven on none; the CPU image is proven, really.

    The node that is killed takes its suite with it, and that is run again. `verify --on` says of each kind that it was
    rehearsed, which proves nothing, and accepts the CPU image up to the level that it has reached.
    """
    turns = tmp_path / "turns"
    with slurm_cluster(tmp_path / "slurm", NODES) as cluster:
        running = begin(world, cluster.environment, "--slurm", "--rehearse")
        images = {image.id for name in GPU if (image := connect().image(f"envbuilder/tensorflow:{name}"))}

        def is_on_n2() -> bool:
            return turns.exists() and turns.read_text().split()[-1:] == ["n2"] and bool(_containers(images))

        wait(is_on_n2, running, 600)
        cluster.lose("n2")
        assert _containers(images), "what ran there runs on without its node"
        cluster.ask("scontrol", "update", "nodename=n2", "state=down", "reason=lost")
        cluster.start_node("n2")
        cluster.ask("scontrol", "update", "nodename=n2", "state=resume")
        code, document, err = ended(running, 1800)
        assert code == 8, (err, [row["error"] for row in document["rows"]])
        assert states(document) == {
            (CPU, "any host"): "passed",
            **{(name, kind): "missing" for name in GPU for kind in KINDS},
        }
        rehearsed = [row for row in document["rows"] if row["environment"] != CPU]
        assert all(row["rehearsed"] and row["left"] and not row["error"] for row in rehearsed), rehearsed
        assert len(turns.read_text().split()) == 8, "seven tasks, of which one was begun twice"
        assert turns.read_text().split().count("n2") >= 3
        assert not _containers(images), "what the lost node left behind is gone"
        said = verified(world, CPU)
        assert (said.returncode, "PASSED at level cpu" in said.stdout) == (0, True), said.stdout
        said = verified(world, CPU, "--on", KINDS[0])
        assert said.returncode == 7
        assert "validated up to cpu; gpu is demanded" in said.stdout
        for name in GPU:
            assert verified(world, name).returncode == 7, "nothing that was rehearsed is a verdict"
            said = verified(world, name, "--on", ", ".join(KINDS))
            assert said.returncode == 7
            assert said.stdout.count("rehearsed with a simulated driver, which proves nothing") == len(KINDS)
        assert not world.secrets_in(tmp_path / "world")
        assert not world.secrets_in(cluster.folder)
        assert not world.secrets_in(tmp_path / "registry")
        again, after, _ = ended(begin(world, cluster.environment, "--slurm", "--rehearse"), 120)
        assert (again, after["ran"]) == (8, [])


def _containers(images: set[str]) -> list[str]:
    """Name the containers of our images that run now."""
    words = ["docker", "ps", "--no-trunc", "--format", "{{.ID}} {{.Image}}"]
    listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split("\n")
    return [line.split()[0] for line in listed if line and (line.split()[1] in images or "/team/image" in line)]
