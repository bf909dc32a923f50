"""The executor of a Slurm cluster: a job a task by the user's own `sbatch`, followed by `squeue` and `scontrol`."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from envbuilder.errors import InfrastructureError, UsageError
from envbuilder.jobs.fleet_task import Ended, LostError, Task
from envbuilder.jobs.queue_executor import End, QueueExecutor, each_told
from envbuilder.jobs.served_suite import Runtime
from envbuilder.jobs.slurm_script import VARIABLES, script
from envbuilder.support import decoding, subprocesses, terminal_text
from envbuilder.workspace import read_kept, writing

_ASK_S = 60.0
_BY_ITS_CODE = {"COMPLETED", "FAILED"}
_UNDER_WAY = {
    *("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING", "STAGE_OUT"),
    *("REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD", "POWER_UP_NODE", "EXPEDITING"),
}
"""The states of a job that is not over (squeue's manual, job state codes). Any other one, known or not, is its last."""
_FIELD = re.compile(r"(\w+)=(\S*)")


class NotFoundError(InfrastructureError):
    """Slurm answers, and does not know what was asked about."""


def slurm(words: Sequence[str], stdin: str) -> str:
    """Run one of Slurm's commands. Raises UsageError where it is not installed, InfrastructureError where it fails."""
    environment = {name: os.environ[name] for name in (*VARIABLES, "SLURM_CONF") if name in os.environ}
    if shutil.which(words[0]) is None:
        raise UsageError(f"there is no {words[0]} here", hint="run this where Slurm's commands are")
    ended = subprocesses.run(words, within=_ASK_S, env=environment, stdin=stdin.encode(), brief=True)
    if ended.code:
        # scontrol has one exit code for everything: its words alone tell a forgotten job from a controller away.
        forgotten = words[0] == "scontrol" and "Invalid job id" in ended.complaint
        kind = NotFoundError if forgotten else InfrastructureError
        raise kind(f"{words[0]}: {terminal_text.line(ended.complaint.strip()[-500:])}", hint="is the controller up?")
    return ended.text


@dataclass
class SlurmExecutor(QueueExecutor):
    """Runs each task as a job of its own, which bears the task's name.

    A job of that name that is in the queue already is joined, and two that two controllers submitted at once run one
    after the other (`--dependency=singleton`): the second then finds that it stands. ``folder`` takes the jobs' logs,
    and ``runtime`` runs the images on the nodes.
    """

    folder: Path
    runtime: Runtime = "engine"
    call: Callable[[Sequence[str], str], str] = slurm
    _queued: dict[str, str] = field(default_factory=dict)

    def ready(self) -> None:
        """Look which of our jobs are in the queue already."""
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        self._queued = {name: job for name, job in self._jobs().items() if job not in self._waiting}

    def begin(self, task: Task) -> str:
        """Submit a job, or join that of the same name."""
        job = self._queued.pop(task.name, None)
        if job is None:
            log = f"{self.folder}/{task.name}-%A_%a.log"
            text = script([task], task.kind, name=task.name, file="", log=log, runtime=self.runtime)
            words = ("sbatch", "--parsable", "--dependency=singleton", f"--chdir={self.folder}")
            job = self.call(words, text).strip().partition(";")[0]
        if not job.isdecimal():
            raise InfrastructureError(f"sbatch answered {job[:200]!r}, which is no job", hint="try sbatch by hand")
        return job

    def over(self, jobs: Mapping[str, Task]) -> Mapping[str, End]:
        """Say how the jobs ended that have left the queue."""
        queued = self._jobs()
        left = [job for job, task in jobs.items() if queued.get(task.name) != job]
        return each_told(left, lambda job: self._ended(job, jobs[job]))

    def _jobs(self) -> dict[str, str]:
        """Name our jobs in the queue, and their numbers."""
        listed = self.call(("squeue", "--me", "-h", "-o", "%j|%F"), "")
        return dict(line.split("|", 1) for line in listed.splitlines() if line.startswith("envbuilder-"))

    def _ended(self, job: str, task: Task) -> Ended | LostError | None:
        """Say how a job that left the queue ended; None where it is on its way back into it."""
        told = self._told(job)
        state = told.get("JobState", "")
        if told.get("JobName") != task.name:  # a controller that lost its state gives the same numbers again
            return LostError(f"Slurm knows nothing of job {job} any more")
        if state in _UNDER_WAY:
            return None
        where = told.get("NodeList", "")
        code, _, signal = told.get("ExitCode", "").partition(":")
        if state == "CANCELLED":  # whoever takes a running job out ends it by a signal, which is no lost node
            return Ended(_CANCELLED, f"job {job} was cancelled", where)
        if state not in _BY_ITS_CODE or signal not in {"", "0"} or not code.isdecimal():
            return LostError(f"job {job} on {where or 'no node'} ended as {state or 'nothing that it says'}")
        log = read_kept(self.folder / f"{task.name}-{job}_0.log") or b""
        said = terminal_text.line(decoding.lossy(log[-2000:]).strip()[-500:])
        return Ended(int(code), said, where)

    def _told(self, job: str) -> Mapping[str, str]:
        try:
            return dict(_FIELD.findall(self.call(("scontrol", "-o", "show", "job", f"{job}_0"), "")))
        except NotFoundError:
            return {}


_CANCELLED = 2
"""A job that somebody took out of the queue is not begun again: as if it had been asked for wrongly."""
