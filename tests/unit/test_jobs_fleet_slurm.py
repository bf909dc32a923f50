"""What is left, as Slurm's job arrays: the right tasks on the right nodes, no secret in a file, nothing to inject."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import msgspec
import pytest
from factories import digest
from fleet_tasks import proof_of

from envbuilder.choice import read_fleet
from envbuilder.compat.fleet import FleetHost
from envbuilder.errors import InputError, UsageError
from envbuilder.jobs.fleet_slurm import batches, write_batches
from envbuilder.jobs.fleet_task import ProofOrder, Task

FLEET = (
    FleetHost(name="bare", driver="550.54.15", gpus=("A100",)),
    FleetHost(name="ampere", driver="550.54.15", gpus=("A100",), constraint="a100&driver-550.54.15"),
    FleetHost(name="plain"),
)


def task(kind: str, image: str, hosts: tuple[FleetHost, ...] = FLEET[:2]) -> Task:
    return proof_of(image, kind, hosts, trusted=("a 'public' key\n$(touch injected)",))


GPU = (
    task("A100/550.54.15", "one"),
    task("A100/550.54.15", "two"),
    task("A100/550.54.15", "one"),
    task("any host", "cpu", FLEET[2:]),
)


def test_a_script_a_kind_and_a_task_an_image() -> None:
    """What is asked for twice is one task; the array's bounds are those of its images; a GPU's kind names its nodes."""
    scripts = batches(GPU, "m")
    assert sorted(scripts) == ["A100-550.54.15.sbatch", "any-host.sbatch"]
    gpu = scripts["A100-550.54.15.sbatch"]
    assert re.findall(r"sha256:[0-9a-f]{64}", gpu) == [digest("one"), digest("two")]
    assert "#SBATCH --array=0-1\n" in gpu
    assert "#SBATCH --constraint=a100&driver-550.54.15\n" in gpu
    assert "#SBATCH --constraint" not in scripts["any-host.sbatch"]
    for script in scripts.values():
        head = script[: script.index("set -euo")]
        assert all(line.startswith("#") for line in head.splitlines()), "Slurm reads directives before any command"


def test_a_kind_that_slurm_cannot_tell_is_refused() -> None:
    """Without a constraint the job would run on any node, and say something true about the wrong kind."""
    with pytest.raises(UsageError, match="how Slurm calls"):
        batches((task("A100/550.54.15", "one", FLEET[:1]),), "m")


@pytest.mark.parametrize("text", ["a b", "a\nb", "$(id)", "a;b", "'", "a100 --wrap=x"])
def test_a_constraint_is_no_place_for_a_command(text: str, tmp_path: Path) -> None:
    """What could leave its line, or be a command, is refused as a fault of the fleet file."""
    (tmp_path / "fleet.yaml").write_bytes(b"- " + msgspec.json.encode({"name": "x", "constraint": text}) + b"\n")
    with pytest.raises(InputError, match="constraint"):
        read_fleet(tmp_path / "fleet.yaml")


def run(script: str, folder: Path, task: int, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script as a node does, with an envbuilder that prints how it was called."""
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    (tools / "envbuilder").write_text('#!/bin/sh\necho "$PWD" "$@"; cat\n')
    (tools / "envbuilder").chmod(0o755)
    variables = {"PATH": f"{tools}:{os.environ['PATH']}", "SLURM_ARRAY_TASK_ID": str(task), **environment}
    return subprocess.run(["bash", "-c", script], env=variables, capture_output=True, text=True, check=False)


def test_a_task_validates_its_own_image_on_the_nodes_own_disk(tmp_path: Path) -> None:
    """Task n gets order n on its standard input, and works where it was told; the key's path stays a variable."""
    script = batches(GPU, "m")["A100-550.54.15.sbatch"]
    work = tmp_path / "work"
    for number, image in enumerate(("one", "two")):
        ended = run(script, tmp_path, number, ENVBUILDER_SIGNING_KEY="/k", ENVBUILDER_WORK=str(work))
        called, order = ended.stdout.split("\n", 1)
        assert called == f"{work} fleet prove -", ended.stderr
        assert order.encode() == GPU[number].order, "every byte of it, whatever a shell might make of it"
        assert msgspec.json.decode(order, type=ProofOrder).digest == digest(image)
    assert not list(tmp_path.rglob("injected"))
    node = run(script, tmp_path, 0, ENVBUILDER_SIGNING_KEY="/k", ENVBUILDER_WORK=str(work), SLURMD_NODENAME="n1")
    assert node.stdout.startswith(f"{work}/n1 "), "a folder that nodes share holds one of each"
    assert work.stat().st_mode & 0o077 == 0


def test_without_a_key_or_beyond_the_array_nothing_runs(tmp_path: Path) -> None:
    """A job that was submitted wrongly ends at once and says why."""
    script = batches(GPU, "m")["A100-550.54.15.sbatch"]
    without = run(script, tmp_path, 0, ENVBUILDER_WORK=str(tmp_path / "w"))
    assert without.returncode != 0
    assert "ENVBUILDER_SIGNING_KEY" in without.stderr
    beyond = run(script, tmp_path, 2, ENVBUILDER_SIGNING_KEY="/k", ENVBUILDER_WORK=str(tmp_path / "w"))
    assert beyond.returncode != 0
    assert not beyond.stdout


def test_scripts_of_what_is_done_are_removed(tmp_path: Path) -> None:
    """Written again later, the folder holds what is left then, and files of others stay."""
    for name in ("notes.txt", "train.sbatch"):
        (tmp_path / name).write_text("#!/bin/bash\n# mine\n")
    assert len(list(write_batches(batches(GPU, "m"), tmp_path))) == 2
    list(write_batches(batches(GPU[3:], "m"), tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["any-host.sbatch", "notes.txt", "train.sbatch"]
