"""Each fault of the table, injected for real: the documented exit code, a next step, no traceback, nothing left."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import fault_table
import place_table
import pytest
import service_table
from fault_table import Fault

REPOSITORY = Path(__file__).parents[2]
FAULTS = (*fault_table.FAULTS, *place_table.FAULTS, *service_table.FAULTS)
ALWAYS = tuple(
    fault
    for table, part in ((fault_table.FAULTS, 3), (place_table.FAULTS, 5), (service_table.FAULTS, 5))
    for number, fault in enumerate(table)
    if number % part == 0 and fault.fast
)
"""The faults that are tried in each run of the tests."""

FAKETIME = next(map(str, sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))), "")


def for_everybody() -> tuple[str, ...]:
    """Return a Python that another account may start, and where its packages are: ours may lie in root's home."""
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        words = [
            "setpriv",
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
            "sh",
            "-c",
            'exec "$0" -V',
            python,
        ]
        if not subprocess.run(words, capture_output=True, check=False).returncode:
            return (python, sysconfig.get_path("purelib"))
    pytest.skip("no Python here that another account may start")


@pytest.fixture
def disk(tmp_path: Path, fault: Fault) -> Iterator[Path]:
    """Give a folder on a disk of 24 MB of its own, where this user may mount one; else an ordinary folder."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = "size=24m,mode=0755" + (f",nr_inodes={fault.inodes}" if fault.inodes else "")
    mounted = (
        os.geteuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, check=False
        ).returncode
    )
    try:
        yield folder
    finally:
        if mounted:
            subprocess.run(["umount", "-l", folder], check=True)
        shutil.rmtree(folder, ignore_errors=True)


def rows() -> list[object]:
    """List the faults; some of each kind are tried in each run of the tests, the rest by `make test-full`."""
    return [pytest.param(fault, id=fault.name, marks=() if fault in ALWAYS else pytest.mark.full) for fault in FAULTS]


@pytest.fixture
def port(fault: Fault, tmp_path: Path) -> Iterator[str]:
    """Give the port of the fault's server; '' where it has none."""
    if not fault.server:
        yield ""
        return
    file = tmp_path / "port"
    command = (sys.executable, Path(__file__).with_name("strange_server.py"), fault.server, file)
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(REPOSITORY / "tests/support")}) as server:
        try:
            until = time.monotonic() + 30
            while not (file.exists() and file.read_text()):
                assert time.monotonic() < until
                time.sleep(0.02)
            yield file.read_text()
        finally:
            server.kill()


def test_there_are_enough_faults() -> None:
    """The table holds 150 and more, each under a name of its own, and many of them are fast enough for every run."""
    assert len(FAULTS) >= 150
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert len(ALWAYS) >= 50


@pytest.mark.parametrize("fault", rows())
def test_a_fault_has_its_end(fault: Fault, disk: Path, port: str, tmp_path: Path) -> None:
    """A fault ends with the code that the contract names and what to do next; never in a bug's code or a torn file."""
    if (fault.inodes or "head -c 40M" in fault.line) and not os.path.ismount(disk):
        pytest.skip("needs a disk of its own: only root may mount one")
    if fault.root and os.geteuid() != 0:
        pytest.skip("needs another account or a mount: only root may have them")
    if fault.faketime and not FAKETIME:
        pytest.skip("needs libfaketime (apt-get install faketime)")
    python, *packages = for_everybody() if fault.root else (sys.executable,)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    if fault.root:  # another account passes through them
        for folder in (disk, *disk.parents[:3]):
            folder.chmod(0o755)
    environment = {
        **os.environ,
        "E": f"{python} -m envbuilder",
        "PYTHONPATH": os.pathsep.join((str(REPOSITORY), *packages)),
        "XDG_CACHE_HOME": str(disk / "cache"),
        "TMPDIR": str(temporary),
        "PORT": port,
        "FALSE_CLOCK": FAKETIME,
        "PYTHONDONTWRITEBYTECODE": "1",  # whoever runs as root would leave files for an account that cannot
    }
    done = subprocess.run(
        ["bash", "-c", fault.line], cwd=disk, env=environment, capture_output=True, timeout=120, check=False
    )
    printed = (done.stdout + done.stderr).decode(errors="replace")
    assert done.returncode in fault.codes, printed
    assert fault.says in printed
    assert "Traceback" not in printed
    assert "\x1b" not in printed
    assert not list(disk.rglob(".*.tmp")), "a temporary file was left"
    assert not list(temporary.iterdir()), "something was left in the temporary folder"
    assert tempfile.gettempdir() != str(temporary)
