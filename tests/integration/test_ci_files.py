"""The CI files of `export` are green in a repository of their own: every step runs, up to a verified publication."""

import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from ci_steps import SHIPPED, TOP, repository, run_steps
from command_line import envbuilder
from good_images import shared_controller
from registries import docker_registry

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.full]

GPU = "tf2.20.0-py311-cu12.5-cudnn9.3-bookworm"
"""An environment whose image other tests build too."""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a repository with a key; its runner keeps the ignored folder of results, so that it builds once."""
    folder = repository(tmp_path_factory.mktemp("own"))
    envbuilder(folder, "keys", "new", "keys", check=True)
    return folder


@pytest.fixture(scope="module")
def image(own: Path) -> Iterator[str]:
    with docker_registry(own / "registry") as address:
        yield f"{address}/team/own"
        subprocess.run(["docker", "image", "rm", f"{address}/team/own:{SHIPPED}"], capture_output=True, check=False)


@pytest.mark.parametrize("form", ["github", "gitlab", "action"])
def test_every_step_is_green(form: str, own: Path, image: str, tmp_path: Path) -> None:
    text = (TOP / "action.yml").read_text() if form == "action" else envbuilder(own, "export", form, check=True).stdout
    file = yaml.safe_load(text)
    *plans, job = [file["runs"]] if form == "action" else file.get("jobs", file).values()
    code, text = run_steps(plans[-1], own) if plans else (0, "")
    assert code == 0, text
    if form == "github":
        (row,) = json.loads(text.removeprefix("environments="))["include"]
        assert row["environment"] == SHIPPED
    key, summary = own / "keys" / "envbuilder.key", tmp_path / "summary.md"
    variables = {
        "github": {"ENVIRONMENT": SHIPPED, "TAG": SHIPPED, "KEY": key.read_text()},
        "gitlab": {
            "DOCKER_CONFIG": str(tmp_path / "docker"),
            "CI_REGISTRY": image.partition("/")[0],
            "CI_REGISTRY_USER": "user",
            "CI_REGISTRY_PASSWORD": "password",
            "CI_COMMIT_BRANCH": "main",
            "CI_DEFAULT_BRANCH": "main",
            "TF_ENVBUILDER_KEY": str(key),
        },
        "action": {"SELECT": "flavor=cpu", "CACHE": image, "TO": image, "KEY": key.read_text()},
    }[form]
    shutil.rmtree(own / "report", ignore_errors=True)
    (own / "junit.xml").unlink(missing_ok=True)
    code, text = run_steps(job, own, IMAGE=image, GITHUB_STEP_SUMMARY=str(summary), **variables)
    assert code == 0, text
    if form == "gitlab":
        assert run_steps({"script": job["after_script"]}, own)[0] == 0
    else:
        assert "1 PASSED" in summary.read_text()
    words = ("verify", f"{image}:{SHIPPED}", "--key", str(key.with_suffix(".pub")), "--level", "cpu")
    envbuilder(own, *words, check=True)
    with urllib.request.urlopen(f"http://{image.replace('/', '/v2/', 1)}/tags/list") as answer:
        assert f"cache-{SHIPPED}" in json.load(answer)["tags"]
    assert (own / "junit.xml").exists()
    assert (own / "report/index.html").exists()


def test_gpu_environment_is_green_on_a_runner_without_a_gpu(own: Path, image: str, tmp_path: Path) -> None:
    shared_controller().good("gpu")
    shutil.copytree(TOP / "images" / GPU, own / "images" / GPU)
    row = '{tensorflow: "2.20.0", python: "3.11", os: debian-bookworm, flavor: gpu, variant: devel}'
    (own / "gpu.yaml").write_text(f"name: gpu\ninclude: [{row}]\n")
    envbuilder(own, "build", "gpu.yaml", check=True)  # the runner has it: its steps are in no registry yet
    jobs = yaml.safe_load(envbuilder(own, "export", "github", "gpu.yaml", check=True).stdout)["jobs"]
    of_pull_request = [one for one in jobs["validate"]["steps"] if "github.ref" not in str(one.get("if"))]
    variables = {"MATRIX": "gpu.yaml", "ENVIRONMENT": GPU, "TAG": GPU, "IMAGE": image}
    for job in (jobs["plan"], {"steps": of_pull_request}):
        code, text = run_steps(job, own, GITHUB_STEP_SUMMARY=str(tmp_path / "summary.md"), **variables)
        assert code == 0, text
    verdict = json.loads((own / "out" / GPU / "verdict.json").read_text())
    assert verdict["verdict"] in {"INCONCLUSIVE", "PASSED"}
    assert verdict["verdict"] in (tmp_path / "summary.md").read_text()
