"""The files of `init` and `export` name what exists; the matrix passes `plan`; the CI steps before a build run."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml
from check_jsonschema import main as check_jsonschema  # type: ignore[import-untyped]
from ci_steps import SHIPPED, repository, run_steps
from click.testing import CliRunner
from command_line import envbuilder
from table_rows import rows

from envbuilder.cli import root
from envbuilder.jobs.project import FILES

DEVCONTAINER = Path(__file__).parents[1] / "support/schemas/devContainer.base.schema.json"
SCHEMAS = {
    "compose.yaml": ("--builtin-schema", "vendor.compose-spec"),
    ".devcontainer/devcontainer.json": ("--schemafile", str(DEVCONTAINER)),
    ".github/workflows/environments.yml": ("--builtin-schema", "vendor.github-workflows"),
    ".gitlab-ci.yml": ("--builtin-schema", "vendor.gitlab-ci"),
}
"""Files of a project, and the published schemas that they fit."""


def run(*words: str) -> str:
    done = CliRunner().invoke(root, list(words))
    assert done.exception is None, f"{done.output}{done.exception}"
    return done.output


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TF_ENVBUILDER_REPOSITORY", "")  # `--repository` sets it
    return tmp_path


@rows
def test_matrix_of_init_passes_plan_and_is_the_chosen_environment(words: tuple[str, ...], id_: str, here: Path) -> None:
    run("init", "team", *words)
    (row,) = json.loads(run("plan", "team/matrix.yaml", "--format", "json"))["environments"]
    assert row["id"].startswith(id_)
    text = (here / "team/matrix.yaml").read_text()
    assert text.startswith("# yaml-language-server: $schema=matrix.schema.json\n")
    jsonschema.validate(yaml.safe_load(text), json.loads((here / "team/matrix.schema.json").read_text()))


def test_init_asks_a_person_for_what_is_not_given(here: Path) -> None:
    own, other = pty.openpty()
    words = [sys.executable, "-m", "envbuilder", "init", "asked"]
    with subprocess.Popen(words, stdin=other, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=here) as process:
        os.write(own, b"A100\n550.54.15\n~=2.18\n\ndebian-bookworm\npandas==2.2.3\n")
        assert process.wait(60) == 0
        assert b"Packages" in process.stderr.read()
    os.close(own)
    os.close(other)
    matrix = yaml.safe_load((here / "asked/matrix.yaml").read_text())
    assert (matrix["targets"], matrix["packages"]) == ({"drivers": ["550.54.15"], "gpus": ["A100"]}, ["pandas==2.2.3"])
    assert matrix["axes"]["os"] == ["debian-bookworm"]


def test_init_overwrites_nothing_and_leaves_nothing_if_it_fails(here: Path) -> None:
    (here / ".gitignore").write_text("*.pyc")
    run("init", "--flavor", "cpu", "--repository", "team/tf")
    before = (here / "matrix.yaml").read_text()
    assert re.fullmatch(r"\*\.pyc\n# .*\n/out/\n", (here / ".gitignore").read_text())
    assert (here / "envbuilder.toml").read_text() == 'repository = "team/tf"\n'
    with pytest.raises(AssertionError, match=r"has matrix\.yaml, "):
        run("init", "--flavor", "cpu")
    with pytest.raises(AssertionError, match=r"needs NumPy (.|\n)*change the packages"):
        run("init", "other", "--flavor", "cpu", "--package", "numpy==1.19.0")
    with pytest.raises(AssertionError, match="next: `envbuilder choose --gpu K80 --driver 470"):
        run("init", "other", "--gpu", "K80", "--driver", "580")
    with pytest.raises(AssertionError, match="not a package"):
        run("init", "other", "--flavor", "cpu", "--package", "not a package")
    assert (here / "matrix.yaml").read_text() == before
    with pytest.raises(AssertionError, match="pulls its images from a registry, and team/tf names none"):
        run("init", "other", "--flavor", "cpu", "--with", "kubernetes")
    assert not (here / "other").exists()


def test_files_for_containers_name_the_image(here: Path) -> None:
    forms = (word for form in FILES for word in ("--with", form))
    run("init", "--gpu", "A100", "--driver", "535", "--repository", "registry.example.org/team/tf", *forms)
    (row,) = json.loads(run("plan", "--format", "github"))["include"]
    image = f"registry.example.org/team/tf:{row['tag']}"
    for name, schema in SCHEMAS.items():
        checked = CliRunner().invoke(check_jsonschema, [*schema, name])
        assert checked.exit_code == 0, checked.output
    ((service,)) = yaml.safe_load((here / "compose.yaml").read_text())["services"].values()
    assert service["image"] == image
    assert service["deploy"]["resources"]["reservations"]["devices"][0]["capabilities"] == ["gpu"]
    assert json.loads((here / ".devcontainer/devcontainer.json").read_text())["image"] == image
    (job,) = yaml.safe_load_all((here / "kubernetes.yaml").read_text())
    kubernetes_validate.validate(job, "1.33", strict=True)
    assert job["spec"]["template"]["spec"]["containers"][0]["image"] == image


def test_devcontainer_of_two_environments_asks_for_one(here: Path) -> None:
    (here / "matrix.yaml").write_text('name: m\naxes: {tensorflow: ["2.20.0"], flavor: [cpu, gpu]}\n')
    with pytest.raises(AssertionError, match="2 are selected"):
        run("export", "devcontainer")
    assert json.loads(run("export", "devcontainer", "-s", "flavor=cpu"))["image"].startswith("envbuilder/tensorflow:")
    services = yaml.safe_load(run("export", "compose", "notebook"))["services"].values()
    assert all(one["ports"][0].endswith(":8888") and "command" not in one for one in services)


def test_action_fits_its_schema_and_checks_the_lock_first(here: Path) -> None:
    file = Path(__file__).parents[2] / "action.yml"
    assert CliRunner().invoke(check_jsonschema, ["--builtin-schema", "vendor.github-actions", str(file)]).exit_code == 0
    repository(here)
    action = yaml.safe_load(file.read_text())
    (shown,) = re.findall(r"```yaml\n(jobs:.*?)```", (file.parent / "docs/how-to/ci.md").read_text(), re.DOTALL)
    used = yaml.safe_load(shown)["jobs"]["environments"]["steps"][-1]
    assert used["with"].keys() <= action["inputs"].keys()
    steps = [one for one in action["runs"]["steps"] if "render" in one.get("run", "")]
    assert run_steps({"steps": steps}, here, SELECT="flavor=cpu")[0] == 0
    (here / "images" / SHIPPED / "Dockerfile").write_text("")
    assert run_steps({"steps": steps}, here, SELECT="")[0] == 1


def test_each_error_of_a_file_is_one_annotation_of_a_job_of_github(here: Path) -> None:
    repository(here)
    assert "add-matcher" not in run("export", "github")  # a matcher would mark what the command marks itself
    (here / "matrix.yaml").write_text("name: m\naxes: {tensorflow: [2.20], flavour: [cpu]}\n")
    done = envbuilder(here, "plan", GITHUB_ACTIONS="true")
    marks = [line for line in done.stderr.splitlines() if line.startswith("::")]
    assert len(marks) == 2
    assert marks[0].startswith("::error title=envbuilder,file=matrix.yaml,line=2::axes.")
    assert "did you mean flavor" in "".join(marks)


@pytest.mark.parametrize("form", ["github", "gitlab"])
def test_plan_job_is_green_in_a_repository_of_its_own_and_red_for_a_broken_matrix(form: str, here: Path) -> None:
    repository(here)
    job = yaml.safe_load(run("export", form))
    job = job["jobs"]["plan"] if form == "github" else job["plan"]
    code, text = run_steps(job, here)
    assert code == 0, text
    if form == "github":
        assert json.loads(text.removeprefix("environments="))["include"][0]["environment"] == SHIPPED
    matrix = here / "matrix.yaml"
    matrix.write_text(matrix.read_text().replace("2.20.0", "2.19.1"))
    assert run_steps(job, here)[0] == 1  # no lock
    matrix.write_text(matrix.read_text().replace('"2.19.1"', "2.20"))
    code, text = run_steps(job, here)
    assert (code, "matrix.yaml:2" in text) == (2, True), text


def test_report_of_a_failed_build_is_written_though_there_is_no_verdict(here: Path) -> None:
    repository(here)
    steps = yaml.safe_load(run("export", "github"))["jobs"]["validate"]["steps"]
    results = [one for one in steps if one.get("name") == "Results"]
    assert run_steps({"steps": results}, here, GITHUB_STEP_SUMMARY=str(here / "summary"))[0] == 3
    assert (here / "report/index.html").exists()
