"""An engine of the tests' own: another dockerd, which may be filled, frozen, killed and restarted."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pytest
from waiting import wait_for

from envbuilder.engine.docker import DockerEngine, connect


class OwnEngine:
    """A second dockerd beside the machine's; ``data`` is where it keeps its store."""

    def __init__(self, folder: Path, data: Path) -> None:
        socket = folder / "exec" / "containerd" / "containerd.sock.ttrpc"
        assert len(str(socket)) <= 107, f"a socket's path has at most 107 bytes: {socket}"
        self.folder = folder
        self.data = data
        self.host = f"unix://{folder / 'engine.sock'}"
        self._daemon: subprocess.Popen[bytes] | None = None

    def connect(self) -> DockerEngine:
        return connect({**os.environ, "DOCKER_HOST": self.host})

    def start(self) -> None:
        """Start it, and wait until it answers."""
        # A network of its own, whose bridge is not the first engine's.
        command: list[str | Path] = ["unshare", "--net", "dockerd", "--host", self.host]
        command += ["--data-root", self.data, "--exec-root", self.folder / "exec", "--pidfile", self.folder / "pid"]
        command += ["--iptables=false", "--ip-forward=false", "--ip-masq=false"]
        with (self.folder / "log").open("ab") as log:
            self._daemon = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for_engine(self.host, self.folder / "log")

    def stop(self, *, kill: bool = False) -> None:
        """End it in order, as an upgrade of the package does, or at once."""
        if self._daemon is None:
            return
        (self._daemon.kill if kill else self._daemon.terminate)()
        self._daemon.wait(60)
        self._daemon = None
        if kill:  # as where its host goes down: nothing of it lives on, and nothing was put in order
            self._end_the_rest()

    def _end_the_rest(self) -> None:
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if str(self.folder / "exec").encode() in (process / "cmdline").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)
        (self.folder / "pid").unlink(missing_ok=True)
        self.unmount()
        shutil.rmtree(self.folder / "exec", ignore_errors=True)

    def unmount(self) -> None:
        """Take away what it has mounted, its store's own folder among it: a killed one leaves that."""
        places = [line.split(" ")[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        for place in reversed(places):
            if f"{place}/".startswith((f"{self.folder / 'exec'}/", f"{self.data}/")):
                subprocess.run(["umount", "-l", place], check=False)

    def restart(self, *, kill: bool = False) -> None:
        """Have another daemon over the same store, as after an upgrade: its images are there still."""
        self.stop(kill=kill)
        self.start()

    def left(self) -> str:
        words = (["ps", "-aq"], ["volume", "ls", "-q"])
        ran = [subprocess.run(["docker", "-H", self.host, *one], capture_output=True, check=True) for one in words]
        return "".join(one.stdout.decode() for one in ran)


def wait_for_engine(host: str, log: Path) -> None:
    words = ["docker", "-H", host, "version"]
    wait_for(lambda: not subprocess.run(words, capture_output=True, check=False).returncode, 60, log.read_text)


Own = TypeVar("Own", bound=OwnEngine)


@contextmanager
def own_engine(made: Own) -> Iterator[Own]:
    """Run it while this lasts; only root can."""
    if os.geteuid() != 0 or not shutil.which("dockerd"):
        pytest.skip("needs an engine of its own: only root may run one")
    made.start()
    try:
        yield made
    finally:
        made.stop()
        made.unmount()
