"""Each fault of the table, injected for real: the documented exit code, a next step, no traceback, nothing left."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_table import FAULTS, Fault

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Give a folder on a disk of 24 MB of its own, where this user may mount one; else an ordinary folder."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = (
        os.geteuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=24m,mode=0755", "tmpfs", folder], capture_output=True, check=False
        ).returncode
    )
    try:
        yield folder
    finally:
        if mounted:
            subprocess.run(["umount", "-l", folder], check=True)
        shutil.rmtree(folder, ignore_errors=True)


def rows() -> list[object]:
    """List the faults; every third of the first 25 is tried in each run of the tests, the rest by `make faults`."""
    return [
        pytest.param(fault, id=fault.name, marks=() if number % 3 == 0 and number < 25 else pytest.mark.long)
        for number, fault in enumerate(FAULTS)
    ]


@pytest.mark.parametrize("fault", rows())
def test_a_fault_has_its_end(fault: Fault, disk: Path, tmp_path: Path) -> None:
    """A fault ends with the code that the contract names and what to do next; never in a bug's code or a torn file."""
    if "head -c 40M" in fault.line and not os.path.ismount(disk):
        pytest.skip("needs a disk of its own: only root may mount one")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = {
        **os.environ,
        "E": f"{sys.executable} -m envbuilder",
        "PYTHONPATH": str(REPOSITORY),
        "XDG_CACHE_HOME": str(disk / "cache"),
        "TMPDIR": str(temporary),
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
