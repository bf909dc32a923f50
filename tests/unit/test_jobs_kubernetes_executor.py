"""Jobs of Kubernetes as an executor sees them: joined, replaced where they are over, and read by their pods' ends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from fleet_tasks import proof_of

from envbuilder.errors import InfrastructureError
from envbuilder.jobs.fleet_kubernetes import Cluster
from envbuilder.jobs.fleet_task import Ended, LostError
from envbuilder.jobs.kubernetes_executor import KubernetesExecutor

TASK = proof_of("image")
NAME = TASK.name


@dataclass
class Kubectl:
    """What the cluster has, as kubectl prints it; ``asked`` are the words that it was called with."""

    job: dict[str, Any] | None = None
    pods: list[dict[str, Any]] = field(default_factory=list)
    log: str = "said"
    said: str = ""
    asked: list[tuple[str, ...]] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    taken: dict[str, Any] | None = None
    lingers: int = 0

    def __call__(self, words: Sequence[str], stdin: str) -> str:
        self.asked.append(tuple(words))
        match words[0], words[1]:
            case "create", _:
                self.sent.append(stdin)
                if self.taken is not None:
                    self.job = self.taken
                    raise InfrastructureError("AlreadyExists")
                self.job = job()
            case "delete", _:
                assert "--wait=false" in words, "kubectl's own patience ends in an error that is none"
                self.lingers -= 1
                self.job = None if words[1].startswith("job/") and self.lingers < 0 else self.job
            case "get", one if one.startswith("job/"):
                self.lingers -= 1
                self.job = None if self.lingers < 0 else self.job
                return f"job.batch/{NAME}\n" if self.job else ""
            case "get", "job":
                return json.dumps(self.job) if self.job else ""
            case "get", "jobs":
                return self.said or json.dumps({"items": [self.job] if self.job else []})
            case "get", "pods":
                return json.dumps({"items": self.pods})
            case "logs", _:
                if not self.log:
                    raise InfrastructureError("gone")
                return self.log
            case _:
                raise AssertionError(words)
        return ""


def job(*ends: str, reason: str = "") -> dict[str, Any]:
    conditions = [{"type": end, "status": "True", "reason": reason} for end in ends]
    return {"metadata": {"name": NAME}, "status": {"conditions": conditions} if ends else {}}


def pod(code: int | None, when: str = "2026-11-22T01:00:00Z", node: str = "n1") -> dict[str, Any]:
    state = {"terminated": {"exitCode": code}} if code is not None else {"running": {}}
    judges = [{"name": "suite", "state": {}}, {"name": "judge", "state": state}]
    of = {"name": f"pod-{when}", "creationTimestamp": when}
    return {"metadata": of, "spec": {"nodeName": node}, "status": {"containerStatuses": judges}}


def executor(kubectl: Kubectl, namespace: str = "") -> KubernetesExecutor:
    return KubernetesExecutor(Cluster("runner", namespace=namespace), call=kubectl)


def test_a_job_that_is_under_way_is_joined() -> None:
    """Nothing is created and nothing deleted."""
    kubectl = Kubectl(job())
    assert executor(kubectl).begin(TASK) == NAME
    assert [words[0] for words in kubectl.asked] == ["get"]


@pytest.mark.parametrize("end", ["Complete", "Failed"])
def test_one_that_is_over_makes_way(end: str) -> None:
    """What is left is begun anew, as one pod that the cluster itself does not begin again."""
    kubectl = Kubectl(job(end))
    assert executor(kubectl, "ml").begin(TASK) == NAME
    assert [words[0] for words in kubectl.asked] == ["get", "delete", "get", "create"]
    assert "backoffLimit: 0\n" in kubectl.sent[0]
    assert all(words[-2:] == ("--namespace", "ml") for words in kubectl.asked)


def test_one_that_is_slow_to_go_is_waited_for_and_no_refusal() -> None:
    """The cluster deletes in its own time; where that is too long the task is lost, to be begun again, not refused."""
    slow = Kubectl(job("Failed"), lingers=3)
    patient = KubernetesExecutor(Cluster("runner"), call=slow, every_s=0.01)
    assert patient.begin(TASK) == NAME
    assert len(slow.sent) == 1
    held = Kubectl(job("Failed"), lingers=1_000_000)
    with pytest.raises(LostError, match="still holds"):
        KubernetesExecutor(Cluster("runner"), call=held, every_s=0.01, gone_within_s=0.05).begin(TASK)
    assert not held.sent


def test_another_controller_may_be_faster() -> None:
    """Its Job is joined where it is under way; where there is none, the refusal is an error."""
    assert executor(Kubectl(taken=job())).begin(TASK) == NAME
    with pytest.raises(InfrastructureError, match="AlreadyExists"):
        executor(Kubectl(taken=job("Failed"))).begin(TASK)


@pytest.mark.parametrize(
    ("kubectl", "expected"),
    [
        (Kubectl(job(), [pod(None)]), None),
        (Kubectl(job("Complete"), [pod(0)]), Ended(0, "said", "n1")),
        (Kubectl(job("Failed", reason="PodFailurePolicy"), [pod(1)]), Ended(1, "said", "n1")),
        (Kubectl(job("Complete"), [pod(5), pod(0, "2026-11-22T02:00:00Z", "n2")]), Ended(0, "said", "n2")),
        (Kubectl(job("Failed"), [pod(5)], log=""), Ended(5, "", "n1")),
        (Kubectl(job("Complete"), []), Ended(0)),
        (Kubectl(job("Failed", reason="DeadlineExceeded"), [pod(None)]), "DeadlineExceeded"),
        (Kubectl(), "no Job"),
    ],
    ids=["runs", "passed", "failed", "last-pod", "no-log", "pods-gone", "deadline", "job-gone"],
)
def test_a_jobs_end_is_its_judges(kubectl: Kubectl, expected: Ended | str | None) -> None:
    """The exit code of the last pod's judge; a Job that ended without one was lost, and says nothing of an image."""
    end = executor(kubectl).over({NAME: TASK}).get(NAME)
    if isinstance(expected, str):
        assert isinstance(end, LostError)
        assert expected in end.message
    else:
        assert end == expected


@pytest.mark.parametrize("said", ["no JSON", "[]", '{"items": [{"metadata": {"name": 1}}]}'])
def test_what_is_no_answer_concludes_nothing(said: str) -> None:
    """An error of the infrastructure, after which it is asked again: never the end of a Job."""
    with pytest.raises(InfrastructureError, match="kubectl"):
        executor(Kubectl(job(), said=said)).over({NAME: TASK})


def test_a_refusal_about_one_job_drops_no_answer_about_another() -> None:
    """What is told is told; what was refused is said to be that, and is no end; tidying up is no answer's matter."""
    over = [{**job("Complete"), "metadata": {"name": name}} for name in ("a", "b")]

    def kubectl(words: Sequence[str], stdin: str) -> str:
        match tuple(words[:4]):
            case "get", "jobs", *_:
                return json.dumps({"items": over})
            case "get", "pods", "-l", "job-name=b":
                return json.dumps({"items": [pod(1)]})
            case "logs", *_:
                return "said"
        raise InfrastructureError(f"kubectl {words[0]}: forbidden {stdin}")

    told = KubernetesExecutor(Cluster("runner"), call=kubectl).over({"a": TASK, "b": TASK})
    assert told["b"] == Ended(1, "said", "n1")
    assert isinstance(told["a"], InfrastructureError)
    assert not isinstance(told["a"], LostError)


def needed(words: tuple[str, ...]) -> set[tuple[str, str]]:
    """Name the resources and verbs that kubectl needs for a command, one that selects by a label listing them."""
    verb, *rest = words
    if verb == "create":
        return {("jobs", "create"), ("configmaps", "create")}
    if verb == "logs":  # it gets the pod to find its container
        return {("pods", "get"), ("pods/log", "get")}
    of = {part.split("/")[0] for part in rest if part.startswith(("job/", "configmap/"))} or {rest[0]}
    plural = {f"{name.removesuffix('s')}s" for name in of}
    verbs = {"list"} if "-l" in rest else {"get"}
    if verb == "delete":
        verbs = {"delete", "get"} | (set() if "--wait=false" in rest else {"list", "watch"})
    return {(name, verb) for name in plural for verb in verbs}
