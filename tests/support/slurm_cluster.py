"""A real Slurm on loopback: munge, a controller, and a slurmd a node, as processes of this test's own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

MISSING = [name for name in ("slurmctld", "slurmd", "munged", "sbatch") if shutil.which(name) is None]
"""The programs that `scripts/setup slurm` would install."""

_CONFIG = """\
ClusterName=envbuilder
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1
ReturnToService=2
SlurmdTimeout=4
SlurmctldTimeout=10
KillWait=2
MinJobAge=300
JobRequeue=1
MpiDefault=none
SlurmdParameters=config_overrides
GresTypes=gpu
"""


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
        steps = [pid for pid in _processes() if "slurmstepd: [" in _command(pid) and self._is_on(pid, name)]
        for pid in steps:
            for child in (*_below(pid), pid):
                _kill(child)
        process = self.processes.pop(name)
        process.kill()
        process.wait(timeout=20)

    def _is_on(self, pid: int, name: str) -> bool:
        """Return True if a step belongs to a node, by what its job sees."""
        return any(f"SLURMD_NODENAME={name}\0" in _variables(child) for child in _below(pid))

    def ask(self, *command: str) -> str:
        return subprocess.run(
            command, env={**os.environ, **self.environment}, capture_output=True, text=True, check=True, timeout=30
        ).stdout

    def wait_for(self, holds: str, *command: str) -> None:
        end, said = time.monotonic() + 40.0, ""
        while time.monotonic() < end:
            try:
                said = self.ask(*command)
            except subprocess.CalledProcessError as error:
                said = error.stderr
            if holds in said:
                return
            time.sleep(0.2)
        raise AssertionError(f"{' '.join(command)} never said {holds!r}: {said}")


@contextmanager
def slurm_cluster(folder: Path, nodes: Mapping[str, str]) -> Iterator[Cluster]:
    """Run a cluster whose nodes (name → features) are processes of this machine; all of it is gone afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(folder, nodes)
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o400)
    (folder / "state").mkdir()
    host = socket.gethostname().partition(".")[0]
    ports = _free_ports(len(nodes) + 1)
    lines = [
        _CONFIG.format(
            folder=folder, port=ports[0], user="root" if os.geteuid() == 0 else os.environ["USER"], host=host
        )
    ]
    for (name, features), port in zip(nodes.items(), ports[1:], strict=True):
        (folder / f"spool-{name}").mkdir()
        lines.append(
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1 RealMemory=500 "
            f"Feature={features} Gres=gpu:1 State=UNKNOWN\n"
        )
    lines.append(f"PartitionName=all Nodes={','.join(nodes)} Default=YES MaxTime=INFINITE State=UP\n")
    (folder / "slurm.conf").write_text("".join(lines))
    (folder / "gres.conf").write_text("".join(f"NodeName={name} Name=gpu File=/dev/null\n" for name in nodes))
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    try:
        where = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
        cluster.start("munged", "munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *where)
        _wait_for(folder / "munge.socket")
        cluster.start("slurmctld", "slurmctld", "-D", "-f", str(folder / "slurm.conf"))
        for name in nodes:
            cluster.start_node(name)
        for name in nodes:
            cluster.wait_for("idle", "sinfo", "-h", "-n", name, "-N", "-o", "%T")
        yield cluster
    finally:
        for pid in _processes():
            if pid != os.getpid() and str(folder) in _variables(pid):
                _kill(pid)
        for process in cluster.processes.values():
            process.kill()
            process.wait()


def _wait_for(path: Path) -> None:
    end = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < end, "a daemon of the cluster did not start"
        time.sleep(0.05)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def _read(pid: int, name: str) -> str:
    try:
        return (Path("/proc") / str(pid) / name).read_text(errors="replace")
    except OSError:
        return ""


def _command(pid: int) -> str:
    return _read(pid, "cmdline").replace("\0", " ")


def _variables(pid: int) -> str:
    return _read(pid, "environ")


def _below(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for one in _processes():
        fields = _read(one, "stat").rpartition(")")[2].split()
        if fields:
            children.setdefault(int(fields[1]), []).append(one)
    found, new = [], [pid]
    while new:
        new = [child for parent in new for child in children.get(parent, ())]
        found += new
    return found


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
