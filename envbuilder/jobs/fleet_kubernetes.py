"""Write what is left of a fleet as Jobs of Kubernetes: the suite in the very image, judged in a container beside it.

The image under test holds no key, no login and no account of the cluster. It is handed what to run through two pipes,
as an engine would; the container beside it, which is envbuilder's own, judges, signs and attaches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from envbuilder.errors import UsageError
from envbuilder.jobs.fleet_task import ProofOrder, Task
from envbuilder.jobs.served_suite import EXCHANGE, SERVE
from envbuilder.support import decoding
from envbuilder.workspace import read_users, write_atomically, writing

OURS = "# Written by `envbuilder fleet export kubernetes`.\n"
"""How each of our files begins, by which it is known again."""

OWN = {"app.kubernetes.io/name": "envbuilder"}
"""The label of everything of ours."""

JUDGE = "judge"
"""The container whose exit code is the proof's."""

ORDER, KEY, LOGIN = "/order", "/key", "/login"

_USER = 65534
_DEADLINE_S = 7200
_ARCHS = {"x86_64": "amd64", "aarch64": "arm64"}
_ANSWERS = [1, 2, 3, 4, 6, 8, 70]
"""Exit codes of `fleet prove` that another attempt would not change: an answer, a mistake, a bug."""

_ALONE = {"labelSelector": {"matchLabels": OWN}, "topologyKey": "kubernetes.io/hostname"}
"""Validation measures: no two proofs on one node at once."""

_CLOSED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


@dataclass(frozen=True)
class Cluster:
    """What of a cluster is the user's: envbuilder's own image, and the names of secrets and namespace ('' none).

    ``key`` holds the signing key as ``envbuilder.key``; ``login`` is of the type that pulls images. ``claim`` is a
    ResourceClaimTemplate by which a pod gets its GPU, where the cluster hands devices out so ('' `nvidia.com/gpu`).
    ``attempts`` is how often the cluster itself begins a Job whose pod came to no answer.
    """

    runner: str
    key: str = "envbuilder-signing-key"
    login: str = ""
    namespace: str = ""
    claim: str = ""
    attempts: int = 4


def manifests(tasks: Iterable[Task], cluster: Cluster) -> Mapping[str, str]:
    """Return a file for each proof, by its name: a ConfigMap with the order, and the Job.

    Raises UsageError for a kind with a GPU that no row of the fleet file gives labels: any node would do.
    """
    return {f"{task.name}.yaml": manifest(task, cluster) for task in {task.name: task for task in tasks}.values()}


def write_manifests(files: Mapping[str, str], folder: Path) -> Iterator[Path]:
    """Write the files into a folder; yields their paths. Ours for what is left no more are removed."""
    for old in folder.glob("envbuilder-*.yaml"):
        if old.name not in files and read_users(old).startswith(OURS.encode()):
            with writing(old):
                old.unlink(missing_ok=True)
    for name, content in files.items():
        write_atomically(folder / name, content.encode())
        yield folder / name


def manifest(task: Task, cluster: Cluster) -> str:
    """Return a proof's file: what `kubectl create` reads."""
    parts = (config_map(task, cluster), job(task, cluster))
    return OURS + "---\n".join(decoding.lossy(msgspec.yaml.encode(part)) for part in parts)


def config_map(task: Task, cluster: Cluster) -> dict[str, Any]:
    """Return the order as the cluster keeps it: everything in it is public."""
    data = {"order.json": decoding.lossy(task.order)}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(task, cluster),
        "immutable": True,
        "data": data,
    }


def job(task: Task, cluster: Cluster) -> dict[str, Any]:
    """Return the Job: begun again where its node was lost, and never where it came to an answer."""
    failed = {"action": "FailJob", "onExitCodes": {"containerName": JUDGE, "operator": "In", "values": _ANSWERS}}
    drained = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(task, cluster),
        "spec": {
            "backoffLimit": cluster.attempts - 1,
            "ttlSecondsAfterFinished": 86_400,
            "podFailurePolicy": {"rules": [drained, failed]},
            "template": {"metadata": {"labels": _labels(task)}, "spec": pod(task, cluster)},
        },
    }


def pod(task: Task, cluster: Cluster) -> dict[str, Any]:
    """Return the pod, by the restricted profile of Kubernetes' pod security standards."""
    order: ProofOrder = decoding.from_json(task.order, ProofOrder)
    volumes: list[dict[str, Any]] = [
        {"name": "exchange", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
        {"name": "scratch", "emptyDir": {"sizeLimit": "4Gi"}},
        {"name": "work", "emptyDir": {"sizeLimit": "1Gi"}},
        {"name": "order", "configMap": {"name": task.name}},
        {"name": "key", "secret": {"secretName": cluster.key, "defaultMode": 0o440}},
    ]
    if cluster.login:
        items = [{"key": ".dockerconfigjson", "path": "config.json"}]
        volumes.append({"name": "login", "secret": {"secretName": cluster.login, "items": items, "defaultMode": 0o440}})
    pulls = {"imagePullSecrets": [{"name": cluster.login}]} if cluster.login else {}
    return {
        "restartPolicy": "Never",
        # Counted from when the pod has a node: a Job may wait for one as long as the queue before it takes.
        "activeDeadlineSeconds": _DEADLINE_S,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **pulls,
        "nodeSelector": _nodes(task),
        **({"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]} if task.gpu else {}),
        **({"resourceClaims": [_claim(cluster)]} if task.gpu and cluster.claim else {}),
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_ALONE]}},
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_suite(task, order, cluster), _judge(cluster)],
        "volumes": volumes,
    }


def _suite(task: Task, order: ProofOrder, cluster: Cluster) -> dict[str, Any]:
    """Return the container of the image under test, by its digest: no secret is mounted into it."""
    plugin = task.gpu and not cluster.claim
    limits = {"memory": "8Gi", **({"nvidia.com/gpu": 1} if plugin else {})}
    claims = {"claims": [{"name": _claim(cluster)["name"]}]} if task.gpu and cluster.claim else {}
    return {
        "name": "suite",
        "image": f"{order.repository}@{order.digest}",
        "command": ["/bin/sh", "-c", SERVE],
        "env": [{"name": "HOME", "value": "/tmp"}, {"name": "TF_CPP_MIN_LOG_LEVEL", "value": "0"}],  # noqa: S108
        "securityContext": _CLOSED,
        "resources": {"requests": {"cpu": "1", "memory": "4Gi"}, "limits": limits, **claims},
        "volumeMounts": [
            {"name": "exchange", "mountPath": EXCHANGE},
            {"name": "scratch", "mountPath": "/tmp"},  # noqa: S108 - inside the container
        ],
    }


def _claim(cluster: Cluster) -> dict[str, str]:
    """Name the GPU that the cluster hands out by a template of the user's (dynamic resource allocation)."""
    return {"name": "gpu", "resourceClaimTemplateName": cluster.claim}


def _judge(cluster: Cluster) -> dict[str, Any]:
    """Return the container that asks, judges, signs and attaches: envbuilder's own."""
    login = [{"name": "login", "mountPath": LOGIN, "readOnly": True}] if cluster.login else []
    variables = {
        "HOME": "/work",
        "TMPDIR": "/work",
        "ENVBUILDER_SIGNING_KEY": f"{KEY}/envbuilder.key",
        "DOCKER_CONFIG": LOGIN,
    }
    return {
        "name": JUDGE,
        "image": cluster.runner,
        "command": ["envbuilder", "fleet", "prove", f"{ORDER}/order.json", "--beside", EXCHANGE],
        "workingDir": "/work",
        "env": [
            {"name": name, "value": value} for name, value in variables.items() if login or name != "DOCKER_CONFIG"
        ],
        "securityContext": _CLOSED,
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
        "volumeMounts": [
            {"name": "exchange", "mountPath": EXCHANGE},
            {"name": "work", "mountPath": "/work"},
            {"name": "order", "mountPath": ORDER, "readOnly": True},
            {"name": "key", "mountPath": KEY, "readOnly": True},
            *login,
        ],
    }


def _nodes(task: Task) -> dict[str, str]:
    """Say which nodes: those of the first row of the kind that says how the cluster labels them."""
    labels = next((host.labels for host in task.hosts if host.labels), {})
    if " MIG " in task.gpu:
        raise UsageError(
            f"in a pod nobody can tell a slice from its board, and {task.kind} is a slice",
            hint="`envbuilder fleet run` on that node, where its own NVML tells",
        )
    if task.gpu and not labels:
        raise UsageError(
            f"no row of the fleet file says how Kubernetes labels {task.kind}",
            hint="`kubectl get nodes -o json | envbuilder fleet hosts kubernetes -` writes rows with labels",
        )
    return {"kubernetes.io/arch": _ARCHS[task.arch], **(labels if task.gpu else {})}


def _labels(task: Task) -> dict[str, str]:
    return {**OWN, "app.kubernetes.io/instance": task.name}


def _metadata(task: Task, cluster: Cluster) -> dict[str, Any]:
    named = {"namespace": cluster.namespace} if cluster.namespace else {}
    return {"name": task.name, **named, "labels": _labels(task)}
