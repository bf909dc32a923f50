# ruff: noqa: INP001, T201 - benchmarks are programs, not a package, and print what they measured
"""Measure what a task costs an executor: 2,000 tiny ones on this host's own, and on four Dask workers.

A task runs a program that does nothing, as the executors run `envbuilder`: what is left is the executor's own cost.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from dask_cluster import dask_cluster  # type: ignore[import-not-found]  # of the tests

from envbuilder.jobs.dask_executor import DaskExecutor, worker_command
from envbuilder.jobs.fan_out import fan_out
from envbuilder.jobs.fleet_task import Ended, Executor, Task
from envbuilder.jobs.local_executor import LocalExecutor
from envbuilder.support import subprocesses

TASKS, WORKERS = 2_000, 4
NOTHING = ("/bin/true",)


def tasks() -> list[Task]:
    """Make tasks that bear names of their own and an order of a proof's size."""
    return [Task(f"task-{number}", (), b"x" * 2_000, "", "", "x86_64") for number in range(TASKS)]


def measured(name: str, executor: Executor) -> None:
    """Run them all and print what they took."""
    begun = time.perf_counter()
    with executor:
        came = fan_out(tasks(), executor, is_left=lambda _: False)
    took = time.perf_counter() - begun
    done = sum(one.ended is not None and one.ended.code == 0 for one in came.values())
    figures = {"executor": name, "tasks": TASKS, "done": done, "seconds": round(took, 2)}
    print(json.dumps({**figures, "tasks_per_second": round(done / took, 1)}), flush=True)


def here(_: Task) -> Ended:
    """Do a task as the worker does."""
    return Ended(subprocesses.run(NOTHING, within=60, stdin=b"x" * 2_000).code)


def main() -> None:
    """Measure both."""
    measured("local", LocalExecutor(here))
    with tempfile.TemporaryDirectory() as folder, dask_cluster(Path(folder)) as cluster:
        for number in range(WORKERS):
            words = worker_command(cluster.address, {"host/x86_64": 1}, f"w{number}")
            cluster.start(f"w{number}", *words)
        variables = dict(cluster.variables)
        command = (sys.executable, __file__, cluster.address)
        subprocess.run(command, env={**os.environ, **variables}, check=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measured(f"dask, {WORKERS} workers, TLS", DaskExecutor(sys.argv[1], NOTHING))
    else:
        main()
