"""Jobs of `fleet export slurm` on a real Slurm with nodes of three host classes and a registry with a password.

Only the nodes' GPUs and the suite's answers come from the test (`fleet_worker`).
"""

import base64
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet_world import FleetWorld, command, fleet_world, manifest_of, states, until
from registries import SECRET_BCRYPT, docker_registry, login
from slurm_cluster import MISSING, Cluster, slurm_cluster
from waiting import wait_for

from envbuilder.registry.client import Repository
from envbuilder.registry.manifests import OCI_MANIFEST

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
def world(tmp_path: Path) -> Iterator[FleetWorld]:
    """Publish two images to a registry whose login is in the hosts' own Docker settings."""
    (tmp_path / "users").write_text(f"ann:{SECRET_BCRYPT}\n")
    extra = f"auth: {{htpasswd: {{realm: team, path: {tmp_path / 'users'}}}}}\n"
    with docker_registry(tmp_path / "registry", extra=extra) as address:
        world = fleet_world(tmp_path / "world", address, published=False)
        settings = world.folder / "home" / ".docker"
        settings.mkdir()
        client = Repository(world.to, login(settings, address, "ann:secret"))
        client.put_blob(b"{}", "application/vnd.oci.image.config.v1+json")
        for environment in world.choice.environments:
            client.put_manifest(environment.id, manifest_of(environment.id), OCI_MANIFEST)
        yield world


def submit(world: FleetWorld, cluster: Cluster) -> list[str]:
    """Export what is pending and submit the scripts that it names; return the jobs' numbers."""
    exported = command(world, "fleet", "export", "slurm", *world.words, "-o", "jobs")
    assert exported.returncode == 0, exported.stderr
    variables = {**os.environ, **world.variables, **cluster.environment}
    submitted = (
        subprocess.run(
            ("sbatch", "--parsable", path.name),
            cwd=path.parent,
            env=variables,
            capture_output=True,
            text=True,
            check=True,
        )
        for path in (world.folder / name for name in re.findall(r"(?m)^wrote (.+)$", exported.stderr))
    )
    return [ended.stdout.strip() for ended in submitted]


def state(world: FleetWorld) -> tuple[int, dict[tuple[str, str], str]]:
    shown = command(world, "fleet", "status", *world.words, "--format", "json")
    return shown.returncode, states(json.loads(shown.stdout))


def test_exported_jobs_reach_passed_on_every_host_class_after_a_node_was_lost(
    world: FleetWorld, cluster: Cluster, tmp_path: Path
) -> None:
    """Slurm queues the lost node's task again; each other image is validated once on each host class.

    The private key and the password are in no script, log, state of Slurm or upload.
    """
    (world.folder / "hold-n2").touch()
    jobs = submit(world, cluster)
    assert len(jobs) == 3
    until(world, "sha256:", ("n2",))
    cluster.lose("n2")
    cluster.ask("scontrol", "update", "nodename=n2", "state=down", "reason=lost")
    (world.folder / "hold-n2").unlink()
    cluster.start_node("n2")
    wait_for(lambda: not cluster.ask("squeue", "-h", "-j", ",".join(jobs)).strip(), 120, lambda: cluster.ask("squeue"))
    code, found = state(world)
    assert (code, set(found.values()), len(found)) == (0, {"passed"}, 6)
    runs = world.runs()
    assert [sum(times for (node, _), times in runs.items() if node == name) for name in NODES] == [2, 3, 2]
    verified = command(
        world,
        *("verify", f"{world.to.name}:{world.choice.environments[0].id}", "--key", world.words[-1]),
        *("--on", "H100/535, A100/550, T4/545"),
    )
    assert (verified.returncode, "T4/545: passed at level gpu" in verified.stdout) == (0, True), verified.stdout
    assert submit(world, cluster) == [], "nothing is pending"
    check_secrets(world, (world.folder, cluster.folder, tmp_path / "registry"))


def check_secrets(world: FleetWorld, folders: tuple[Path, ...]) -> None:
    words = (b"ann:secret", base64.b64encode(b"ann:secret"), SECRET_BCRYPT.encode())
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(files) > 50
    holding = [path for path in files if any(word in path.read_bytes() for word in words)]
    assert holding == [world.folder / "home" / ".docker" / "config.json"]
    assert not [folder for folder in folders if world.secrets_in(folder)]
