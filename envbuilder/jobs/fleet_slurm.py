"""Write what is left of a fleet's proofs as Slurm's job arrays: a script a kind of host, a task an image."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from envbuilder.jobs.fleet_task import Task
from envbuilder.jobs.served_suite import Runtime
from envbuilder.jobs.slurm_script import OURS, file_name, script
from envbuilder.workspace import read_users, write_atomically, writing


def batches(tasks: Iterable[Task], matrix: str, runtime: Runtime = "engine") -> Mapping[str, str]:
    """Return scripts by file name, one for each kind of host on which something is left.

    Raises UsageError for a kind with a GPU that no row of the fleet file gives a constraint: any node would do.
    """
    kinds: dict[str, list[Task]] = {}
    for task in {task.name: task for task in tasks}.values():
        kinds.setdefault(task.kind, []).append(task)
    return {file_name(kind): _script(kind, same, matrix, runtime) for kind, same in kinds.items()}


def write_batches(scripts: Mapping[str, str], folder: Path) -> Iterable[Path]:
    """Write the scripts into a folder; yields their paths. Ours for kinds on which nothing is left are removed."""
    for old in folder.glob("*.sbatch"):
        if old.name not in scripts and read_users(old).startswith(OURS.encode()):
            with writing(old):
                old.unlink(missing_ok=True)
    for name, content in scripts.items():
        write_atomically(folder / name, content.encode())
        yield folder / name


def _script(kind: str, tasks: list[Task], matrix: str, runtime: Runtime) -> str:
    name = file_name(kind)
    title = (
        f"{kind}: {len(tasks)} of {matrix}, each validated by its digest on a node of this kind, the verdict attached."
    )
    log = f"{Path(name).stem}-%A_%a.log"
    return script(tasks, title, name="envbuilder", file=name, log=log, runtime=runtime)
