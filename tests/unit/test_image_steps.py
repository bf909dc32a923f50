"""What a rendered step's own shell does: taken out of the Dockerfile and run, with a folder in place of the image."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from factories import lock

from envbuilder.catalog.store import load
from envbuilder.compat.resolve import resolve
from envbuilder.environment import Combination, Environment
from envbuilder.image import omissions
from envbuilder.image.context import templates
from envbuilder.image.omissions import Omissions
from envbuilder.image.render import render_context

LOCK = lock(numpy="2.1.3", tensorflow_cpu="2.20.0")
INSTALLER = """\
#!/bin/sh
echo "$@" >> {told}
case "$*" in
  *--offline*) echo "of the offline call" >&2; exit {offline} ;;
  *) mkdir -p {cache} && exit {online} ;;
esac
"""


def step(python: str = "3.11") -> str:
    """Return the instruction that installs TensorFlow in a runtime image, on one line."""
    found = resolve(Combination(tensorflow="2.20.0", os="debian-bookworm", flavor="cpu", form="runtime"), load())
    assert isinstance(found, Environment)
    given = msgspec.structs.replace(found, python=python)
    listed = omissions.write(Omissions(lock="sha256:1"))
    text = render_context(given, LOCK, templates(), left_out=listed)["Dockerfile"].decode().replace("\\\n", "")
    (line,) = (one for one in text.splitlines() if "/run/part/tensorflow.lock" in one)
    return " ".join(line.split())


def between(line: str, begin: str, end: str) -> str:
    """Cut a step from a beginning, which is kept, to an end, which is not."""
    return begin + line.partition(begin)[2].partition(end)[0]


def compiling(folder: Path, python: str = sys.executable) -> str:
    """Return the command that makes byte code, of a folder."""
    command = between(step(), "env -u PYTHONPATH", " && ")
    return command.replace("/opt/venv/bin/python", python).replace("/opt/venv/lib", str(folder))


def run(script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a step's shell in a folder."""
    given = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run(["/bin/sh", "-c", script], cwd=folder, env=given, capture_output=True, text=True, check=False)


def test_a_source_that_is_none_is_said_and_the_others_are_compiled(tmp_path: Path) -> None:
    """Distributions bring templates and sources of other Pythons: each is named, and ends no build."""
    (tmp_path / "good.py").write_text("ONE = 1\n")
    (tmp_path / "bad.py").write_text("print 'of Python 2'\n")
    ended = run(compiling(tmp_path), tmp_path)
    assert ended.returncode == 0
    assert "bad.py" in ended.stdout
    assert [path.name.partition(".")[0] for path in (tmp_path / "__pycache__").iterdir()] == ["good"]


def test_nothing_of_the_folder_where_a_step_starts_is_imported(tmp_path: Path) -> None:
    """A base whose working folder holds a `queue.py` compiles as any other does."""
    for name in ("compileall", "queue", "struct", "concurrent"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('another one was imported')\n")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "good.py").write_text("ONE = 1\n")
    ended = run(compiling(tmp_path / "lib"), tmp_path, PYTHONPATH=str(tmp_path))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert list((tmp_path / "lib" / "__pycache__").iterdir())


def test_byte_code_does_not_depend_on_the_variables_of_a_base(tmp_path: Path) -> None:
    """Its Python has one seed, and no other place or date for byte code, whatever an image sets."""
    stub = tmp_path / "python"
    stub.write_text('#!/bin/sh\necho "$PYTHONHASHSEED,$SOURCE_DATE_EPOCH,$PYTHONPYCACHEPREFIX,$PYTHONHOME"\n')
    stub.chmod(0o755)
    told = {"PYTHONHASHSEED": "7", "SOURCE_DATE_EPOCH": "1", "PYTHONPYCACHEPREFIX": "/tmp/c", "PYTHONHOME": "/usr"}
    assert run(compiling(tmp_path, str(stub)), tmp_path, **told).stdout == "0,,,\n"


@pytest.mark.parametrize(("python", "processes"), [("3.9", "1"), ("3.10", "1"), ("3.11", "0"), ("3.13", "0")])
def test_no_pool_where_pools_may_wait_for_ever(python: str, processes: str) -> None:
    """Python 3.9 and 3.10 compile in one process; 0 is as many as there are processors."""
    assert f"workers={processes})" in step(python)


def test_a_compiler_that_dies_ends_the_build(tmp_path: Path) -> None:
    """Nothing in the step takes a failure of Python itself for success."""
    tail = between(step(), "env -u PYTHONPATH", "no such end")
    assert run(tail.replace("/opt/venv/bin/python", "/bin/false"), tmp_path).returncode == 1


def installing(folder: Path, *, offline: int, online: int) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run a step's installation with an installer that ends as told; return how it ended, and each call's words."""
    stub, cache = folder / "uv", folder / "cache"
    stub.write_text(INSTALLER.format(told=folder / "told", cache=cache, offline=offline, online=online))
    stub.chmod(0o755)
    script = between(step(), "install() {", " && cd /run")
    ended = run(script.replace("/opt/tools/bin/uv", str(stub)).replace("/opt/venv/.uv", str(cache)), folder)
    return ended, (folder / "told").read_text().splitlines()


def test_wheels_that_were_kept_are_taken(tmp_path: Path) -> None:
    """What the builder holds is copied, nothing else is asked, and what the installer said is in the log."""
    ended, calls = installing(tmp_path, offline=0, online=1)
    assert (ended.returncode, len(calls)) == (0, 1)
    assert "--link-mode copy" in calls[0]
    assert "of the offline call" in ended.stdout


@pytest.mark.parametrize("code", [1, 2, 137])
def test_what_a_failed_attempt_left_is_not_believed(code: int, tmp_path: Path) -> None:
    """However it ended, all is installed again from the index, and the cache beside it goes."""
    ended, calls = installing(tmp_path, offline=code, online=0)
    assert (ended.returncode, len(calls)) == (0, 2)
    assert all(word in calls[1].split() for word in ("--reinstall", "hardlink", "--require-hashes"))
    assert "--offline" not in calls[1]
    assert not (tmp_path / "cache").exists()


def test_an_installation_that_fails_ends_the_build(tmp_path: Path) -> None:
    """The second call's failure is the step's."""
    ended, calls = installing(tmp_path, offline=2, online=3)
    assert (ended.returncode, len(calls)) == (3, 2)
