"""A Kubernetes API for the real kubectl: ConfigMaps, Jobs and their pods, which a test's kubelet runs on named nodes.

What is stored is held to the published schemas, strictly. Jobs are begun, counted and ended as the Job controller does
it: by their backoff limit and by the rules of their pod failure policy.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate

VERSION = "1.37"
_CORE = [
    {"name": "configmaps", "singularName": "configmap", "namespaced": True, "kind": "ConfigMap", "shortNames": ["cm"]},
    {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod"},
    {"name": "pods/log", "singularName": "", "namespaced": True, "kind": "Pod"},
]
_BATCH = [{"name": "jobs", "singularName": "job", "namespaced": True, "kind": "Job"}]
_VERBS = {"verbs": ["create", "delete", "get", "list"]}
_KINDS = {"configmaps": ("v1", "ConfigMap"), "pods": ("v1", "Pod"), "jobs": ("batch/v1", "Job")}
_FIELDS = [{"name": "fieldValidation", "in": "query"}]
_DISCOVERY: dict[str, dict[str, Any]] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [
            {
                "name": "batch",
                "versions": [{"groupVersion": "batch/v1", "version": "v1"}],
                "preferredVersion": {"groupVersion": "batch/v1", "version": "v1"},
            }
        ],
    },
    "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [{**one, **_VERBS} for one in _CORE]},
    "/apis/batch/v1": {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": "batch/v1",
        "resources": [{**one, **_VERBS} for one in _BATCH],
    },
    "/version": {"major": "1", "minor": VERSION.partition(".")[2], "gitVersion": f"v{VERSION}.0"},
    "/openapi/v3": {
        "paths": {name: {"serverRelativeURL": f"/openapi/v3/{name}?hash=1"} for name in ("api/v1", "apis/batch/v1")}
    },
}


class Pod(Protocol):
    """A pod that a kubelet runs."""

    def ended(self) -> int | None:
        """Return the judge's exit code; None while it runs."""

    def said(self) -> str:
        """Return the judge's log."""

    def kill(self) -> None:
        """End it at once."""


Kubelet = Callable[[str, Mapping[str, Any], Mapping[str, Mapping[str, str]]], Pod]
"""Runs a pod on a node: the node's name, the pod's spec, and the namespace's ConfigMaps by name."""


@dataclass
class Cluster:
    """What the cluster holds, its nodes with their labels, and who may not be asked just now.

    ``begun`` counts each Job's pods, ``asked`` how often each object was asked for by its name.
    """

    nodes: Mapping[str, Mapping[str, str]]
    kubelet: Kubelet
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    running: dict[str, tuple[str, Pod]] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    begun: dict[str, int] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    away: bool = False
    refuses: str = ""
    lock: threading.RLock = field(default_factory=threading.RLock)

    def lose(self, node: str) -> None:
        """Lose a node with the pod that it runs: nobody hears from either again."""
        with self.lock:
            name = next(pod for pod, (where, _) in self.running.items() if where == node)
            self.running.pop(name)[1].kill()
            pod = self.objects["pods", name]
            pod["status"] = {"phase": "Failed", "reason": "NodeLost"}
            self._count(self.objects["jobs", pod["metadata"]["labels"]["job-name"]], None, disrupted=True)

    def step(self) -> None:
        """Do once what controllers, scheduler and kubelets do all the time."""
        with self.lock:
            for name, (_, pod) in list(self.running.items()):
                code = pod.ended()
                if code is not None:
                    del self.running[name]
                    self._end(self.objects["pods", name], pod, code)
            for job in [one for (kind, _), one in self.objects.items() if kind == "jobs"]:
                if not _is_over(job) and not any(
                    _job_of(self.objects["pods", pod]) == _name(job) for pod in self.running
                ):
                    self._schedule(job)

    def _schedule(self, job: dict[str, Any]) -> None:
        spec = job["spec"]["template"]["spec"]
        asked = spec.get("nodeSelector", {}).items()
        free = {
            node: labels for node, labels in self.nodes.items() if node not in {one for one, _ in self.running.values()}
        }
        node = next((node for node, labels in free.items() if asked <= labels.items()), None)
        if node is None:
            return
        name = f"{_name(job)}-{uuid.uuid4().hex[:5]}"
        when = (
            (datetime.now(UTC) + timedelta(seconds=len(self.begun)))
            .isoformat(timespec="seconds")
            .replace("+00:00", "Z")
        )
        labels = {**job["spec"]["template"]["metadata"]["labels"], "job-name": _name(job)}
        self.objects["pods", name] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels, "creationTimestamp": when, "namespace": "default"},
            "spec": {**spec, "nodeName": node},
            "status": {"phase": "Running"},
        }
        self.begun[_name(job)] = self.begun.get(_name(job), 0) + 1
        maps = {key[1]: one["data"] for key, one in self.objects.items() if key[0] == "configmaps"}
        self.running[name] = (node, self.kubelet(node, spec, maps))

    def _end(self, pod: dict[str, Any], run: Pod, code: int) -> None:
        self.logs[_name(pod)] = run.said()
        ends = [("suite", 0), ("judge", code)]
        pod["status"] = {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [{"name": name, "state": {"terminated": {"exitCode": end}}} for name, end in ends],
        }
        if ("jobs", _job_of(pod)) in self.objects:
            self._count(self.objects["jobs", _job_of(pod)], code)

    def _count(self, job: dict[str, Any], code: int | None, *, disrupted: bool = False) -> None:
        """Take a pod's end into the Job's account, by the rules of its pod failure policy."""
        status = job.setdefault("status", {})
        if code == 0:
            status["conditions"] = [{"type": "Complete", "status": "True"}]
            return
        for rule in job["spec"]["podFailurePolicy"]["rules"]:
            if rule["action"] == "Ignore" and disrupted:
                return
            if rule["action"] == "FailJob" and code in rule["onExitCodes"]["values"]:
                status["conditions"] = [{"type": "Failed", "status": "True", "reason": "PodFailurePolicy"}]
                return
        status["failed"] = status.get("failed", 0) + 1
        if status["failed"] > job["spec"]["backoffLimit"]:
            status["conditions"] = [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]


def _name(one: Mapping[str, Any]) -> str:
    return str(one["metadata"]["name"])


def _job_of(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"]["labels"]["job-name"])


def _is_over(job: Mapping[str, Any]) -> bool:
    return bool(job.get("status", {}).get("conditions"))


class _Handler(BaseHTTPRequestHandler):
    cluster: Cluster
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        with self.cluster.lock:
            if self.cluster.away:
                self._answer(503, _status(503, "ServiceUnavailable", "the API is away"))
                return
            self._route(url.path, {name: values[0] for name, values in parse_qs(url.query).items()}, body)

    do_POST = do_DELETE = do_GET  # noqa: N815 - the base class's names

    def _route(self, path: str, query: Mapping[str, str], body: bytes) -> None:
        if path in _DISCOVERY:
            self._answer(200, _DISCOVERY[path])
        elif path.startswith("/openapi/v3/"):
            self._answer(200, _openapi(path.removeprefix("/openapi/v3/")))
        elif found := re.fullmatch(r"/apis?/(?:batch/)?v1/namespaces/[^/]+/(\w+)(?:/([^/]+))?(/log)?", path):
            self._resource(found[1], found[2], query, body, log=bool(found[3]))
        else:
            self._answer(404, _status(404, "NotFound", path))

    def _resource(self, kind: str, name: str | None, query: Mapping[str, str], body: bytes, *, log: bool) -> None:
        self.cluster.asked[name or ""] += self.command == "GET"
        if self.command == "POST":
            self._create(kind, json.loads(body), query)
        elif name is None:
            self._list(kind, query)
        elif (kind, name) not in self.cluster.objects:
            self._answer(404, _status(404, "NotFound", f'{kind} "{name}" not found'))
        elif log:
            self._text(self.cluster.logs.get(name, ""))
        elif self.command == "DELETE":
            gone = self.cluster.objects.pop((kind, name))
            for pod in [
                one for one, (_, __) in self.cluster.running.items() if kind == "jobs" and one.startswith(name)
            ]:
                self.cluster.running.pop(pod)[1].kill()
            details = {"name": name, "kind": kind, "uid": gone["metadata"]["uid"]}
            self._answer(200, {**_status(200, "", ""), "status": "Success", "details": details})
        else:
            self._answer(200, self.cluster.objects[kind, name])

    def _create(self, kind: str, one: dict[str, Any], query: Mapping[str, str]) -> None:
        if self.cluster.refuses:
            self._answer(403, _status(403, "Forbidden", self.cluster.refuses))
            return
        try:
            kubernetes_validate.validate(one, VERSION, strict=query.get("fieldValidation") == "Strict")
        except kubernetes_validate.ValidationError as error:
            self._answer(400, _status(400, "BadRequest", str(error.message)))
            return
        if (kind, _name(one)) in self.cluster.objects:
            self._answer(409, _status(409, "AlreadyExists", f'{kind} "{_name(one)}" already exists'))
            return
        one["metadata"] |= {"uid": str(uuid.uuid4()), "namespace": "default", "resourceVersion": "1"}
        self.cluster.objects[kind, _name(one)] = one
        self._answer(201, one)

    def _list(self, kind: str, query: Mapping[str, str]) -> None:
        wanted = dict(part.split("=") for part in query.get("labelSelector", "").split(",") if part)
        named = query.get("fieldSelector", "").removeprefix("metadata.name=")
        items = [
            one
            for (of, name), one in self.cluster.objects.items()
            if of == kind and wanted.items() <= one["metadata"]["labels"].items() and (not named or name == named)
        ]
        version, single = _KINDS[kind]
        listed = {"apiVersion": version, "kind": f"{single}List", "metadata": {"resourceVersion": "1"}, "items": items}
        self._answer(200, listed)

    def _text(self, text: str) -> None:
        self._send(200, text.encode(), "text/plain")

    def _answer(self, status: int, document: Mapping[str, Any]) -> None:
        self._send(status, json.dumps(document).encode(), "application/json")

    def _send(self, status: int, content: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _status(code: int, reason: str, message: str) -> dict[str, Any]:
    parts = {"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure"}
    return {**parts, "code": code, "reason": reason, "message": message}


def _openapi(name: str) -> dict[str, Any]:
    """Say that this server itself holds what it is sent to the schemas: kubectl asks for that."""
    paths = {}
    for plural, (version, kind) in _KINDS.items():
        group = version.rpartition("/")[0]
        if name == (f"apis/{version}" if group else f"api/{version}"):
            of = {"group": group, "kind": kind, "version": "v1"}
            patch = {"x-kubernetes-group-version-kind": of, "parameters": _FIELDS}
            paths[f"/{name}/namespaces/{{namespace}}/{plural}/{{name}}"] = {"patch": patch}
    return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": f"v{VERSION}.0"}, "paths": paths}


@contextmanager
def small_kubernetes(
    folder: Path, nodes: Mapping[str, Mapping[str, str]], kubelet: Kubelet
) -> Iterator[tuple[Cluster, dict[str, str]]]:
    """Run a cluster; yields it, and the variables by which kubectl finds it. Its pods end with it."""
    cluster = Cluster(nodes, kubelet)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"cluster": cluster}))
    server.daemon_threads = True
    over = threading.Event()

    def controllers() -> None:
        while not over.wait(0.1):
            cluster.step()

    threads = [threading.Thread(target=one, daemon=True) for one in (server.serve_forever, controllers)]
    for thread in threads:
        thread.start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{server.server_address[1]}"}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "users": [{"name": "test", "user": {}}],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kubeconfig").write_text(json.dumps(config))
    try:
        yield cluster, {"KUBECONFIG": str(folder / "kubeconfig")}
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        for _, pod in cluster.running.values():
            pod.kill()
