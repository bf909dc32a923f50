"""The upgrade from Keras 2 to Keras 3 on a real engine: what changed, who is hurt, and where it began."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bare_machine
import docker
import pytest
from factories import workspace
from upgrades import USERS_TESTS
from waiting import wait_for

from envbuilder.engine.docker import connect

ROOT = Path(__file__).parents[2]
OLD, NEW = "tf2.15.1-py311-cpu-bookworm-runtime", "tf2.16.2-py311-cpu-bookworm-runtime"
Process = subprocess.Popen[str]
pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.full]


def start(folder: Path, *words: str, program: tuple[str, ...] = ("-m", "envbuilder"), **env: str) -> Process:
    return subprocess.Popen(
        [sys.executable, *program, *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
    )


def ended(process: Process) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=1800)
    return process.returncode, out, err


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = workspace(tmp_path_factory.mktemp("workspace"), OLD, NEW, "shared").root
    (root / "our_tests").mkdir()
    (root / "our_tests" / "test_users.py").write_text(USERS_TESTS)
    return root


@pytest.fixture(scope="module")
def answer(folder: Path) -> Iterator[Any]:
    """Run README's example once, on a machine without registry, base and cache.

    It has three rounds, since durations are not what this is about.
    """
    (written,) = re.findall(r"`envbuilder (upgrade [0-9][^`\n]*)", (ROOT / "README.md").read_text())
    assert written.startswith("upgrade 2.15.1 2.16.2 --suite our_tests/")
    words = (*shlex.split(written), "--rounds", "3", "--format", "json")
    cache = str(folder / "cache")
    code, out, err = ended(start(folder, *words, program=(bare_machine.__file__,), XDG_CACHE_HOME=cache))
    assert code == 1, err
    yield json.loads(out)
    engine = connect()
    for name in ("tensorflow", "base"):
        for tag in engine.names(f"{bare_machine.PREFIX}/{name}"):
            engine.remove(tag)


def clause(answer: Any, name: str) -> Any:
    return next(one for one in answer["clauses"] if one["clause"] == name)


def test_newly_failing_user_tests_reject_with_their_messages(answer: Any) -> None:
    assert (answer["decision"], answer["gaps"]) == ("REJECT", [])
    assert answer["row"] == "Python 3.11 on debian-bookworm"
    broken = clause(answer, "tests-newly-failed")
    assert broken["state"] == "violated"
    (missing,) = broken["details"]
    assert missing.startswith("test_users.py::test_estimator_is_there: passed → failed: ")
    assert "no attribute 'estimator'" in missing
    assert answer["differences"]["tests_run"] == 2


def test_decision_s_lines_can_be_checked_by_hand(answer: Any, folder: Path) -> None:
    packages = {row["name"]: row for row in answer["differences"]["packages"]}
    assert packages["keras"]["old"].startswith("2.15.")
    assert packages["keras"]["new"].startswith("3.")
    assert packages["tensorflow-estimator"]["change"] == "removed"
    assert {"keras", "tensorflow-estimator"} <= {row["name"] for row in answer["differences"]["requirements"]}
    assert answer["differences"]["outputs_compared"] > 50
    removed = answer["differences"]["surface"]["removed"]
    assert {"estimator", "keras.layers.LocallyConnected1D"} <= set(removed)
    assert "keras.layers.Dense" not in removed
    for side in ("old", "new"):
        image = docker.from_env().images.get(answer[side]["image"]["id"])
        assert image.attrs["Size"] == answer[side]["image"]["size"]
        assert answer[side]["verdict"] == "PASSED"
    ratio = answer["new"]["image"]["size"] / answer["old"]["image"]["size"]
    assert answer["differences"]["size_ratio"] == pytest.approx(ratio)
    assert json.loads((folder / "out/upgrades/2.15.1_2.16.2_cpu/upgrade.json").read_text()) == answer
    assert "REJECT" in (folder / "out/upgrades/2.15.1_2.16.2_cpu/upgrade.md").read_text()


def test_upgrade_writes_below_out_and_not_to_images(answer: Any, folder: Path) -> None:
    assert {path.name for path in (folder / "images").iterdir() if path.is_dir()} == {OLD, NEW, "shared"}


def test_durations_after_three_rounds_are_unknown(answer: Any) -> None:
    assert len(answer["differences"]["timings"]) >= 9
    assert {row["change"] for row in answer["differences"]["timings"]} == {"unclear"}
    assert clause(answer, "start-up-ratio")["state"] == "unknown"


def test_killed_bisection_resumes_and_finds_the_release(answer: Any, folder: Path) -> None:
    words = ("upgrade", "--bisect", "2.15.1", "2.16.2", "--format", "json", "--")
    command = ("python", "-c", "import tensorflow as tf; tf.estimator")
    first = start(folder, *words, *command)
    wait_for(lambda: first.poll() is not None or [*(folder / "out").glob("bisects/*.json")], 900)
    assert first.poll() is None, first.communicate()[1]
    first.send_signal(signal.SIGKILL)
    first.communicate()
    (kept,) = (folder / "out").glob("bisects/*.json")
    before = json.loads(kept.read_text())
    assert before["result"] is None

    code, out, err = ended(start(folder, *words, *command))
    assert code == 0, err
    found = json.loads(out)
    assert found["result"] == {"last_good": "2.15.1", "first_bad": "2.16.1", "between": [], "doubt": ""}
    assert found["answers"][: len(before["answers"])] == before["answers"]
    assert found["images"] <= found["most_images"]
    assert "continuing with" in err
