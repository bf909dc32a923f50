"""What a program in a container opens, followed from outside of it: by `strace` on the host, as root."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import docker
import pytest

PLACE = "/exercise"
"""Where the folder of the host lies in the container."""

_OPENED = re.compile(r"(?:open|openat|openat2)(?:\(| resumed).*= \d+<(/[^>]*)>$")
_EXECUTED = re.compile(r"execve(?:at\([^,]*, |\()\"(/[^\"]*)\"")
"""Whether it came to an end or not: where another process was told of meanwhile, that is on a line without the path."""


@contextmanager
def idle(image: str, folder: Path) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Start a container of an image that does nothing, without a network; yield its process, and its environment."""
    client = docker.from_env()
    try:
        made = client.containers.run(
            image, ["sleep", "infinity"], entrypoint=[], detach=True, network_mode="none", user="0", init=True,
            volumes={str(folder): {"bind": PLACE, "mode": "rw"}}, mem_limit="12g",
        )  # fmt: skip
        try:
            made.reload()
            words = client.images.get(image).attrs["Config"]["Env"]
            yield int(made.attrs["State"]["Pid"]), dict(word.split("=", 1) for word in words)
        finally:
            made.remove(force=True)
    finally:
        client.close()


def opened(image: str, command: Sequence[str], folder: Path) -> tuple[str, frozenset[str]]:
    """Run a command in a container of an image; return what it printed, and the files that were opened or executed.

    ``folder`` is writable at `PLACE`. Skips where the host has no strace, or the caller is not root. Raises
    CalledProcessError where the command fails.
    """
    if os.geteuid() or not (shutil.which("strace") and shutil.which("nsenter")):
        pytest.skip("needs strace, nsenter and root: scripts/setup trace")
    log = folder / "calls"
    with idle(image, folder) as (process, environment):
        words = [
            *("strace", "-f", "-qq", "-y", "--seccomp-bpf", "-s", "4096", "-o", str(log)),
            *("-e", "trace=open,openat,openat2,execve,execveat", "-e", "signal=none"),
            *("nsenter", "--target", str(process), "--mount", "--uts", "--ipc", "--net", "--pid"),
            *("env", "-i", *(f"{name}={value}" for name, value in environment.items()), "HOME=/tmp", *command),
        ]
        ended = subprocess.run(words, check=True, capture_output=True, text=True, timeout=1800)
    return ended.stdout, frozenset(_paths(log))


def _paths(log: Path) -> Iterator[str]:
    with log.open(errors="surrogateescape") as lines:
        for line in lines:
            found = _OPENED.search(line.rstrip()) or _EXECUTED.search(line)
            if found:
                yield found[1]
