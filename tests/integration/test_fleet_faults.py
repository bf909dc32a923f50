"""What goes wrong around a fleet's run on a real Slurm: a registry away, full disks, slow hosts, logins to keep.

The hosts' GPUs and the suite's answers are what the test says (`fleet_worker`); all between is the real thing.
"""

from __future__ import annotations

import base64
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from fleet_commands import begin, ended, states
from fleet_world import FleetWorld, fleet_world, manifest_of
from registries import SECRET_BCRYPT, docker_registry, free_port, login
from slurm_cluster import MISSING, Cluster, slurm_cluster

from envbuilder.registry.client import OCI_MANIFEST, Repository

pytestmark = [
    pytest.mark.engine,  # docker-registry is installed with the engine
    pytest.mark.skipif(bool(MISSING), reason=f"no {', '.join(MISSING)}: scripts/setup slurm installs it"),
]

NODES = {"n1": "h100,driver-535", "n2": "a100,driver-550", "n3": "t4,driver-545"}
ONE = "name: proof\ninclude:\n  - {tensorflow: 2.15.1, flavor: gpu}\n"
"""One image, so that a test has three proofs."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with slurm_cluster(tmp_path_factory.mktemp("slurm"), NODES) as running:
        yield running


def until(world: FleetWorld, count: int, running: subprocess.Popen[str], seconds: float = 90) -> None:
    """Wait until the suite was begun so many times."""
    end = time.monotonic() + seconds
    while sum(world.runs().values()) < count:
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < end, world.runs()
        time.sleep(0.05)


@pytest.mark.parametrize("away_s", [6.0, pytest.param(65.0, marks=pytest.mark.full)])
def test_a_registry_that_goes_away_in_mid_run(tmp_path: Path, cluster: Cluster, away_s: float) -> None:
    """What was reached while it was away is attached when it is back, and not reached once more; nothing is lost.

    A verdict that could be run again until it pleases is none: each suite runs once.
    """
    port, folder = free_port(), tmp_path / "registry"
    with ExitStack() as up:
        world = fleet_world(tmp_path / "world", up.enter_context(docker_registry(folder, port=port)), matrix=ONE)
        for node in NODES:
            (world.folder / f"hold-{node}").touch()
        running = begin(world, cluster.environment, "--slurm")
        until(world, 3, running)
        up.close()
        for node in NODES:
            (world.folder / f"hold-{node}").unlink()
        time.sleep(away_s)
        up.enter_context(docker_registry(folder, port=port))
        code, document, err = ended(running, 200)
        assert code == 0, (err, document)
        assert set(states(document).values()) == {"passed"}
        assert "asking again" in err, "somebody met a registry that was away"
        assert sorted(world.runs().values()) == [1, 1, 1], world.runs()


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_on_one_node_is_its_own(tmp_path: Path, cluster: Cluster) -> None:
    """Its proof stays missing, with the reason, begun a bounded number of times; the others are done.

    With room again the same command does what is left, and nothing else.
    """
    with docker_registry(tmp_path / "registry") as address:
        world = fleet_world(tmp_path / "world", address, matrix=ONE)
        work = world.folder / "work" / "n2"
        work.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(work)], check=True)
        try:
            (work / "filler").write_bytes(bytes(12 << 10))
            code, document, err = ended(begin(world, cluster.environment, "--slurm"), 300)
        finally:
            subprocess.run(["umount", "-l", str(work)], check=True)
        assert code == 5, (err, document)
        found = states(document)
        assert [found[world.choice.environments[0].id, kind] for kind in ("H100/535", "T4/545")] == ["passed"] * 2
        (row,) = (row for row in document["rows"] if row["kind"] == "A100/550.54.15")
        assert (row["state"], "disk is full" in row["error"]) == ("missing", True), row["error"]
        before = world.runs()
        code, document, err = ended(begin(world, cluster.environment, "--slurm"))
        assert (code, set(states(document).values())) == (0, {"passed"}), err
        assert {key: times for key, times in world.runs().items() if key[0] != "n2"} == {
            key: times for key, times in before.items() if key[0] != "n2"
        }


@pytest.mark.full
def test_a_slow_host_keeps_nobody_waiting_but_the_command(tmp_path: Path, cluster: Cluster) -> None:
    """What the others proved is in the registry while it runs: a second command sees it, and joins the slow one."""
    with docker_registry(tmp_path / "registry") as address:
        world = fleet_world(tmp_path / "world", address)
        (world.folder / "hold-n3").touch()
        running = begin(world, cluster.environment, "--slurm")
        until(world, 5, running)
        words = ("envbuilder", "fleet", "status", *world.words)
        environment = {**world.variables, "WORKER_NAME": "n1"}
        end = time.monotonic() + 60
        while True:
            said = subprocess.run(
                words, cwd=world.folder, env=environment, capture_output=True, text=True, check=False
            ).stdout
            if "4 passed" in said:
                break
            assert time.monotonic() < end, said
        assert running.poll() is None
        second = begin(world, cluster.environment, "--slurm")
        (world.folder / "hold-n3").unlink()
        assert [ended(one)[0] for one in (running, second)] == [0, 0]
        assert max(world.runs().values()) == 1, world.runs()


def test_no_login_and_no_key_is_in_what_is_written(tmp_path: Path, cluster: Cluster) -> None:
    """A registry that wants a password: the login of each host's own file is used, and is nowhere else afterwards.

    Looked through are the jobs' scripts and states that Slurm keeps, all logs, the run's folder, the nodes' own, and
    what the registry was given; for the password, for what a login file makes of it, and for the private key.
    """
    (tmp_path / "users").write_text(f"ann:{SECRET_BCRYPT}\n")
    extra = f"auth: {{htpasswd: {{realm: team, path: {tmp_path / 'users'}}}}}\n"
    with docker_registry(tmp_path / "registry", extra=extra) as address:
        world = fleet_world(tmp_path / "world", address, matrix=ONE, published=False)
        docker = world.folder / "home" / ".docker"
        docker.mkdir()
        own = login(docker, address, "ann:secret")
        client = Repository(world.to, own)
        name = world.choice.environments[0].id
        client.put_blob(b"{}", "text/json")
        client.put_manifest(name, manifest_of(name), OCI_MANIFEST)
        code, document, err = ended(begin(world, cluster.environment, "--slurm"))
        assert (code, set(states(document).values())) == (0, {"passed"}), err
        words = (b"ann:secret", base64.b64encode(b"ann:secret"), SECRET_BCRYPT.encode())
        looked = [*_files(world.folder), *_files(cluster.folder), *_files(tmp_path / "registry")]
        assert len(looked) > 50, "there is something to look through"
        held = [path for path in looked if any(word in path.read_bytes() for word in words)]
        assert held == [docker / "config.json"]
        assert not [place for place in (world.folder, cluster.folder) if world.secrets_in(place)]
        assert not any("secret" in word for word in (err, str(document)))


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
