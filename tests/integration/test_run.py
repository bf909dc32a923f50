"""The main job on a real engine: from a matrix to a verdict, nothing redone, nothing left behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import docker
import pytest
from command_line import envbuilder

ROOT = Path(__file__).parents[2]
QUICKSTART = "tf2.20.0-py311-cpu-bookworm-runtime"

pytestmark = [pytest.mark.engine, pytest.mark.network]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder outside the checkout that holds the committed context of the quickstart environment."""
    root = tmp_path_factory.mktemp("workspace")
    shutil.copytree(ROOT / "images" / QUICKSTART, root / "images" / QUICKSTART)
    shutil.copy(ROOT / "images" / "README.md", root / "images")
    return root


@pytest.fixture(scope="module")
def first(folder: Path) -> subprocess.CompletedProcess[str]:
    return envbuilder(folder, "run", "--format", "json")


def test_quickstart_passes_and_is_not_done_twice(folder: Path, first: subprocess.CompletedProcess[str]) -> None:
    assert first.returncode == 0, first.stderr
    row = json.loads(first.stdout)["rows"][0]
    assert (row["verdict"], row["level"], row["environment"]) == ("PASSED", "cpu", QUICKSTART)
    verdict = json.loads((folder / row["path"]).read_text())
    assert {check["outcome"] for check in verdict["checks"]} == {"passed"}
    assert verdict["image"]["id"] == json.loads((folder / "out" / QUICKSTART / "image.json").read_text())["image"]

    begun = time.monotonic()
    second = envbuilder(folder, "run", "--format", "json")
    row = json.loads(second.stdout)["rows"][0]
    assert second.returncode == 0
    assert (row["built"], row["validated"], row["verdict"]) == ("unchanged", "unchanged", "PASSED")
    assert time.monotonic() - begun < 20, "nothing is built or validated: an import of TensorFlow alone takes longer"


@pytest.mark.usefixtures("first")
def test_tensorboard_starts(folder: Path) -> None:
    reference = json.loads((folder / "out" / QUICKSTART / "image.json").read_text())["reference"]
    said = docker.from_env().containers.run(reference, ["tensorboard", "--version"], network_mode="none", remove=True)
    assert said.decode().startswith("2.20.")


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize(
    "asked", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.full)], ids=lambda asked: asked.name
)
def test_interrupt_leaves_no_container(folder: Path, asked: signal.Signals) -> None:
    client = docker.from_env()
    kept = (folder / "out" / QUICKSTART / "verdict.json").read_bytes()
    process = subprocess.Popen(
        [sys.executable, "-m", "envbuilder", "run", "--fresh"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        # A shell that runs this suite in the background ignores SIGINT, and its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no threads here
    )
    label = f"org.envbuilder.run={process.pid}"
    while not client.containers.list(filters={"label": label}):
        assert process.poll() is None, "validation never began"
        time.sleep(0.1)
    process.send_signal(asked)
    assert process.wait(timeout=60) == 130
    assert client.containers.list(all=True, filters={"label": label}) == []
    assert (folder / "out" / QUICKSTART / "verdict.json").read_bytes() == kept


def test_final_image_holds_no_tools_and_no_trace_of_the_host(folder: Path) -> None:
    script = (
        "import os, shutil, sys, glob;"
        "print(os.getuid(), [t for t in ('gcc', 'cc', 'uv', 'make') if shutil.which(t)],"
        " os.path.exists('/opt/tools'), os.listdir('/run/host') if os.path.isdir('/run/host') else [],"
        " glob.glob('/root/.cache/*/*'), glob.glob('/var/lib/apt/lists/*Packages*'), sys.prefix)"
    )
    reference = f"envbuilder/tensorflow:{QUICKSTART}"
    said = docker.from_env().containers.run(reference, ["python", "-c", script], network_mode="none", remove=True)
    assert said.decode().strip() == "1000 [] False [] [] [] /opt/venv"
