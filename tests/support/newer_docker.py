"""A newer Docker than this host's: Debian 13's `docker.io`, in a root file system of its own."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BRIDGE, ADDRESS = "eb-newer", "172.29.0.1/16"
"""With a bridge of the host's own, this engine would take it from the host's engine."""


@contextmanager
def newer_docker(root: Path) -> Iterator[str]:
    """Install and start the engine below ``root``; yield its address for DOCKER_HOST. Only root can."""
    packages = "--include=docker.io,iptables,ca-certificates"
    _run("mmdebstrap", "--quiet", "--variant=apt", packages, "trixie", str(root))
    (root / "etc/resolv.conf").write_bytes(Path("/etc/resolv.conf").read_bytes())
    _run("ip", "link", "add", BRIDGE, "type", "bridge")
    _run("ip", "address", "add", ADDRESS, "dev", BRIDGE)
    _run("ip", "link", "set", BRIDGE, "up")
    mounts = f"mount --bind {root} {root} && "  # the engine wants / to be a mount
    mounts += "".join(f"mount --rbind /{name} {root}/{name} && " for name in ("proc", "sys", "dev"))
    dockerd = f"dockerd --host unix:///engine.sock --bridge {BRIDGE}"
    host = f"unix://{root}/engine.sock"
    with (root / "engine.log").open("wb") as log:
        words = ["unshare", "--mount", "sh", "-c", f"{mounts}exec chroot {root} {dockerd}"]
        daemon = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            until = time.monotonic() + 60
            while subprocess.run(["docker", "-H", host, "version"], capture_output=True, check=False).returncode:
                assert daemon.poll() is None, (root / "engine.log").read_text()
                assert time.monotonic() < until
                time.sleep(0.2)
            yield host
        finally:
            daemon.terminate()
            daemon.wait(60)
            _run("ip", "link", "delete", BRIDGE)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=600)
