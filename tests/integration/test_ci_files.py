"""The CI file of `export github` is green in a repository of its own: every step runs, up to a verified publication."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ci_steps import SHIPPED, repository, run_steps
from registries import docker_registry

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.full]


def envbuilder(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "envbuilder", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_every_step_of_the_github_file_is_green(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    repository(folder)
    jobs = yaml.safe_load(envbuilder(folder, "export", "github"))["jobs"]
    code, text = run_steps(jobs["plan"], folder)
    assert code == 0, text
    (row,) = json.loads(text.removeprefix("environments="))["include"]
    assert row["environment"] == SHIPPED
    envbuilder(folder, "keys", "new", str(tmp_path / "k"))
    with docker_registry(tmp_path / "registry") as address:
        image = f"{address}/team/ci-file"
        code, text = run_steps(
            jobs["validate"],
            folder,
            ENVIRONMENT=row["environment"],
            TAG=row["tag"],
            IMAGE=image,
            KEY=next((tmp_path / "k").parent.rglob("*.key")).read_text(),
            RUNNER_TEMP=str(tmp_path),
            GITHUB_STEP_SUMMARY=str(tmp_path / "summary.md"),
        )
        assert code == 0, text
        public = next(tmp_path.rglob("*.pub"))
        envbuilder(folder, "verify", f"{image}:{row['tag']}", "--key", str(public), "--level", "cpu")
        subprocess.run(["docker", "image", "rm", f"{image}:{row['tag']}"], capture_output=True, check=False)
    assert "1 PASSED" in (tmp_path / "summary.md").read_text()
    assert (folder / "junit.xml").exists()
    assert (folder / "report/index.html").exists()
