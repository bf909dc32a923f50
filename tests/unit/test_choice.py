"""A matrix's own bases: known by what was found in them, or refused with the reason and what to do."""

import json
import re
from pathlib import Path

import msgspec
import pytest
from command_line import ran
from made_bases import DIGEST, IMAGE, PLAIN, SONAMES, WITH_CUDA, keep
from table_rows import rows

from envbuilder.catalog.store import load
from envbuilder.choice import VETTED, choose, choose_all, find_matrix, local_matrices, read_known
from envbuilder.errors import EnvbuilderError, InputError, UnsatisfiableError, UsageError
from envbuilder.finding import Code
from envbuilder.jobs.plan import PlanOptions, plan_matrix
from envbuilder.support.templates import shipped
from envbuilder.workspace import Workspace, project_folder, settings_of

CATALOG = load()
NAMES = {"image": IMAGE, "digest": DIGEST}


def matrix(root: Path, *, flavor: str = "cpu", more: str = "", tensorflow: str = "2.13.1") -> str:
    path = root / "matrix.yaml"
    path.write_text(
        f"name: ours\nbases:\n  corp: {{image: '{IMAGE}'{more}}}\n"
        f"axes: {{tensorflow: ['{tensorflow}'], os: [corp], flavor: [{flavor}]}}\n"
    )
    return str(path)


def test_base_of_a_matrix_is_a_system(tmp_path: Path) -> None:
    workspace = keep(tmp_path, PLAIN)
    (gpu,) = choose(matrix(tmp_path, flavor="gpu"), (), workspace, CATALOG).environments
    assert (gpu.os, gpu.python, gpu.id) == ("corp", "3.10", "tf2.13.1-py310-cu11.8-cudnn8.6-corp-bbbbbbbb")
    assert gpu.cuda_wheels
    assert (gpu.on_registry_base.image, gpu.on_registry_base.python_packages) == (IMAGE, ())
    assert not gpu.on_registry_base.brings_cuda


def test_base_with_cuda_brings_it(tmp_path: Path) -> None:
    workspace = keep(tmp_path, WITH_CUDA)
    (gpu,) = choose(matrix(tmp_path, flavor="gpu"), (), workspace, CATALOG).environments
    assert (gpu.cuda, gpu.cudnn, gpu.cuda_wheels, gpu.loader_folders) == ("11.8", "8.6.0", (), ())
    assert gpu.on_registry_base.brings_cuda
    assert gpu.on_registry_base.states_driver


@pytest.mark.parametrize("left_out", [name for name in SONAMES if name != "libcudart.so.11.0"])
def test_library_that_was_not_found_is_refused_before_a_build(left_out: str, tmp_path: Path) -> None:
    held = tuple(one for one in WITH_CUDA.libraries if one.soname != left_out)
    cudnn = "" if left_out == "libcudnn.so.8" else WITH_CUDA.cudnn
    keep(tmp_path, msgspec.structs.replace(WITH_CUDA, libraries=held, cudnn=cudnn))
    planned = plan_matrix(PlanOptions(matrix(tmp_path, flavor="gpu")), tmp_path, CATALOG)
    assert not planned.environments
    wrong = [row for row in planned.findings if row.code is Code.MISSING_LIBRARY]
    assert any(left_out in row.message for row in wrong)
    with pytest.raises(UnsatisfiableError):
        choose(matrix(tmp_path, flavor="gpu"), (), Workspace(tmp_path), CATALOG)


def problem(name: str, root: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_known(name, root, CATALOG)
    (found,) = caught.value.problems
    assert (found.key, found.line) == ("bases.corp", 3)
    return f"{found.message}; {caught.value.hint}"


@rows
def test_unusable_base_is_refused_with_the_reason(
    facts: dict[str, str] | None, more: str, why: str, tmp_path: Path
) -> None:
    if facts is not None:
        keep(tmp_path, msgspec.structs.replace(PLAIN, **facts))
    assert why.format(**NAMES) in problem(matrix(tmp_path, more=more), tmp_path)


def test_python_of_the_base_may_be_named_and_the_name_of_a_system_is_taken(tmp_path: Path) -> None:
    keep(tmp_path, PLAIN)
    path = Path(matrix(tmp_path, more=", python: '3.10'"))
    assert read_known(str(path), tmp_path, CATALOG)[1].system("corp") is not None
    path.write_text(path.read_text().replace("corp", "debian-bookworm"))
    with pytest.raises(InputError, match="give the base another"):
        read_known(str(path), tmp_path, CATALOG)


@rows
def test_hostile_base_is_refused_with_its_line(old: str, new: str, tmp_path: Path) -> None:
    path = Path(matrix(tmp_path))
    path.write_text(path.read_text().replace(old.format(**NAMES), new.format(**NAMES), 1))
    with pytest.raises(InputError) as caught:
        read_known(str(path), tmp_path, CATALOG)
    assert all(one.line == 3 for one in caught.value.problems)


@rows
def test_packages_of_the_system_need_apt(more: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(tmp_path, msgspec.structs.replace(PLAIN, system="rhel", release="9.4", packages="dnf"))
    path = Path(matrix(tmp_path))
    assert read_known(str(path), tmp_path, CATALOG)[1].system("corp") is not None
    path.write_text(f"{path.read_text()}{more}\n")
    assert "git cannot be installed on it: it has dnf instead of apt" in problem(str(path), tmp_path)
    path.write_text(re.sub(r"os: (\[?)corp", r"os: \1debian-bookworm", path.read_text()))
    assert read_known(str(path), tmp_path, CATALOG)[0].bases
    assert "nothing is built on the base corp" in capsys.readouterr().err


def test_ranges_of_a_matrix_are_their_newest_release(tmp_path: Path) -> None:
    path = tmp_path / "matrix.yaml"
    path.write_text(
        "name: m\naxes: {tensorflow: [latest, '>=2.17, <2.19']}\ninclude: [{tensorflow: '~=2.15.0', flavor: gpu}]\n"
    )
    found = choose(str(path), (), Workspace(tmp_path), CATALOG).environments
    assert [row.tensorflow for row in found] == [CATALOG.final_versions[-1], "2.18.1", "2.15.1"]
    path.write_text("name: m\naxes: {tensorflow: ['>=9']}\n")
    with pytest.raises(InputError, match=r"matrix\.yaml:2: tensorflow: the catalogue has no release in >=9"):
        choose(str(path), (), Workspace(tmp_path), CATALOG)


@rows
def test_file_that_a_matrix_names_is_checked_before_anything_is_built(
    tmp_path: Path, key: str, name: str, content: str | None, text: str
) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(f"name: m\naxes: {{tensorflow: [2.20.0]}}\n{key}\n")
    if content is not None:
        (tmp_path / name).write_text(content)
    if not text:
        assert read_known(str(path), tmp_path, CATALOG)[0].certificates == (name,)
        return
    with pytest.raises(InputError, match=text) as error:
        read_known(str(path), tmp_path, CATALOG)
    (problem,) = error.value.problems
    assert (problem.path, problem.line, problem.key) == (str(path), 3, name)


MATRIX = """\
name: team
id: {pattern}
axes: {{tensorflow: ["2.19.1", "2.20.0"], os: [debian-bookworm], flavor: [cpu, gpu], form: [runtime, devel]}}
"""


def tagged(pattern: str, folder: Path) -> dict[str, str]:
    (folder / "matrix.yaml").write_text(MATRIX.format(pattern=pattern))
    return {one.id: one.image_tag for one in choose("matrix.yaml", (), Workspace(folder), CATALOG).environments}


def test_matrix_names_its_tags(tmp_path: Path) -> None:
    tags = tagged('"{form}-{tensorflow}-{flavor}-cuda{cuda}-{variant}"', tmp_path)
    assert tags["tf2.20.0-py311-cpu-bookworm-runtime"] == "runtime-2.20.0-cpu-cudanone-runtime"
    assert tags["tf2.20.0-py311-cu12.5-cudnn9.3-bookworm"] == "devel-2.20.0-gpu-cuda12.5-devel"
    assert len(set(tags.values())) == len(tags) == 8


@rows
def test_pattern_of_tags_that_does_not_tell_images_apart_is_refused(pattern: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(EnvbuilderError, match=re.escape(why)):
        tagged(json.dumps(pattern), tmp_path)


def test_matrix_is_found_by_path_and_by_name(tmp_path: Path) -> None:
    assert find_matrix(None, tmp_path) == shipped("matrices") / "quickstart.yaml"
    assert find_matrix("matrices/tensorflow.yaml", tmp_path) == shipped("matrices") / "tensorflow.yaml"
    own = tmp_path / "own.yaml"
    own.write_text("name: own\n")
    assert find_matrix("own.yaml", tmp_path) == own
    with pytest.raises(UsageError, match=r"no such matrix(.|\n)*quickstart"):
        find_matrix("quickstrat", tmp_path)
    with pytest.raises(UsageError, match="empty"):
        find_matrix("", tmp_path)
    assert find_matrix("/dev/null", tmp_path) == Path("/dev/null")


def project(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_folder_with_one_matrix_is_its_own_default(tmp_path: Path) -> None:
    project(tmp_path, matrices__own_yaml='name: own\naxes: {tensorflow: ["2.20.0"]}\n')
    assert find_matrix(None, tmp_path) == tmp_path / "matrices/own.yaml"
    (choice,) = choose_all((), (), tmp_path, CATALOG)
    assert choice.matrix.name == "own"
    assert [one.matrix.name for one in choose_all(("shipped",), (), tmp_path, CATALOG)] == list(VETTED)


def test_folder_with_two_matrices_asks_for_one(tmp_path: Path) -> None:
    project(tmp_path, matrix_yaml="name: a\n", matrices__b_yaml="name: b\n")
    with pytest.raises(UsageError, match=r"2 matrices: \S+/matrix.yaml, \S+/matrices/b.yaml"):
        find_matrix(None, tmp_path)


@pytest.mark.parametrize(("name", "table"), [("envbuilder_toml", ""), ("pyproject_toml", "[tool.envbuilder]\n")])
def test_settings_of_a_project_are_found_from_below(
    tmp_path: Path, name: str, table: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands work in the folder of the settings; a folder with a matrix is a project itself."""
    settings = f'{table}matrices = ["b.yaml", "tensorflow"]\nselect = ["flavor=cpu"]\n'
    text = 'name: b\nrequirements: more.txt\naxes: {tensorflow: ["2.20.0"], flavor: [cpu, gpu]}\n'
    files = {name: settings, "b_yaml": text, "more_txt": "humanize\n", "sub__pyproject_toml": "[project]\n"}
    below = project(tmp_path, **files) / "sub"
    monkeypatch.chdir(below)
    assert (project_folder(), settings_of(below).select) == (tmp_path, ("flavor=cpu",))
    assert find_matrix(None, project_folder()) == tmp_path / "b.yaml"
    assert Workspace.here().images == tmp_path / "images"
    code, out, _ = ran(capsys, "export", "github")
    assert (code, 'MATRIX: "b.yaml"' in out) == (0, True)
    project(below, matrix_yaml=text)
    assert (project_folder(), local_matrices(below)) == (below, ("matrix.yaml",))


@pytest.mark.parametrize("text", ["matrix = 1\n", "matrices = 'a'\n", "matrices = [\n"])
def test_settings_that_do_not_fit_name_their_file(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"envbuilder\.toml"):
        settings_of(project(tmp_path, envbuilder_toml=text))


def test_mistyped_value_is_named_with_its_line_and_a_suggestion(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(tmp_path, PLAIN)
    path = Path(matrix(tmp_path))
    own = path.read_text().replace("os: [corp]", "os: [crop]")
    row = "{tensorflow: 2.99.0, python: '3.99', cuda: '99.1', cudnn: '9.99'}"
    path.write_text(f"{own}include: [{row}]\ntargets: {{gpus: [A1000X]}}\n")
    with pytest.raises(UnsatisfiableError, match="Did you mean corp\\?"):
        choose(str(path), (), Workspace(tmp_path), CATALOG)
    text, said = path.read_text(), capsys.readouterr().err
    for key, value in (
        *(("os", "crop"), ("tensorflow", "2.99.0"), ("gpus", "A1000X")),
        *(("python", "3.99"), ("cuda", "99.1"), ("cudnn", "9.99")),
    ):
        line = text.count("\n", 0, text.index(value)) + 1
        assert f"{path}:{line}: {key}: The catalogue has no " in said


@pytest.mark.parametrize(("package", "warned"), [("libgomp1", True), ("libgomp1=12.2.0-14", False)])
def test_system_package_without_a_version_on_an_own_base_is_a_warning(
    tmp_path: Path, package: str, *, warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(tmp_path, PLAIN)
    path = Path(matrix(tmp_path))
    path.write_text(f"{path.read_text()}system_packages: ['{package}']\n")
    read_known(str(path), tmp_path, CATALOG)
    assert ("libgomp1 on corp without a version" in capsys.readouterr().err) == warned
