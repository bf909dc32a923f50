"""What is left, as Kubernetes' Jobs: valid by the published schemas, closed as the restricted profile asks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import kubernetes_validate
import msgspec
import pytest
import yaml
from factories import digest
from fleet_tasks import proof_of

from envbuilder.compat.fleet import FleetHost
from envbuilder.errors import UsageError
from envbuilder.jobs.fleet_kubernetes import OURS, Cluster, manifests, pod, write_manifests
from envbuilder.jobs.fleet_task import ProofOrder, Task, proof_task
from envbuilder.jobs.served_suite import SERVE
from envbuilder.validation.suite_launcher import beside, close, lay_out
from envbuilder.validation.suite_session import Session

LABELS = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/cuda.driver-version.full": "550.54.15"}
FLEET = (FleetHost(name="bare"), FleetHost(name="ampere", labels=LABELS))
CLUSTER = Cluster("registry.example.org/ml/envbuilder@" + digest("runner"), login="registry-login", namespace="ml")
VERSIONS = ("1.35", "1.36", "1.37")
"""The three newest versions whose schemas are published."""


KEY = "-----BEGIN PUBLIC KEY-----\n…: {a: b}\n'\"\n-----END PUBLIC KEY-----\n"


def task(kind: str = "A100/550.54.15", **given: Any) -> Task:
    return proof_of("image", kind, FLEET, **{"environment": "tf2.20.0", "trusted": (KEY,), **given})


TASKS = (task(), task(""))


def documents(cluster: Cluster = CLUSTER) -> list[dict[str, Any]]:
    return [one for text in manifests(TASKS, cluster).values() for one in yaml.safe_load_all(text)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "cluster", [CLUSTER, Cluster("runner"), Cluster("runner", claim="one-gpu")], ids=["whole", "bare", "claim"]
)
def test_every_document_is_valid_by_the_published_schemas(version: str, cluster: Cluster) -> None:
    """Strictly: a field that this version does not know is an error."""
    for document in documents(cluster):
        assert kubernetes_validate.validate(document, version, strict=True) == version


def test_the_schemas_refuse_what_is_wrong() -> None:
    """The check itself: a field too many, and one of another type, are refused."""
    job = documents()[1]
    for broken in ({**job["spec"], "backoffLimits": 1}, {**job["spec"], "backoffLimit": "three"}):
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate({**job, "spec": broken}, VERSIONS[-1], strict=True)


DISCOVERY: dict[str, dict[str, Any]] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/api/v1": {"resources": [{"name": "configmaps", "namespaced": True, "kind": "ConfigMap", "verbs": ["create"]}]},
    "/apis": {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [{"name": "batch", "versions": [{"groupVersion": "batch/v1", "version": "v1"}]}],
    },
    "/apis/batch/v1": {"resources": [{"name": "jobs", "namespaced": True, "kind": "Job", "verbs": ["create"]}]},
}
"""What a cluster says that it knows: kubectl asks for that even where it sends nothing."""


class _Cluster(BaseHTTPRequestHandler):
    """Answers discovery, and nothing else."""

    def do_GET(self) -> None:
        """Say which kinds there are."""
        found = DISCOVERY.get(self.path.partition("?")[0])
        version = self.path.partition("?")[0].removeprefix("/apis/").removeprefix("/api/")
        listed = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version}
        content = json.dumps({**listed, **(found or {})}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def discovering() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Cluster) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl here")
def test_kubectl_reads_them(tmp_path: Path) -> None:
    """`kubectl create --dry-run=client` takes every file and gives it back as it was meant."""
    files = [f"-f{path}" for path in write_manifests(manifests(TASKS, CLUSTER), tmp_path)]
    with discovering() as server:
        words = [
            "kubectl",
            f"--server={server}",
            "create",
            "--dry-run=client",
            "--validate=false",
            "-o",
            "json",
            *files,
        ]
        environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
        ended = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, timeout=60)
    assert ended.returncode == 0, ended.stderr
    read, rest = {}, ended.stdout.strip()
    while rest:
        one, end = json.JSONDecoder().raw_decode(rest)
        read[one["kind"], one["metadata"]["name"]] = one
        rest = rest[end:].strip()
    assert len(read) == 4
    for meant in documents():
        one = read[meant["kind"], meant["metadata"]["name"]]
        assert (one.get("spec"), one.get("data")) == (meant.get("spec"), meant.get("data"))


def test_a_pod_is_closed_as_the_restricted_profile_asks() -> None:
    """No root, no privilege to gain, no capability, a root that nobody writes, no account."""
    for one in TASKS:
        spec = pod(one, CLUSTER)
        whole = spec["securityContext"]
        assert whole["runAsNonRoot"]
        assert whole["runAsUser"] > 0
        assert whole["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        for container in spec["containers"]:
            closed = container["securityContext"]
            assert closed["allowPrivilegeEscalation"] is False
            assert closed["readOnlyRootFilesystem"] is True
            assert closed["capabilities"] == {"drop": ["ALL"]}
        assert {next(iter(volume.keys() - {"name"})) for volume in spec["volumes"]} <= {
            "emptyDir",
            "configMap",
            "secret",
        }


def test_the_image_under_test_holds_no_secret_and_alone_a_gpu() -> None:
    """Key and login are mounted where envbuilder runs; the code that is tested sees neither, nor the order."""
    suite, judge = pod(TASKS[0], CLUSTER)["containers"]
    assert suite["image"] == f"registry.example.org/ml/tf@{digest('image')}"
    assert {mount["name"] for mount in suite["volumeMounts"]} == {"exchange", "scratch"}
    assert {mount["name"] for mount in judge["volumeMounts"]} == {"exchange", "work", "order", "key", "login"}
    assert suite["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert "nvidia.com/gpu" not in judge["resources"]["limits"]
    assert all(one["name"] in {"HOME", "TF_CPP_MIN_LOG_LEVEL"} for one in suite["env"])


def test_a_job_goes_where_its_kind_is() -> None:
    """A GPU's kind by the labels of its row, tolerating the GPU's taint; an environment for CPUs on any node."""
    gpu, plain = (pod(one, CLUSTER) for one in TASKS)
    assert gpu["nodeSelector"] == {"kubernetes.io/arch": "amd64", **LABELS}
    assert gpu["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    assert plain["nodeSelector"] == {"kubernetes.io/arch": "amd64"}
    assert "tolerations" not in plain
    bare = proof_task(msgspec.json.decode(TASKS[0].order, type=ProofOrder), FLEET[:1])
    with pytest.raises(UsageError, match="how Kubernetes labels"):
        manifests((bare,), CLUSTER)


def test_a_gpu_is_asked_for_once() -> None:
    """By the device plug-in's resource, or by a claim that the container under test alone has; a CPU proof by none."""
    for task_, claim in ((TASKS[0], ""), (TASKS[0], "one-gpu"), (TASKS[1], "one-gpu")):
        spec = pod(task_, Cluster("runner", claim=claim))
        suite, judge = spec["containers"]
        by_claim = bool(claim and task_.gpu)
        assert ("nvidia.com/gpu" in suite["resources"]["limits"]) == bool(task_.gpu and not claim)
        assert suite["resources"].get("claims") == ([{"name": "gpu"}] if by_claim else None)
        assert spec.get("resourceClaims") == (
            [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}] if by_claim else None
        )
        assert "claims" not in judge["resources"]


def test_a_proof_has_its_node_for_itself_and_waits_for_it_without_end() -> None:
    """Two proofs on one node would measure each other; the time that a queue takes is not the proof's."""
    document = documents()[1]
    template = document["spec"]["template"]
    (term,) = template["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert "activeDeadlineSeconds" not in document["spec"]
    assert template["spec"]["activeDeadlineSeconds"] > 3600


def test_an_answer_ends_a_job_and_a_lost_node_does_not() -> None:
    """FAILED, INCONCLUSIVE and mistakes are never begun again; a drained node does not count as an attempt."""
    job = documents()[1]["spec"]
    drained, answered = job["podFailurePolicy"]["rules"]
    assert set(answered["onExitCodes"]["values"]) == {1, 2, 3, 4, 6, 8, 70}
    assert drained["action"] == "Ignore"
    assert job["backoffLimit"] == 3
    assert job["template"]["spec"]["restartPolicy"] == "Never", "what the policy asks for"


def test_the_order_arrives_byte_for_byte() -> None:
    """Whatever is in a key's text: the ConfigMap holds the order that the controller wrote."""
    assert documents()[0]["data"]["order.json"].encode() == TASKS[0].order


def test_files_of_what_is_done_are_removed(tmp_path: Path) -> None:
    """Written again later, the folder holds what is left then, and files of others stay."""
    (tmp_path / "envbuilder-mine.yaml").write_text("kind: Job\n")
    assert len(list(write_manifests(manifests(TASKS, CLUSTER), tmp_path))) == 2
    assert all(path.read_text().startswith(OURS) for path in tmp_path.glob("envbuilder-a*.yaml"))
    list(write_manifests(manifests(TASKS[1:], CLUSTER), tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([f"{TASKS[1].name}.yaml", "envbuilder-mine.yaml"])


def test_two_containers_speak_through_pipes(tmp_path: Path) -> None:
    """The served side gets the order on its standard input, as often as it is asked, and ends when it is told to."""
    lay_out(tmp_path)
    (tmp_path / "probes" / "start.sh").write_text("cat >>heard; echo said; echo noise >&2; exit 7\n")
    served = subprocess.Popen(["/bin/sh", "-c", SERVE.replace("/exchange", str(tmp_path))])
    for _ in range(2):
        why = beside(tmp_path, b'{"plan": 1}', Session((), lambda _: None), time_limit=20)
        assert why is not None
        assert "exit code 7" in why.why
    assert (tmp_path / "heard").read_text().count('"plan": 1') + (tmp_path / "heard").read_text().count('"plan":1') == 2
    threading.Timer(0.3, close, (tmp_path,)).start()
    assert served.wait(timeout=20) == 0
    assert beside(tmp_path, b"{}", Session((), lambda _: None), time_limit=1) is not None, "nobody is there: it ends"


@pytest.mark.parametrize("laid_out", [True, False])
def test_a_container_that_starts_when_all_is_over_ends(tmp_path: Path, *, laid_out: bool) -> None:
    """Its image took longer to pull than the answer to find: it looks before it waits, with pipes there or not."""
    if laid_out:
        lay_out(tmp_path)
    close(tmp_path)
    served = subprocess.Popen(["/bin/sh", "-c", SERVE.replace("/exchange", str(tmp_path))])
    assert served.wait(timeout=20) == 0
