"""What a list leaves out is opened by nothing: much of TensorFlow is run in real images, and followed from outside."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import docker
import pytest
from factories import resolved

from envbuilder.catalog.store import load
from envbuilder.engine.docker import connect
from envbuilder.engine.port import FILES_AT, ContainerSpec
from envbuilder.image import removed_files
from envbuilder.image.build import ensure
from envbuilder.image.context import build_files
from envbuilder.image.layers import carried_out
from envbuilder.support import decoding
from envbuilder.workspace import Workspace

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.full, pytest.mark.timeout(3600)]

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


HERE = Workspace(Path(__file__).parents[2])
PROGRAM = Path(__file__).parents[1] / "support" / "exercise.py"
FEWEST = 2_000
"""Files that are opened in any release; fewer, and it was not followed."""


def goes(name: str) -> Callable[[str], bool]:
    """Tell files that a context's list leaves out whole: programs of the environment too, as RECORD writes them."""
    found = removed_files.parse(carried_out(build_files(name, HERE), f"{name}/Dockerfile"))
    rows = [row.path for listed in found.values() for row in listed if row.left is None]
    files, folders = frozenset(rows), tuple(row for row in rows if row.endswith("/"))
    return lambda path: path in files or path.startswith(folders)


def test_nothing_that_goes_is_opened(tmp_path: Path) -> None:
    """Without a GPU no file of CUDA is opened: the CPU build has the same rows for TensorFlow's own files."""
    engine, catalog = connect(), load()
    whole, slim = (resolved(flavor="cpu", variant=one) for one in ("devel", "runtime"))
    images = [ensure(one, catalog, HERE, engine, lambda _: None).record.image for one in (whole, slim)]
    (tmp_path / PROGRAM.name).write_bytes(PROGRAM.read_bytes())

    said, files = opened(images[0], ["/opt/venv/bin/python", f"{PLACE}/{PROGRAM.name}", f"{PLACE}/made"], tmp_path)

    site = f"/opt/venv/lib/python{whole.python}/site-packages/"
    inside = {path.removeprefix(site) for path in files if path.startswith(site)}
    assert len(inside) > FEWEST
    assert {"tensorflow/libtensorflow_cc.so.2", "tensorflow/libtensorflow_framework.so.2"} <= inside
    assert not sorted(filter(goes(slim.id), (os.path.relpath(path, site) for path in files)))

    printed, complained = bytearray(), bytearray()
    spec = ContainerSpec(
        image=images[1],
        command=("/opt/venv/bin/python", f"{FILES_AT}/{PROGRAM.name}", "/tmp/made"),
        files={PROGRAM.name: PROGRAM.read_bytes()},
        env={"HOME": "/tmp"},
        time_limit=1800.0,
    )
    ended = engine.run(spec, printed.extend, complained.extend)
    assert not ended.exit_code, decoding.lossy(bytes(complained[-2000:]))
    answers = [line for line in said.splitlines() if line]
    assert decoding.text(bytes(printed)).splitlines() == answers
    assert len(answers) > 10
    assert not [line for line in answers if not line.endswith(" ok")]
