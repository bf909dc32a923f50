"""Which Python the probes run with: the first that has TensorFlow, found with the order out of all others' reach."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from misbehaving import write_suite
from probe_messages import opened, order

START = Path(__file__).parents[2] / "envbuilder/probes/suite/start.sh"
CHECK = {"name": "well", "tier": "cpu", "group": "g", "probe": "misbehave:well", "limit_s": 60}
PLAN = {"facts": {}, "groups": [{"name": "g", "lane": "main", "env": {}, "checks": [CHECK]}]}
THIEF = """
import os, sys, time
if sys.argv[:1] == ["-c"]:
    found = []
    for number in (os.getppid(), 1, *range(os.getppid() - 3, os.getppid() + 1)):
        try:
            stolen = os.open("/proc/%d/fd/0" % number, os.O_RDONLY | os.O_NONBLOCK)
            found.append(os.read(stolen, 65536))
        except OSError:
            pass
    open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "stolen"), "a").write(repr(found))
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Make a folder that another user may write to, with the suite and a Python's packages in it."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        place = Path(name)
        place.chmod(0o777)
        write_suite(place / "probes").chmod(0o755)
        shutil.copy(START, place / "probes" / "start.sh")
        (place / "site" / "tensorflow").mkdir(parents=True)
        (place / "site" / "tensorflow" / "__init__.py").write_text("")
        (place / "site").chmod(0o777)
        (place / "bin").mkdir()
        yield place


def start(folder: Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    """Start the probes as in a container, whose user is not root and owns the streams (runc gives them to it)."""
    reading, writing = os.pipe()
    if os.geteuid() == 0:
        os.fchown(reading, 65534, 65534)
    os.write(writing, order(PLAN))
    os.close(writing)
    path = f"{folder / 'bin'}:{Path(python()).parent}:/usr/bin:/bin"
    with os.fdopen(reading, "rb") as stdin:
        return subprocess.run(
            ["/bin/sh", str(folder / "probes" / "start.sh")],
            stdin=stdin,
            env={"PATH": path, "PYTHONPATH": str(folder / "site"), **env},
            capture_output=True,
            timeout=120,
            check=False,
            user=65534 if os.geteuid() == 0 else None,
        )


def python() -> str:
    """Name a Python that any user may start."""
    found = sys.executable if os.geteuid() else shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if not found:
        pytest.skip("no Python here that another user may start")
    return found


def program(folder: Path, name: str, text: str) -> None:
    """Put a script in front of the Pythons of this host."""
    (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / "bin" / name).chmod(0o755)


def outcomes(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    return [event["result"]["outcome"] for event in opened(done.stdout) if event["event"] == "result"]


def test_what_a_python_loads_at_its_start_does_not_get_the_order(folder: Path) -> None:
    """Neither the shell's standard input nor the runner's is open to it, and the run goes on."""
    (folder / "site" / "sitecustomize.py").write_text(THIEF)
    done = start(folder)
    assert (done.returncode, outcomes(done)) == (0, ["passed"]), done.stderr.decode()[-2000:]
    stolen = (folder / "site" / "stolen").read_text()
    assert stolen
    assert "key" not in stolen
    assert "plan" not in stolen


STAYS = """
import os, sys, time
if "--worker" in sys.argv and os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        place = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stays")
        open(place + ".new", "w").write(str(os.getpid()))
        os.rename(place + ".new", place)
        for descriptor in range(3, 64):
            try:
                os.close(descriptor)
            except OSError:
                pass
        time.sleep(600)
    os._exit(0)
"""


def test_what_a_check_leaves_running_ends_with_the_run(folder: Path) -> None:
    """It would wait for the order of the next run in the same container, which comes by a pipe that it could open."""
    (folder / "site" / "sitecustomize.py").write_text(STAYS + 'if "--worker" in sys.argv: time.sleep(0.5)\n')
    done = start(folder)
    assert (done.returncode, outcomes(done)) == (0, ["passed"]), done.stderr.decode()[-2000:]
    left = int((folder / "site" / "stays").read_text())
    assert not Path(f"/proc/{left}").exists()


def test_the_first_python_that_has_it_runs_the_probes(folder: Path) -> None:
    """One in front without it is asked and left; the order reaches the next one, which becomes this process."""
    lacks = f'case "$1$2" in -c*) exit 11;; esac; exec {python()} "$@"'
    for name in ("python", "python3"):
        program(folder, name, lacks)
    done = start(folder)
    assert (done.returncode, outcomes(done)) == (0, ["passed"]), done.stderr.decode()[-2000:]


def test_no_python_has_it(folder: Path) -> None:
    """Exit code 3, and nothing is said by the runner."""
    shutil.rmtree(folder / "site" / "tensorflow")
    done = start(folder)
    assert (done.returncode, done.stdout) == (3, b"")
    assert b"no Python here has TensorFlow" in done.stderr


def test_a_python_that_does_not_start_says_so_itself(folder: Path) -> None:
    """Its own words, exit code 4: whether it ends before the probes are there, or when it is asked."""
    shutil.rmtree(folder / "site" / "tensorflow")
    for text in ("echo broken >&2; exit 1", f'case "$1" in -c) echo broken >&2; exit 1;; esac; exec {python()} "$@"'):
        program(folder, "python", text)
        done = start(folder)
        assert (done.returncode, done.stdout) == (4, b"")
        assert b"python does not start: broken" in done.stderr


def test_another_that_starts_is_taken_where_the_first_does_not(folder: Path) -> None:
    """A broken Python in front keeps no other from the probes."""
    program(folder, "python", "exit 1")
    done = start(folder)
    assert (done.returncode, outcomes(done)) == (0, ["passed"]), done.stderr.decode()[-2000:]
