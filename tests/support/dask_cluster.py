"""A real Dask cluster on loopback: a scheduler and workers as processes, with TLS by Dask's own configuration."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from certificates import certificate
from registries import answers, free_port
from waiting import wait_for


@dataclass
class DaskCluster:
    """Its address, its processes by name, and the variables by which Dask finds its certificates."""

    folder: Path
    address: str
    variables: Mapping[str, str]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, *command: str, variables: Mapping[str, str] | None = None) -> None:
        place = self.folder / name
        place.mkdir(exist_ok=True)
        environment = {**os.environ, **self.variables, **(variables or {})}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, cwd=place, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self, name: str) -> None:
        """Kill a process and its whole session's group at once: a host that lost its power."""
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=20)


def secured(folder: Path) -> dict[str, str]:
    """Make one certificate for all and say where it lies, as Dask's configuration in variables."""
    certificate(folder)
    start = "DASK_DISTRIBUTED__COMM__"
    parts = {f"{start}TLS__CA_FILE": "cert.pem"}
    for who in ("SCHEDULER", "WORKER", "CLIENT"):
        parts |= {f"{start}TLS__{who}__CERT": "cert.pem", f"{start}TLS__{who}__KEY": "key.pem"}
    return {f"{start}REQUIRE_ENCRYPTION": "True"} | {key: str(folder / value) for key, value in parts.items()}


@contextmanager
def dask_cluster(folder: Path) -> Iterator[DaskCluster]:
    """Run a scheduler; every process of the cluster is gone afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = DaskCluster(folder, f"tls://127.0.0.1:{free_port()}", secured(folder / "tls"))
    try:
        start_scheduler(cluster)
        yield cluster
    finally:
        for name in list(cluster.processes):
            cluster.kill(name)


def start_scheduler(cluster: DaskCluster) -> None:
    port = cluster.address.rpartition(":")[2]
    options = ("--host", "tls://127.0.0.1", "--port", port, "--no-dashboard")
    cluster.start("scheduler", sys.executable, "-m", "dask", "scheduler", *options)
    wait_for(lambda: answers(int(port)), 30, (cluster.folder / "scheduler.log").read_text)
