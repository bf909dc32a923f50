"""start.sh runs the probes with the first Python that has TensorFlow."""

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
from suite_messages import events_of, order

START = Path(__file__).parents[2] / "envbuilder/probes/suite/start.sh"
CHECK = {"name": "well", "tier": "cpu", "group": "g", "probe": "misbehave:well", "limit_s": 60}
PLAN = {"facts": {}, "groups": [{"name": "g", "lane": "main", "env": {}, "checks": [CHECK]}]}


STAYS = """
import os, sys, time
if "--worker" in sys.argv and os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        place = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stays")
        open(place + ".new", "w").write(str(os.getpid()))
        os.rename(place + ".new", place)
        os.closerange(3, 64)
        time.sleep(600)
    os._exit(0)
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
    found = sys.executable if os.geteuid() else shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if not found:
        pytest.skip("no Python here that another user may start")
    return found


def program(folder: Path, name: str, text: str) -> None:
    (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / "bin" / name).chmod(0o755)


def outcomes(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    return [event["result"]["outcome"] for event in events_of(done.stdout) if event["event"] == "result"]


def test_process_that_a_check_leaves_running_ends_with_the_run(folder: Path) -> None:
    (folder / "site" / "sitecustomize.py").write_text(STAYS + 'if "--worker" in sys.argv: time.sleep(0.5)\n')
    done = start(folder)
    assert (done.returncode, outcomes(done)) == (0, ["passed"]), done.stderr.decode()[-2000:]
    left = int((folder / "site" / "stays").read_text())
    stat = Path(f"/proc/{left}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z", "it still runs"


def test_first_python_with_tensorflow_runs_the_probes(folder: Path) -> None:
    lacks = f'case "$1" in -c) exit 11;; esac; exec {python()} "$@"'
    for name in ("python", "python3"):
        program(folder, name, lacks)
    done = start(folder)
    assert (done.returncode, outcomes(done)) == (0, ["passed"]), done.stderr.decode()[-2000:]


def test_exit_code_3_if_no_python_has_tensorflow(folder: Path) -> None:
    shutil.rmtree(folder / "site" / "tensorflow")
    done = start(folder)
    assert (done.returncode, done.stdout) == (3, b"")
    assert b"no Python here has TensorFlow" in done.stderr


def test_exit_code_4_and_its_own_message_if_a_python_does_not_start(folder: Path) -> None:
    shutil.rmtree(folder / "site" / "tensorflow")
    program(folder, "python", "echo broken >&2; exit 1")
    done = start(folder)
    assert (done.returncode, done.stdout) == (4, b"")
    assert b"broken\nstart.sh: python does not start" in done.stderr


def test_next_python_is_used_if_the_first_does_not_start(folder: Path) -> None:
    program(folder, "python", "exit 1")
    done = start(folder)
    assert (done.returncode, outcomes(done)) == (0, ["passed"]), done.stderr.decode()[-2000:]
