"""Each fault of faults.yaml, injected for real: the documented exit code, a next step, no traceback, nothing left."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from waiting import wait_for

from envbuilder.support.yaml_reader import read_yaml

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
FAKETIME = next(map(str, sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))), "")


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of faults.yaml; its first lines explain the fields."""

    name: str
    run: str
    codes: tuple[int, ...]
    says: str = ""
    each: dict[str, str] = {}
    servers: tuple[str, ...] = ()
    inodes: int = 0
    needs: Literal["", "root", "clock", "compiler"] = ""
    full: bool = False


class Fault(msgspec.Struct, frozen=True):
    name: str
    row: Row
    line: str
    server: str = ""
    full: bool = False


def faults() -> list[Fault]:
    """Return every fault; `make test` injects the first of each row."""
    made = []
    for row in read_yaml(HERE / "faults.yaml", tuple[Row, ...]):
        variants = [(*one, server) for one in (row.each or {"": ""}).items() for server in row.servers or ("",)]
        for number, (label, text, server) in enumerate(variants):
            name = ": ".join(filter(None, (row.name, label, server)))
            made.append(Fault(name, row, row.run.replace("{it}", text), server, row.full or number > 0))
    return made


FAULTS = faults()


def test_names_of_faults_are_unique() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def python_for_everybody() -> tuple[str, ...]:
    """Return a Python that another account may start, and its packages: ours may be in root's home."""
    account = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        words = [*account, "sh", "-c", 'exec "$0" -V', python]
        if not subprocess.run(words, capture_output=True, check=False).returncode:
            return (python, sysconfig.get_path("purelib"))
    pytest.skip("no Python that another account may start")


@pytest.fixture(scope="session")
def lying(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = tmp_path_factory.mktemp("lying") / "lie.so"
    words = ["cc", "-shared", "-fPIC", "-o", str(made), str(HERE / "lying_libc.c"), "-ldl"]
    if not shutil.which("cc") or subprocess.run(words, capture_output=True, check=False).returncode:
        return ""
    return str(made)


@pytest.fixture
def disk(tmp_path: Path, fault: Fault) -> Iterator[Path]:
    """Give a folder on a disk of 24 MB of its own if this user may mount one, else an ordinary folder."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = "size=24m,mode=0755" + (f",nr_inodes={fault.row.inodes}" if fault.row.inodes else "")
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and not subprocess.run(mount, capture_output=True, check=False).returncode
    try:
        yield folder
    finally:
        if mounted:
            subprocess.run(["umount", "-l", folder], check=True)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def port(fault: Fault, tmp_path: Path) -> Iterator[str]:
    if not fault.server:
        yield ""
        return
    file = tmp_path / "port"
    command = (sys.executable, HERE / "strange_server.py", fault.server, file)
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(REPOSITORY / "tests/support")}) as server:
        try:
            yield wait_for(lambda: file.read_text() if file.exists() else "", 300)
        finally:
            server.kill()


def unavailable(fault: Fault, disk: Path, lying: str) -> str:
    """Return what this host lacks for a fault, or ''."""
    if (fault.row.inodes or "fill" in fault.line) and not os.path.ismount(disk):
        return "needs a disk of its own: only root may mount one"
    if fault.row.needs == "root" and os.geteuid() != 0:
        return "needs another account or a mount: only root may have them"
    if fault.row.needs == "clock" and not FAKETIME:
        return "needs libfaketime: scripts/setup clock"
    return "needs a C compiler" if fault.row.needs == "compiler" and not lying else ""


@pytest.mark.parametrize(
    "fault", [pytest.param(fault, id=fault.name, marks=pytest.mark.full if fault.full else ()) for fault in FAULTS]
)
def test_fault_has_its_code_and_a_next_step(fault: Fault, disk: Path, port: str, lying: str, tmp_path: Path) -> None:
    if reason := unavailable(fault, disk, lying):
        pytest.skip(reason)
    python, *packages = python_for_everybody() if fault.row.needs == "root" else (sys.executable,)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    if fault.row.needs == "root":  # another account passes through them
        for folder in (disk, *disk.parents[:3]):
            folder.chmod(0o755)
    environment = {
        **os.environ,
        "E": f"{python} -m envbuilder",
        "REPOSITORY": str(REPOSITORY),
        "PYTHONPATH": os.pathsep.join((str(REPOSITORY), *packages)),
        "XDG_CACHE_HOME": str(disk / "cache"),
        "TMPDIR": str(temporary),
        "PORT": port,
        "FALSE_CLOCK": FAKETIME,
        "LYING": lying,
        "PYTHONDONTWRITEBYTECODE": "1",  # root would leave files for an account that cannot write them
    }
    script = f". {HERE / 'prelude.sh'}\n{fault.line}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=disk, env=environment, capture_output=True, timeout=600, check=False
    )
    printed = (done.stdout + done.stderr).decode(errors="replace")
    assert done.returncode in fault.row.codes, printed
    assert fault.row.says in printed
    assert "Traceback" not in printed
    assert "\x1b" not in printed
    assert not list(disk.rglob(".*.tmp")), "a temporary file was left"
    assert not list(temporary.iterdir()), "something was left in the temporary folder"
