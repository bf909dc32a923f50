"""A real Slurm on loopback: munge, a controller, and a slurmd a node, as processes of this test's own."""

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil  # type: ignore[import-untyped]
from registries import free_port
from waiting import wait_for

MISSING = [name for name in ("slurmctld", "slurmd", "munged", "sbatch") if shutil.which(name) is None]
"""The programs that `scripts/setup slurm` would install."""

_CONFIG = (Path(__file__).parents[1] / "data" / "slurm.conf").read_text()


@dataclass
class Cluster:
    """Its folder, the processes by name, and the environment in which Slurm's commands reach it."""

    folder: Path
    nodes: Mapping[str, str]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, env={**os.environ, **self.environment}, stdout=log, stderr=log, start_new_session=True
            )

    def start_node(self, name: str) -> None:
        self.start(name, "slurmd", "-D", "-N", name, "-f", str(self.folder / "slurm.conf"))

    def lose(self, name: str) -> None:
        """Lose a node in mid-work: its daemon and all that runs on it, at once and for good."""

        def is_step(one: psutil.Process) -> bool:
            below = one.children(recursive=True) if "slurmstepd: [" in " ".join(one.cmdline()) else ()
            return any(child.environ().get("SLURMD_NODENAME") == name for child in below)

        for step in _processes(is_step):  # before its children, whose end it would report
            _kill([step, *step.children(recursive=True)])
        process = self.processes.pop(name)
        process.kill()
        process.wait(timeout=20)

    def ask(self, *command: str) -> str:
        return subprocess.run(
            command, env={**os.environ, **self.environment}, capture_output=True, text=True, check=True, timeout=30
        ).stdout

    def is_idle(self, node: str) -> bool:
        with suppress(subprocess.CalledProcessError):
            return "idle" in self.ask("sinfo", "-h", "-n", node, "-N", "-o", "%T")
        return False


@contextmanager
def slurm_cluster(folder: Path, nodes: Mapping[str, str]) -> Iterator[Cluster]:
    """Run a cluster whose nodes (name → features) are processes of this machine; all of it is gone afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(folder, nodes)
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o400)
    (folder / "state").mkdir()
    host = socket.gethostname().partition(".")[0]
    user = "root" if os.geteuid() == 0 else os.environ["USER"]
    lines = [_CONFIG.format(folder=folder, port=free_port(), user=user, host=host)]
    for name, features in nodes.items():
        (folder / f"spool-{name}").mkdir()
        lines.append(
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=1 RealMemory=500 "
            f"Feature={features} Gres=gpu:1 State=UNKNOWN\n"
        )
    lines.append(f"PartitionName=all Nodes={','.join(nodes)} Default=YES MaxTime=INFINITE State=UP\n")
    (folder / "slurm.conf").write_text("".join(lines))
    (folder / "gres.conf").write_text("".join(f"NodeName={name} Name=gpu File=/dev/null\n" for name in nodes))
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    try:
        where = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
        cluster.start("munged", "munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *where)
        wait_for((folder / "munge.socket").exists, 20)
        cluster.start("slurmctld", "slurmctld", "-D", "-f", str(folder / "slurm.conf"))
        for name in nodes:
            cluster.start_node(name)
        for name in nodes:
            wait_for(partial(cluster.is_idle, name), 40, lambda: cluster.ask("sinfo"))
        yield cluster
    finally:
        _kill(_processes(lambda one: one.pid != os.getpid() and str(folder) in str(one.environ())))
        for process in cluster.processes.values():
            process.kill()
            process.wait()


def _processes(holds: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    """Return the processes for which something holds; one that has ended is none of them."""
    found = []
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            found += [one] if holds(one) else []
    return found


def _kill(processes: list[psutil.Process]) -> None:
    for one in processes:
        with suppress(psutil.Error):
            one.kill()
