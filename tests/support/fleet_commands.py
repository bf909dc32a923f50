"""Fleet commands, started as a user does in the folder of a `FleetWorld`, and their results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from dask_cluster import DaskCluster
from fleet_world import FleetWorld

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
    end = time.monotonic() + 90
    while True:
        found = [node for node, name in world.runs() if node in nodes and name.startswith(entry)]
        if found:
            return found[0]
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < end, f"no {entry} on {nodes}: {world.runs()}"
        time.sleep(0.05)


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
