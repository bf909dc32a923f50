"""The executor of a Kubernetes cluster: a Job a task, by the user's own `kubectl` as it is configured."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from envbuilder.errors import ExitCode, InfrastructureError, UsageError
from envbuilder.jobs.fleet_kubernetes import JUDGE, OWN, Cluster, manifest
from envbuilder.jobs.fleet_task import Ended, LostError, Task
from envbuilder.jobs.queue_executor import End, QueueExecutor, each_told
from envbuilder.support import decoding, subprocesses, terminal_text

_ASK_S = 60.0
_SAID = 500


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    creation_timestamp: datetime = datetime.min.replace(tzinfo=UTC)


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _JobStatus(msgspec.Struct, frozen=True):
    conditions: tuple[_Condition, ...] = ()


class _Job(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    status: _JobStatus = _JobStatus()

    @property
    def end(self) -> _Condition | None:
        """How it ended, where it did."""
        ends = (one for one in self.status.conditions if one.type in {"Complete", "Failed"} and one.status == "True")
        return next(ends, None)


class _Terminated(msgspec.Struct, frozen=True, rename="camel"):
    exit_code: int


class _State(msgspec.Struct, frozen=True):
    terminated: _Terminated | None = None


class _Container(msgspec.Struct, frozen=True):
    name: str = ""
    state: _State = _State()


class _PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    container_statuses: tuple[_Container, ...] = ()


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()

    @property
    def code(self) -> int | None:
        """What the judge ended with; None where it did not."""
        judges = (one.state.terminated for one in self.status.container_statuses if one.name == JUDGE)
        return next((ended.exit_code for ended in judges if ended is not None), None)


class _Jobs(msgspec.Struct, frozen=True):
    items: tuple[_Job, ...] = ()


class _Pods(msgspec.Struct, frozen=True):
    items: tuple[_Pod, ...] = ()


def kubectl(words: Sequence[str], stdin: str) -> str:
    """Run the user's kubectl, with the user's own configuration and the helpers that this may name.

    Raises UsageError where it is not installed, InfrastructureError where it fails.
    """
    if shutil.which("kubectl") is None:
        raise UsageError(
            "there is no kubectl here", hint="run this where it is, or `envbuilder fleet export kubernetes`"
        )
    ended = subprocesses.run(("kubectl", *words), within=_ASK_S, stdin=stdin.encode(), brief=True)
    if ended.code:
        complaint = terminal_text.line(ended.complaint.strip()[-_SAID:])
        raise InfrastructureError(f"kubectl {words[0]}: {complaint}", hint="does `kubectl get jobs` work here?")
    return ended.text


@dataclass
class KubernetesExecutor(QueueExecutor):
    """Creates a Job for each task, which bears the task's name, and a ConfigMap with its order.

    A Job of that name that is not over is joined; one that is over made way for what is left still. The cluster begins
    a Job's pod once: whoever counts the attempts counts them here as for every executor.
    """

    cluster: Cluster
    call: Callable[[Sequence[str], str], str] = kubectl
    gone_within_s: float = 120.0

    def ready(self) -> None:
        """Ask for our Jobs."""
        self._asked("get", "jobs", "-l", _LABEL, "-o", "name")

    def begin(self, task: Task) -> str:
        """Create a Job, or join that of the same name."""
        if self._is_under_way(task):
            return task.name
        self._make_way(task)
        try:
            self._asked("create", "-f", "-", stdin=manifest(task, replace(self.cluster, attempts=1)))
        except InfrastructureError:
            if not self._is_under_way(task):  # another controller may have been faster
                raise
        return task.name

    def _make_way(self, task: Task) -> None:
        """Delete a Job that is over and its order. Raises LostError where the cluster does not come to it in time."""
        named = (f"job/{task.name}", f"configmap/{task.name}")
        self._asked("delete", *named, "--ignore-not-found", "--wait=false")
        until = time.monotonic() + self.gone_within_s
        while self._asked("get", *named, "--ignore-not-found", "-o", "name").strip():
            if time.monotonic() > until:
                raise LostError(f"the cluster still holds the Job {task.name}, which is over and deleted")
            time.sleep(min(self.every_s, 1.0))

    def over(self, jobs: Mapping[str, Task]) -> Mapping[str, End]:
        """Say how the Jobs ended that are over, or that nobody finds any more."""
        said = self._asked("get", "jobs", "-l", _LABEL, "-o", "json")
        there = {job.metadata.name: job for job in _read(said, _Jobs).items}
        return each_told(jobs, lambda name: self._ended(name, there.get(name)))

    def _is_under_way(self, task: Task) -> bool:
        said = self._asked("get", "job", task.name, "--ignore-not-found", "-o", "json")
        return bool(said.strip()) and _read(said, _Job).end is None

    def _ended(self, name: str, job: _Job | None) -> Ended | LostError | None:
        if job is None:
            return LostError(f"the cluster has no Job {name} any more")
        if job.end is None:
            return None
        listed = self._asked("get", "pods", "-l", f"job-name={name}", "-o", "json")
        pods = sorted(_read(listed, _Pods).items, key=lambda pod: pod.metadata.creation_timestamp)
        pod = next((pod for pod in reversed(pods) if pod.code is not None), None)
        with suppress(InfrastructureError):  # it is tidied up: how the Job ended is known without it
            self._asked("delete", f"configmap/{name}", "--ignore-not-found", "--wait=false")
        if pod is not None and pod.code is not None:
            return Ended(pod.code, self._said(pod), pod.spec.node_name)
        if job.end.type == "Complete":
            return Ended(ExitCode.DONE)
        return LostError(f"Job {name}: {terminal_text.line(f'{job.end.reason} {job.end.message}')[:_SAID]}")

    def _said(self, pod: _Pod) -> str:
        """Return the last words of a pod's judge; nothing where the cluster has them no more."""
        try:
            said = self._asked("logs", pod.metadata.name, "-c", JUDGE, "--tail=20")
        except InfrastructureError:
            return ""
        return terminal_text.line(said.strip()[-_SAID:])

    def _asked(self, *words: str, stdin: str = "") -> str:
        named = ("--namespace", self.cluster.namespace) if self.cluster.namespace else ()
        return self.call((*words, *named), stdin)


_LABEL = ",".join(f"{name}={value}" for name, value in OWN.items())

_Answer = TypeVar("_Answer", _Job, _Jobs, _Pods)


def _read(said: str, kind: type[_Answer]) -> _Answer:
    """Read what kubectl wrote as JSON. Raises InfrastructureError where it is something else."""
    try:
        return decoding.from_json(said, kind)
    except decoding.DamagedError as error:
        raise InfrastructureError(f"kubectl: {error}", hint="try `kubectl get jobs -o json` by hand") from error
