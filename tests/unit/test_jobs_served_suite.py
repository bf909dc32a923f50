"""A job whose image an unprivileged runtime runs: judged from beside it, with nothing of the judge's inside."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from factories import digest
from fleet_tasks import proof_of

from envbuilder.compat.fleet import FleetHost
from envbuilder.errors import UsageError
from envbuilder.jobs.fleet_slurm import batches
from envbuilder.jobs.fleet_task import Task
from envbuilder.jobs.served_suite import RUNTIMES, Runtime

AMPERE = FleetHost(name="ampere", driver="550.54.15", gpus=("A100",), constraint="a100")


def task(image: str = "one", *, kind: str = "A100/550.54.15", simulate: str = "") -> Task:
    return proof_of(image, kind, (AMPERE,), repository="registry.example.org:5000/ml/tf", simulate=simulate)


_START = {
    "apptainer": 'echo "$@" >{tools}/words; for last; do :; done; exchange=$(ls -d {work}/beside-*/exchange)',
    "srun": 'echo "$@" >{tools}/words; for last; do :; done; exchange=$(ls -d {work}/beside-*/exchange)',
}
"""What stands for the runtime: it says how it was called, and runs what it is to run where the folder lies."""


def run(
    runtime: Runtime,
    folder: Path,
    tasks: tuple[Task, ...],
    number: int = 0,
    *,
    starts: bool = True,
    served: str = "",
    judge: str = ': >"$at/over"; exit 8',
) -> tuple[subprocess.CompletedProcess[str], Path]:
    """Run a script as a node does, by a runtime that is a shell, and an envbuilder that waits until it is served."""
    (script,) = batches(tasks, "m", runtime).values()
    tools, work = folder / "bin", folder / "work"
    tools.mkdir()
    for program, text in _START.items():
        serving = 'exec sh -c "$(printf %s "$last" | sed "s#/exchange#$exchange#g")"' if starts else "exit 7"
        body = f"#!/bin/sh\n{text.format(tools=tools, work=work)}\nenv >{tools}/variables\n{served or serving}\n"
        (tools / program).write_text(body)
    (tools / "envbuilder").write_text(
        f'#!/bin/sh\necho "$@"; cat >{tools}/order; at=$(ls -d {work}/beside-*/exchange); ls "$at"; '
        f'echo "$ENVBUILDER_SIGNING_KEY"; {judge}\n'
    )
    for path in tools.iterdir():
        path.chmod(0o755)
    variables = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "SLURM_ARRAY_TASK_ID": str(number),
        "ENVBUILDER_SIGNING_KEY": "/k",
        "ENVBUILDER_WORK": str(work),
    }
    words = ["bash", "-c", script]
    return subprocess.run(words, env=variables, capture_output=True, text=True, check=False, timeout=60), tools


@pytest.mark.parametrize("runtime", RUNTIMES[1:])
def test_the_image_is_served_beside_its_judge(runtime: Runtime, tmp_path: Path) -> None:
    """The judge begins when the image is there, its exit code is the job's, and nothing stays behind.

    The container's runtime does not even know where the key lies, and the order is the judge's alone.
    """
    tasks = (task("one"), task("two"))
    ended, tools = run(runtime, tmp_path, tasks, 1)
    assert ended.returncode == 8, ended.stderr
    called, listed, key = ended.stdout.splitlines()
    assert called.startswith("fleet prove - --beside ")
    assert (listed, key) == ("here", "/k")
    assert (tools / "order").read_bytes() == tasks[1].order
    said = (tools / "words").read_text()
    assert digest("two") in said
    assert digest("one") not in said
    variables = dict(line.partition("=")[::2] for line in (tools / "variables").read_text().splitlines())
    assert "ENVBUILDER_SIGNING_KEY" not in variables
    assert not list((tmp_path / "work").iterdir()), "what the two shared is gone"


@pytest.mark.parametrize("runtime", RUNTIMES[1:])
def test_an_image_that_does_not_start_is_a_failed_host(runtime: Runtime, tmp_path: Path) -> None:
    """Nothing is judged, nobody waits, and it may be begun again: exit code 5."""
    ended, tools = run(runtime, tmp_path, (task(),), starts=False)
    assert ended.returncode == 5
    assert f"{runtime} did not start the image" in ended.stderr
    assert not (tools / "order").exists()


@pytest.mark.parametrize(
    ("judge", "code"),
    [("exit 2", 2), ("kill -KILL $$", 137), ('mkfifo "$at/go"; exit 127', 127)],
    ids=["refused", "killed", "waits-for-a-word"],
)
def test_a_judge_that_says_nothing_holds_no_node(
    judge: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job ends with the judge's code, though the image still waits: for its start, or in a pipe for a word."""
    monkeypatch.setattr("envbuilder.jobs.served_suite._ENDS_S", 1)
    ended, _ = run("apptainer", tmp_path, (task(),), judge=judge)
    assert ended.returncode == code, ended.stderr
    assert not list((tmp_path / "work").iterdir())


def test_an_image_that_hears_no_word_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime that heeds neither its folder nor a request to end holds no node either."""
    monkeypatch.setattr("envbuilder.jobs.served_suite._ENDS_S", 1)
    deaf = "trap '' TERM; : >\"$exchange/here\"; while :; do sleep 0.1; done"
    ended, _ = run("apptainer", tmp_path, (task(),), served=deaf)
    assert ended.returncode == 8, ended.stderr


def test_an_image_that_never_comes_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime that hangs while it fetches is a failed host after its time: exit code 5, and nothing is judged."""
    monkeypatch.setattr("envbuilder.jobs.served_suite._STARTS_S", 1)
    monkeypatch.setattr("envbuilder.jobs.served_suite._ENDS_S", 1)
    ended, tools = run("apptainer", tmp_path, (task(),), served="exec sleep 300")
    assert ended.returncode == 5
    assert "apptainer did not start the image in 1 s" in ended.stderr
    assert not (tools / "order").exists()


def test_each_runtime_is_asked_in_its_own_words() -> None:
    """The image by its digest, the GPU where one is meant; no home, no variables and no process of the node's."""
    (apptainer,) = batches((task(),), "m", "apptainer").values()
    (pyxis,) = batches((task(),), "m", "pyxis").values()
    (plain,) = batches((task(kind=""),), "m", "apptainer").values()
    assert f"registry.example.org:5000/ml/tf@{digest('one')}" in apptainer
    assert shlex.quote(f"registry.example.org:5000#ml/tf@{digest('one')}") in pyxis
    for word in ("--containall", "--cleanenv", "--nv", '"docker://$image"'):
        assert word in apptainer
    assert "--nv" not in plain
    for word in ("--no-container-mount-home", "--container-readonly", "NVIDIA_VISIBLE_DEVICES=all", "--overlap"):
        assert word in pyxis
    for script in (apptainer, pyxis, plain):
        assert subprocess.run(["bash", "-n", "-c", script], check=False, capture_output=True).returncode == 0
        assert "ENVBUILDER_SIGNING_KEY" in script


def test_what_needs_an_engine_is_refused() -> None:
    """A rehearsal plays a driver by the engine's mounts, and a build is the engine's: no script says otherwise."""
    with pytest.raises(UsageError, match="plays a driver"):
        batches((task(simulate="driver=550.54.15,gpu=A100"),), "m", "apptainer")
    building = Task("envbuilder-make", ("fleet", "make", "-"), b"{}", "", "", "x86_64")
    with pytest.raises(UsageError, match="nothing is built"):
        batches((building,), "m", "pyxis")
