"""The CI files of `export` are green in a repository of their own: every step runs, up to a verified publication."""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml
from ci_steps import SHIPPED, TOP, repository, run_steps
from registries import docker_registry

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.full]


def envbuilder(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "envbuilder", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("form", ["github", "gitlab", "action"])
def test_every_step_is_green(form: str, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    repository(folder)
    text = (TOP / "action.yml").read_text() if form == "action" else envbuilder(folder, "export", form)
    file = yaml.safe_load(text)
    *plans, job = [file["runs"]] if form == "action" else file.get("jobs", file).values()
    code, text = run_steps(plans[-1], folder) if plans else (0, "")
    assert code == 0, text
    if form == "github":
        (row,) = json.loads(text.removeprefix("environments="))["include"]
        assert row["environment"] == SHIPPED
    envbuilder(folder, "keys", "new", str(tmp_path / "k"))
    key = next((tmp_path / "k").glob("*.key"))
    with docker_registry(tmp_path / "registry") as address:
        image = f"{address}/team/{form}"
        variables = {
            "github": {
                "ENVIRONMENT": SHIPPED,
                "TAG": SHIPPED,
                "KEY": key.read_text(),
                "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
            },
            "gitlab": {
                "DOCKER_CONFIG": str(tmp_path / "docker"),
                "CI_REGISTRY": address,
                "CI_REGISTRY_USER": "user",
                "CI_REGISTRY_PASSWORD": "password",
                "CI_COMMIT_BRANCH": "main",
                "CI_DEFAULT_BRANCH": "main",
                "TF_ENVBUILDER_KEY": str(key),
            },
            "action": {
                "SELECT": "flavor=cpu",
                "CACHE": image,
                "TO": image,
                "KEY": key.read_text(),
                "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
            },
        }[form]
        code, text = run_steps(job, folder, IMAGE=image, **variables)
        assert code == 0, text
        if form == "gitlab":
            assert run_steps({"script": job["after_script"]}, folder)[0] == 0
        envbuilder(folder, "verify", f"{image}:{SHIPPED}", "--key", str(key.with_suffix(".pub")), "--level", "cpu")
        with urllib.request.urlopen(f"http://{address}/v2/team/{form}/tags/list") as answer:
            assert f"cache-{SHIPPED}" in json.load(answer)["tags"]
        subprocess.run(["docker", "image", "rm", f"{image}:{SHIPPED}"], capture_output=True, check=False)
    if form != "gitlab":
        assert "1 PASSED" in (tmp_path / "summary.md").read_text()
    assert (folder / "junit.xml").exists()
    assert (folder / "report/index.html").exists()
