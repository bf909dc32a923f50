"""Exported jobs: the right nodes, valid manifests, no secret in a file, and nothing that a value can inject."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import msgspec
import pytest
import yaml
from factories import digest
from fleet_jobs import job
from table_rows import rows

from envbuilder.choice import read_fleet
from envbuilder.compat.fleet import FleetHost
from envbuilder.errors import InputError, UsageError
from envbuilder.jobs.fleet.job import Job
from envbuilder.jobs.fleet.run import render_jobs

LABELS = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/cuda.driver-version.full": "550.54.15"}
AMPERE = "A100/550.54.15"
FLEET = (
    FleetHost(name="bare", driver="550.54.15", gpus=("A100",)),
    FleetHost(name="ampere", driver="550.54.15", gpus=("A100",), constraint="a100&driver-550.54.15", labels=LABELS),
)
KEY = "a 'public' key\n$(touch injected)\n\"…\": {a: b}\n"
CLUSTER = ("registry.example.org/ml/envbuilder@" + digest("runner"), "registry-login")
VERSIONS = ("1.35", "1.36", "1.37")
"""The three newest versions with published schemas."""


def gpu_job(image: str) -> Job:
    return job(image, AMPERE, trusted=(KEY,))


JOBS = (gpu_job("one"), gpu_job("two"), gpu_job("one"), job("cpu"))


def exported(
    scheduler: str, runner: str = "", secret: str = "", fleet: tuple[FleetHost, ...] = FLEET
) -> dict[str, str]:
    return render_jobs(scheduler, JOBS, {AMPERE: fleet}, matrix="m", runner=runner, pull_secret=secret)


def slurm() -> dict[str, str]:
    return exported("slurm")


def kubernetes(cluster: tuple[str, str] = CLUSTER) -> dict[str, list[dict[str, Any]]]:
    return {name: list(yaml.safe_load_all(text)) for name, text in exported("kubernetes", *cluster).items()}


def test_each_host_class_has_one_script_and_each_image_one_task() -> None:
    scripts = slurm()
    assert sorted(scripts) == ["A100-550.54.15.sbatch", "any-host.sbatch"]
    gpu, cpu = scripts["A100-550.54.15.sbatch"], scripts["any-host.sbatch"]
    assert re.findall(r"sha256:[0-9a-f]{64}", gpu) == [digest("one"), digest("two")]
    assert "#SBATCH --array=0-1\n" in gpu
    assert "#SBATCH --constraint=a100&driver-550.54.15\n#SBATCH --gres=gpu:1\n" in gpu
    assert "--constraint" not in cpu
    for script in scripts.values():
        head = script[: script.index("set -euo")]
        assert all(line.startswith("#") for line in head.splitlines()), "Slurm reads directives before any command"


def test_host_class_without_a_constraint_or_labels_is_refused_and_a_pod_without_envbuilder() -> None:
    """Any node would take the job, and report a result for the wrong host class."""
    for scheduler, runner, text in (
        ("slurm", "", "no row .* Slurm"),
        ("kubernetes", "runner", "no row .* Kubernetes"),
        ("kubernetes", "", "image that contains envbuilder"),
    ):
        with pytest.raises(UsageError, match=text):
            exported(scheduler, runner, fleet=FLEET[:1])


@pytest.mark.parametrize("text", ["a b", "a\nb", "$(id)", "a;b", "'", "a100 --wrap=x"])
def test_text_that_selects_no_node_is_an_error_of_the_fleet_file(text: str, tmp_path: Path) -> None:
    given: tuple[dict[str, Any], ...] = ({"constraint": text}, {"labels": {"pool": text}}, {"labels": {text: "x"}})
    for content in (*(b"- %b\n" % msgspec.json.encode({"name": "x", **one}) for one in given), b"[]"):
        (tmp_path / "fleet.yaml").write_bytes(content)
        with pytest.raises(InputError, match=r"constraint|labels|the list is empty"):
            read_fleet(tmp_path / "fleet.yaml")


def run(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script as a node does, with an envbuilder that prints its arguments and its input."""
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    (tools / "envbuilder").write_text('#!/bin/sh\necho "$PWD" "$@"; cat ${3#-}\n')
    (tools / "envbuilder").chmod(0o755)
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "TF_ENVBUILDER_WORK": str(folder / "work"), **variables}
    return subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)


def test_slurm_task_passes_its_own_specification_byte_for_byte(tmp_path: Path) -> None:
    script = slurm()["A100-550.54.15.sbatch"]
    for number, image in enumerate(("one", "two")):
        ended = run(script, tmp_path, SLURM_ARRAY_TASK_ID=str(number), TF_ENVBUILDER_SIGNING_KEY="/k")
        arguments, spec = ended.stdout.split("\n", 1)
        assert arguments == f"{tmp_path / 'work'} fleet prove -", ended.stderr
        assert spec.encode() == JOBS[number].data
        assert msgspec.json.decode(spec, type=Job).digest == digest(image)
    assert not list(tmp_path.rglob("injected"))
    node = run(script, tmp_path, SLURM_ARRAY_TASK_ID="0", TF_ENVBUILDER_SIGNING_KEY="/k", SLURMD_NODENAME="n1")
    assert node.stdout.startswith(f"{tmp_path / 'work'}/n1 "), "nodes with a common disk use one folder each"
    assert (tmp_path / "work").stat().st_mode & 0o077 == 0


@rows
def test_slurm_task_without_a_key_or_beyond_the_array_runs_nothing(
    tmp_path: Path, variables: dict[str, str], reason: str
) -> None:
    ended = run(slurm()["A100-550.54.15.sbatch"], tmp_path, **variables)
    assert ended.returncode != 0
    assert not ended.stdout
    assert reason in ended.stderr


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("cluster", [CLUSTER, ("runner", "")], ids=["all", "least"])
def test_every_manifest_is_valid_by_the_published_schemas(version: str, cluster: tuple[str, str]) -> None:
    for documents in kubernetes(cluster).values():
        for document in documents:
            assert kubernetes_validate.validate(document, version, strict=True) == version


def pod(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = kubernetes()[name][-1]["spec"]["template"]["spec"]
    return spec


def test_index_of_a_kubernetes_job_passes_its_own_specification(tmp_path: Path) -> None:
    """The very command of the container runs here; its volume of specifications is a folder."""
    *configs, document = kubernetes()["A100-550.54.15.yaml"]
    assert document["spec"]["completions"] == 2
    assert [one["data"] for one in configs] == [{f"{number}.json": JOBS[number].data.decode()} for number in range(2)]
    volumes = {one["name"]: one for one in document["spec"]["template"]["spec"]["volumes"]}
    sources = [one["configMap"]["name"] for one in volumes["specs"]["projected"]["sources"]]
    assert sources == [one["metadata"]["name"] for one in configs]
    specs = tmp_path / "specs"
    specs.mkdir()
    for name, content in (pair for one in configs for pair in one["data"].items()):
        (specs / name).write_text(content)
    (container,) = document["spec"]["template"]["spec"]["containers"]
    script = container["command"][2].replace("/specs", str(specs))
    for number in range(2):
        ended = run(script, tmp_path, JOB_COMPLETION_INDEX=str(number))
        assert ended.stdout.encode().endswith(JOBS[number].data), ended.stderr


def test_kubernetes_job_runs_on_nodes_of_its_host_class() -> None:
    gpu, cpu = pod("A100-550.54.15.yaml"), pod("any-host.yaml")
    assert gpu["nodeSelector"] == {"kubernetes.io/arch": "amd64", **LABELS}
    assert gpu["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    assert cpu["nodeSelector"] == {"kubernetes.io/arch": "amd64"}
    assert "tolerations" not in cpu
    limits = [one["containers"][0]["resources"]["limits"].get("nvidia.com/gpu") for one in (gpu, cpu)]
    assert limits == [1, None]
    (term,) = gpu["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    template = kubernetes()["any-host.yaml"][-1]["spec"]["template"]
    assert term["labelSelector"]["matchLabels"] == template["metadata"]["labels"], "one validation on a node"


def test_pod_has_no_more_rights_than_the_engine_needs_and_an_answer_ends_its_index() -> None:
    """FAILED, INCONCLUSIVE and mistakes are not repeated; a drained node does not count as an attempt."""
    job = kubernetes()["any-host.yaml"][-1]["spec"]
    spec = job["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    security = spec["containers"][0]["securityContext"]
    assert (security["allowPrivilegeEscalation"], security["readOnlyRootFilesystem"]) == (False, True)
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert [one["hostPath"]["type"] for one in spec["volumes"] if "hostPath" in one] == ["Socket"]
    drained, answered = job["podFailurePolicy"]["rules"]
    assert set(answered["onExitCodes"]["values"]) == {1, 2, 3, 4, 6, 8, 70}
    assert (answered["action"], drained["action"]) == ("FailIndex", "Ignore")
    assert job["backoffLimitPerIndex"] == 3
    assert spec["restartPolicy"] == "Never", "required by the policy"
    assert "activeDeadlineSeconds" not in job, "a queue may be long"
