"""Jobs of Slurm as an executor sees them: how one that left the queue ended, by what scontrol says of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fleet_tasks import plain_task

from envbuilder.errors import InfrastructureError
from envbuilder.jobs.fleet_task import Ended, LostError, Task
from envbuilder.jobs.slurm_executor import SlurmExecutor


def task(name: str) -> Task:
    return plain_task(f"envbuilder-{name}")


@dataclass
class Commands:
    """What Slurm's commands print: an empty queue, and a line of scontrol for each job; no line is a refusal."""

    told: dict[str, str] = field(default_factory=dict)

    def __call__(self, words: Sequence[str], stdin: str) -> str:
        assert not stdin
        if words[0] == "squeue":
            return ""
        job = words[-1].removesuffix("_0")
        if job not in self.told:
            raise InfrastructureError("scontrol: Access/permission denied")
        return f"JobId={job} ArrayTaskId=0 JobName=envbuilder-{job} {self.told[job]} NodeList=n1"


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("JobState=COMPLETED ExitCode=0:0", Ended(0, "", "n1")),
        ("JobState=FAILED ExitCode=1:0", Ended(1, "", "n1")),
        ("JobState=CANCELLED ExitCode=0:15", Ended(2, "job 7 was cancelled", "n1")),
        ("JobState=CANCELLED ExitCode=0:0", Ended(2, "job 7 was cancelled", "n1")),
        ("JobState=FAILED ExitCode=0:9", LostError("job 7 on n1 ended as FAILED")),
        ("JobState=NODE_FAIL ExitCode=0:0", LostError("job 7 on n1 ended as NODE_FAIL")),
        ("JobState=PREEMPTED ExitCode=0:0", LostError("job 7 on n1 ended as PREEMPTED")),
        ("JobState=TIMEOUT ExitCode=0:0", LostError("job 7 on n1 ended as TIMEOUT")),
        ("JobState=LAUNCH_FAILED ExitCode=0:0", LostError("job 7 on n1 ended as LAUNCH_FAILED")),
        ("JobState=OF_NEXT_YEAR ExitCode=0:0", LostError("job 7 on n1 ended as OF_NEXT_YEAR")),
        ("ExitCode=0:0", LostError("job 7 on n1 ended as nothing that it says")),
        ("JobState=FAILED ExitCode=127:0", Ended(127, "", "n1")),
        ("JobState=PENDING ExitCode=0:0", None),
        ("JobState=REQUEUED ExitCode=0:0", None),
        ("JobState=SUSPENDED ExitCode=0:0", None),
    ],
)
def test_how_a_job_ended(told: str, expected: Ended | LostError | None, tmp_path: Path) -> None:
    """One that somebody took out, running or waiting, is over for good; one that a signal or its node ended is lost.

    So is one whose state nobody knows: a job that has left the queue is never waited for without end.
    """
    executor = SlurmExecutor(tmp_path, call=Commands({"7": told}))
    end = executor.over({"7": task("7")}).get("7")
    if isinstance(expected, LostError):
        assert isinstance(end, LostError)
        assert end.message == expected.message
    else:
        assert end == expected


def test_a_refusal_about_one_job_drops_no_answer_about_another(tmp_path: Path) -> None:
    """What scontrol says of the others is told, and what it refused is said to be that, and no end."""
    executor = SlurmExecutor(tmp_path, call=Commands({"7": "JobState=COMPLETED ExitCode=0:0"}))
    told = executor.over({"5": task("5"), "7": task("7")})
    assert told["7"] == Ended(0, "", "n1")
    assert isinstance(told["5"], InfrastructureError)
    assert not isinstance(told["5"], LostError)
