"""Broken environments: `diagnose` names the cause, its command is carried out, and the predicted answer follows.

The driver is simulated: TensorFlow lists a GPU and cannot compute on it. Copies of three installations are broken.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from envbuilder.catalog.store import load
from envbuilder.simulated import compiler, profile

pytestmark = [pytest.mark.full, pytest.mark.network, pytest.mark.timeout(600), pytest.mark.xdist_group("diagnose")]

INSTALLATIONS = {
    "gpu": ("tensorflow[and-cuda]==2.20.0",),
    "older": ("tensorflow==2.15.1",),
    "cpu": ("tensorflow-cpu==2.20.0",),
}


@dataclass
class World:
    """The folder of the copies, the simulated driver in it, and the installations."""

    folder: Path
    driver: dict[str, str] = field(default_factory=dict)

    def uv(self, *words: str | Path) -> None:
        subprocess.run([find_uv_bin(), *words], check=True, capture_output=True)

    def pip(self, python: Path, *words: str) -> None:
        self.uv("pip", words[0], "--quiet", "--python", python, *words[1:])

    def copy(self, name: str, of: str) -> Path:
        subprocess.run(["cp", "-al", self.folder / of, self.folder / name], check=True)
        return self.folder / name / "bin" / "python"

    def path(self, name: str) -> dict[str, str]:
        """Put a folder before the driver on the loader's path."""
        return {"LD_LIBRARY_PATH": f"{self.folder / name}:{self.driver['LD_LIBRARY_PATH']}"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("environments"))
    simulation = compiler.simulation(profile.parse("driver=570.86.15,gpu=A100", load()), root=str(made.folder))
    for name, content in {**simulation.files, "stubs/libcuda.so.1": compiler.stub()}.items():
        (made.folder / name).parent.mkdir(exist_ok=True)
        (made.folder / name).write_bytes(content)
    made.driver = dict(simulation.env)
    for name, wanted in INSTALLATIONS.items():
        made.uv("venv", "--quiet", "--python", "3.11", made.folder / name)
        made.pip(python := made.folder / name / "bin" / "python", "install", *wanted)
        # The byte code of the first import is shared by all copies.
        command: list[str | Path] = [python, "-c", "import tensorflow"]
        subprocess.run(command, check=True, env=os.environ | {"PYTHONDONTWRITEBYTECODE": ""})
    yield made
    shutil.rmtree(made.folder)  # 9 GB


def no_files_of_cuda(_: World, python: Path) -> None:
    site = next(python.parents[1].glob("lib/python*/site-packages"))
    for name in ("cublas", "cuda_runtime", "cufft", "cusolver", "cusparse", "cudnn"):
        shutil.rmtree(site / "nvidia" / name)


def python_313(world: World, python: Path) -> None:
    """Put the files of Python 3.11 below Python 3.13, as a copied site-packages does."""
    home = python.parents[1]
    places = (*Path.home().glob(".pyenv/versions/3.13.*/bin/python3"), Path("/usr/bin/python3.13"))
    interpreter = next((path for path in places if path.exists()), None)
    if interpreter is None:
        pytest.skip("no Python 3.13 here")
    world.uv("venv", "--quiet", "--python", interpreter, home.with_name("newer"))
    (home / "lib" / "python3.11").rename(home.with_name("newer") / "lib" / "python3.13-files")
    newer = home.with_name("newer")
    shutil.rmtree(newer / "lib" / "python3.13")
    (newer / "lib" / "python3.13-files").rename(newer / "lib" / "python3.13")
    shutil.rmtree(home)
    newer.rename(home)


def older_cublas(world: World, _: Path) -> None:
    (world.folder / "wrong").mkdir()
    output = world.folder / "wrong" / "libcublasLt.so.12"
    subprocess.run(["cc", "-shared", "-o", output, "-x", "c", "/dev/null"], check=True)


def no_avx(world: World, _: Path) -> None:
    source = Path(__file__).parents[1] / "data" / "without_avx.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(world.folder / "no_avx.so"), str(source), "-ldl"], check=True)


def piped(*words: str) -> Callable[[World, Path], None]:
    return lambda world, python: world.pip(python, *words)


def nothing(_: World, __: Path) -> None: ...


@dataclass(frozen=True)
class Broken:
    """A broken copy, its first fault, and what follows its fix: ``GPU`` is listed, or the code of the next fault."""

    of: str
    code: str
    then: str
    breaks: Callable[[World, Path], None] = nothing
    env: Callable[[World], dict[str, str]] = lambda world: world.driver
    fix: str | None = None  # None: the command of `diagnose`; '' if nothing in this environment can fix it


CASES = {
    "no-driver": Broken("gpu", "GPU_NOT_VISIBLE", "GPU", env=lambda _: {}, fix="export {driver}"),
    "no-cudnn": Broken("gpu", "MISSING_LIBRARY", "GPU", piped("uninstall", "nvidia-cudnn-cu12")),
    "no-files-of-cuda": Broken("gpu", "MISSING_LIBRARY", "GPU", no_files_of_cuda),
    "two-tensorflows": Broken(
        "gpu", "PACKAGE_CONFLICT", "GPU", piped("install", "--no-deps", "tensorflow-cpu==2.20.0")
    ),
    "numpy-2": Broken("older", "NUMPY_ABI", "MISSING_LIBRARY", piped("install", "numpy==2.2.6")),
    "protobuf": Broken("older", "PROTOBUF_ABI", "MISSING_LIBRARY", piped("install", "protobuf==3.19.6")),
    "python-3.13": Broken("older", "PYTHON_UNSUPPORTED", "", python_313, fix=""),  # 4 GB of CUDA 12.2
    "tensorflow-cpu": Broken("cpu", "NOT_A_GPU_BUILD", "GPU"),
    "library-path": Broken("gpu", "LIBRARY_PATH", "GPU", older_cublas, lambda w: w.driver | w.path("wrong")),
    "stub": Broken("gpu", "STUB_LIBCUDA", "GPU", env=lambda w: w.driver | w.path("stubs")),
    "hidden": Broken("gpu", "GPU_NOT_VISIBLE", "GPU", env=lambda w: w.driver | {"CUDA_VISIBLE_DEVICES": "-1"}),
    "no-avx": Broken("older", "CPU_FEATURE_MISSING", "", no_avx, lambda w: {"LD_PRELOAD": f"{w.folder}/no_avx.so"}, ""),
}


def diagnosed(python: Path, env: dict[str, str], before: str = ":") -> dict[str, Any]:
    """Diagnose a Python in a shell, after another command there."""
    # The variables of a case are for the Python that is diagnosed: LD_PRELOAD would end this one as well.
    words = [sys.executable, "-m", "envbuilder", "diagnose", "--format", "json", "--python", str(python)]
    path = f"{Path(find_uv_bin()).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", f"{before} >&2 && {shlex.join(words)}"], capture_output=True, text=True, check=False,
        env={**os.environ, **env, "PATH": path},
    )  # fmt: skip
    assert done.returncode in {1, 8}, done.stderr  # a simulated driver does not compute
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", CASES)
def test_fix_of_a_broken_environment_leads_to_the_predicted_answer(world: World, name: str) -> None:
    case = CASES[name]
    python = world.copy(name, case.of)
    try:
        case.breaks(world, python)
        first = diagnosed(python, case.env(world))
        codes = [row["code"] for row in first["faults"]]
        assert codes[0] == case.code, first
        if case.fix != "":
            driver = " ".join(f"{key}={value}" for key, value in world.driver.items())
            fix = case.fix.format(driver=driver) if case.fix else first["faults"][0]["command"]
            after = diagnosed(python, case.env(world), fix)
            found = "GPU" if "GPU" in after["captured"]["devices"] else next(row["code"] for row in after["faults"])
            assert found == case.then, after
            assert codes[1:] == ([] if case.then == "GPU" else [case.then])
    finally:
        shutil.rmtree(python.parents[1])
