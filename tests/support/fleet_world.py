"""A team's repository, fleet file and hosts on disk, for tests whose hosts are processes (`fleet_worker`).

Its commands are started as a user does.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from dask_cluster import DaskCluster
from factories import A100, H100, gpu_verdict, verdict
from waiting import wait_for

from envbuilder.attest.keys import PRIVATE, PUBLIC, create
from envbuilder.catalog.store import load
from envbuilder.choice import Choice, choose
from envbuilder.registry.client import Repository
from envbuilder.registry.manifests import OCI_MANIFEST, digest_of
from envbuilder.registry.reference import Reference, parse
from envbuilder.verdict import GpuSeen, HostRef, Verdict
from envbuilder.workspace import Workspace

SUPPORT = Path(__file__).parent

T4 = GpuSeen(name="Tesla T4", compute_capability="7.5")

KINDS = {
    "n1": HostRef(driver="535.104.05", gpus=(H100,)),
    "n2": HostRef(driver="550.54.15", gpus=(A100,)),
    "n3": HostRef(driver="545.23.06", gpus=(T4,)),
}
FLEET = """\
- {name: hopper, driver: '535', gpus: [H100], constraint: h100&driver-535, labels: {gpu: h100}}
- {name: ampere, driver: 550.54.15, gpus: [A100], constraint: a100&driver-550, labels: {gpu: a100}}
- {name: turing, driver: '545', gpus: [T4], constraint: t4&driver-545, labels: {gpu: t4}}
"""
MATRIX = """\
name: proof
include:
  - {tensorflow: 2.15.1, flavor: gpu}
  - {tensorflow: 2.16.2, flavor: gpu}
"""


@dataclass
class FleetWorld:
    """Where everything lies; the public half of the key is trusted, the private one is the hosts' alone."""

    folder: Path
    to: Reference
    choice: Choice

    @property
    def words(self) -> tuple[str, ...]:
        """What every command of the fleet is asked with."""
        where = ("--fleet", str(self.folder / "fleet.yaml"), "--from", self.to.name)
        return (str(self.folder / "matrix.yaml"), *where, "--key", str(self.folder / "keys" / PUBLIC))

    @property
    def variables(self) -> dict[str, str]:
        """The variables of a host: where its key lies, and an `envbuilder` of this world on its PATH."""
        return {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.folder / "home"),
            "TF_ENVBUILDER_SIGNING_KEY": str(self.folder / "keys" / PRIVATE),
            "TF_ENVBUILDER_WORK": str(self.folder / "work"),
            "PYTHONPATH": str(SUPPORT.parents[1]),  # this checkout's, whichever one is installed
        }

    def runs(self) -> Counter[tuple[str, str]]:
        log = self.folder / "runs.log"
        lines = log.read_text().splitlines() if log.exists() else []
        return Counter((line.split()[0], line.split()[1]) for line in lines)

    def answer(self, environment: str, said: Verdict) -> None:
        """Say what the suite answers about an environment's image."""
        one = next(one for one in self.choice.environments if one.id == environment)
        said = msgspec.structs.replace(said, environment=one, finished=datetime.now(UTC).isoformat())
        digest = digest_of(manifest_of(environment))
        (self.folder / f"verdict-{digest[7:19]}.json").write_bytes(msgspec.json.encode(said))

    def secrets_in(self, folder: Path) -> list[Path]:
        """Name the files of a folder that hold the private key, whole or its last line of text."""
        key = (self.folder / "keys" / PRIVATE).read_bytes()
        core = max(key.splitlines(), key=len)
        found = (path for path in folder.rglob("*") if path.is_file() and path.parent != self.folder / "keys")
        return [path for path in found if core in path.read_bytes()]


def manifest_of(environment: str) -> bytes:
    """Return the manifest of an environment's image, the same on every host."""
    described = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest_of(b"{}"), "size": 2}
    parts = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": described, "layers": [described]}
    return json.dumps({**parts, "annotations": {"of": environment}}).encode()


def push(to: Reference, environment: str) -> None:
    client = Repository(to, {})
    client.put_blob(b"{}", "application/vnd.oci.image.config.v1+json")
    client.put_manifest(environment, manifest_of(environment), OCI_MANIFEST)


def fleet_world(
    folder: Path, address: str, *, matrix: str = MATRIX, hosts: Mapping[str, HostRef] = KINDS, published: bool = True
) -> FleetWorld:
    """Lay a world out in a folder: a matrix, a fleet, keys, hosts, an `envbuilder`, and images where they are there."""
    for name in ("bin", "home", "work", "keys"):
        (folder / name).mkdir(parents=True)
    (folder / "matrix.yaml").write_text(matrix)
    (folder / "fleet.yaml").write_text(FLEET)
    create(folder / "keys")
    choice = choose(str(folder / "matrix.yaml"), (), Workspace(folder), load())
    world = FleetWorld(folder, parse(f"{address}/team/image"), choice)
    for environment in choice.environments:
        if published:
            push(world.to, environment.id)
        world.answer(environment.id, gpu_verdict() if environment.flavor == "gpu" else verdict())
    for name, host in hosts.items():
        (folder / f"host-{name}.json").write_bytes(msgspec.json.encode(host))
    program = folder / "bin" / "envbuilder"
    program.write_text(
        f"#!/bin/sh\nexport PYTHONPATH={SUPPORT}:{SUPPORT.parents[1]}\n"
        f'exec {sys.executable} {SUPPORT / "fleet_worker.py"} {folder} "$@"\n'
    )
    program.chmod(0o755)
    return world


PROGRAM = (sys.executable, "-m", "envbuilder")


def start(
    world: FleetWorld, *words: str, variables: Mapping[str, str], program: tuple[str, ...] = PROGRAM
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        (*program, "fleet", "run", *world.words, *words, "--format", "json"),
        cwd=world.folder,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str], seconds: float = 150) -> tuple[int, dict[str, Any], str]:
    """Wait for the end; return exit code, document and standard error."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(process.communicate()[1]) from None
    assert out, err
    return process.returncode, json.loads(out), err


def until(world: FleetWorld, entry: str, nodes: tuple[str, ...], process: subprocess.Popen[str] | None = None) -> str:
    """Wait until a run of the suite or a build starts on one of some nodes; return the node."""

    def found() -> list[str]:
        assert process is None or process.poll() is None, process.communicate()
        return [node for node, name in world.runs() if node in nodes and name.startswith(entry)]

    return wait_for(found, 90, lambda: f"no {entry} on {nodes}: {world.runs()}")[0]


def start_worker(cluster: DaskCluster, world: FleetWorld, name: str, **variables: str) -> None:
    """Become a worker as a user does; the host's facts are those of the world's file."""
    variables = {**world.variables, "WORKER_NAME": name, **variables}
    cluster.start(name, "envbuilder", "fleet", "worker", cluster.address, "--name", name, variables=variables)


def begin(world: FleetWorld, cluster: DaskCluster, *words: str) -> subprocess.Popen[str]:
    """Start `fleet run --dask` on a cluster."""
    variables = {**cluster.variables, "HOME": world.variables["HOME"]}
    return start(world, "--dask", cluster.address, *words, variables=variables)


def command(world: FleetWorld, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (*PROGRAM, *words), cwd=world.folder, env=world.variables, capture_output=True, text=True, check=False
    )


def states(document: dict[str, Any]) -> dict[tuple[str, str], str]:
    """Return the state of each row by environment and host class."""
    return {(row["environment"], row["kind"]): row["state"] for row in document["rows"]}
