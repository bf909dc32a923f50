"""The lines of the README that install the project work with its wheel; those of `choose` can be resolved."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from table_rows import rows
from uv import find_uv_bin

from envbuilder.catalog.store import load
from envbuilder.compat.question import Question
from envbuilder.environment import Flavor
from envbuilder.image.lockfile import _target
from envbuilder.jobs.choose import choose_environment
from envbuilder.pypi.index_config import for_uv, read

pytestmark = pytest.mark.network

TOP = Path(__file__).parents[2]
LINES = re.search(r"```sh\n(uvx .*?)```", (TOP / "README.md").read_text(), re.DOTALL)
assert LINES is not None
LINES_OF_README = [line.partition("#")[0].strip() for line in LINES[1].splitlines()]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    words = [find_uv_bin(), "build", "--wheel", "--quiet", "-o", str(folder), str(TOP)]
    subprocess.run(words, check=True, cwd=folder, env=os.environ | for_uv(read()))
    return folder


@pytest.mark.parametrize("line", LINES_OF_README)
def test_line_of_the_readme_installs_a_command_that_works_in_an_empty_folder(
    line: str, wheels: Path, tmp_path: Path
) -> None:
    programs, empty = tmp_path / "bin", tmp_path / "empty"
    programs.mkdir()
    empty.mkdir()
    links = [str(wheels), *read().links]
    environment = {
        **os.environ,
        **for_uv(read()),
        "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PIP_FIND_LINKS": " ".join(links),
        "UV_FIND_LINKS": ",".join(links),
        "UV_TOOL_DIR": str(tmp_path / "tools"),
        "UV_TOOL_BIN_DIR": str(programs),
        "PIPX_HOME": str(tmp_path / "pipx"),
        "PIPX_BIN_DIR": str(programs),
    }
    words = line.split()
    if words[0] == "pip":
        subprocess.run([find_uv_bin(), "venv", "--quiet", "--seed", tmp_path / "venv"], check=True)
        programs = tmp_path / "venv" / "bin"
        words[0] = str(programs / "pip")
    if words[0] == "pipx" and shutil.which("pipx") is None:
        words = ["uvx", *words]
    done = subprocess.run(words, check=True, cwd=empty, env=environment, capture_output=True, text=True)
    if words[-1] != "doctor":
        command = [str(programs / "envbuilder"), "choose", "--gpu", "A100", "--driver", "535"]
        done = subprocess.run(command, check=True, cwd=empty, capture_output=True, text=True)
    assert re.search(r"tf2\.\d+\.\d+-py3", done.stdout)
    assert not list(empty.iterdir())


@pytest.mark.full
@pytest.mark.parametrize("flavor", ["cpu", "gpu"])
@rows
def test_packages_that_choose_installs_can_be_resolved(
    release: str, python: str, flavor: Flavor, tmp_path: Path
) -> None:
    asked = Question(tensorflow=release, python=python or None, driver="580.65.06", gpus=("A100",))
    found = choose_environment(asked, flavor, "runtime", tmp_path, load())
    assert found.environment is not None
    pip, install, *requirements = shlex.split(found.commands["install"].partition(" && ")[0])
    assert (pip, install) == ("pip", "install")
    words = [find_uv_bin(), "pip", "compile", "--quiet", *_target(found.environment, "2.36"), "-"]
    index = os.environ | for_uv(read())
    done = subprocess.run(
        words, cwd=tmp_path, env=index, input="\n".join(requirements), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"{found.environment.package}=={found.environment.tensorflow}" in done.stdout
