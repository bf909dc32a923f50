"""The upgrade job: options, request and decision."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from fake_engine import FakeEngine, Script
from made_bases import DIGEST, PLAIN, WITH_CUDA, keep
from msgspec.structs import replace

from envbuilder.catalog import store
from envbuilder.catalog.base_facts import BaseFacts
from envbuilder.catalog.rows import TensorflowRelease
from envbuilder.catalog.store import load
from envbuilder.engine.port import ContainerSpec
from envbuilder.environment import Combination, Environment
from envbuilder.errors import InputError, UnsatisfiableError, UsageError
from envbuilder.image import system_lock
from envbuilder.image.context import ensure_packages, write_context
from envbuilder.image.system_lock import CUDNN_LOCK, SYSTEM_LOCK
from envbuilder.matrix import Axes, Matrix, Targets
from envbuilder.support.console import Console
from envbuilder.upgrade.bisect import CommandResult, Unbuildable
from envbuilder.upgrade.bisect_runs import candidates, resolved, result_of_check
from envbuilder.upgrade.build import ImageBuilder, LockedImage
from envbuilder.upgrade.document import (
    Clause,
    ComparedImage,
    Differences,
    OutcomeChange,
    PackageChange,
    SurfaceChange,
    UpgradeDocument,
)
from envbuilder.upgrade.job import read_policy, read_upgrade
from envbuilder.upgrade.measure import measure
from envbuilder.upgrade.observe import Output, ProbeTarget, observe
from envbuilder.upgrade.options import UpgradeOptions, hosts
from envbuilder.upgrade.pairs import Pair, pair, pinned_row
from envbuilder.upgrade.text import as_markdown, as_text
from envbuilder.upgrade.user_tests import read_suite, results
from envbuilder.verdict import CheckResult, ImageRef
from envbuilder.workspace import Workspace, write_atomically

POLICY = read_policy(None, Path())


def engine(script: Any) -> FakeEngine:
    made = FakeEngine(script=script)
    made.add("old", b"old")
    made.add("new", b"new")
    return made


def request(old: str, new: str, **more: Any) -> UpgradeOptions:
    return UpgradeOptions(old=old, new=new, policy=POLICY, **more)


def never(version: str, package: str) -> TensorflowRelease:
    raise AssertionError(f"{package} {version} is in the catalogue")


def test_rounds_alternate_the_first_image_without_the_warm_up() -> None:
    order: list[str] = []

    def script(spec: ContainerSpec) -> Script:
        order.append(spec.image)
        seconds = {"old": 1.0, "new": 1.5}[spec.image] + len(order) / 1000
        return Script(stdout=json.dumps({"seconds": {"start.total": seconds}}).encode())

    docker = engine(script)
    with Console().task("t") as task:
        samples, gaps = measure(ProbeTarget(docker, "old"), ProbeTarget(docker, "new"), 3, task)
    assert order == ["new", "old", "old", "new", "new", "old", "old", "new"]
    assert not gaps
    assert samples[0].old == (1.003, 1.006, 1.007)
    assert samples[0].new == (1.504, 1.505, 1.508)


def test_image_that_does_not_start_gives_no_samples_and_a_gap() -> None:
    def script(spec: ContainerSpec) -> Script:
        if spec.image == "new":
            return Script(stderr=b"noise\nImportError: libcudart.so.12\n", exit_code=1)
        return Script(stdout=b'{"seconds": {"x": 1.0}}')

    docker = engine(script)
    with Console().task("t") as task:
        samples, gaps = measure(ProbeTarget(docker, "old"), ProbeTarget(docker, "new"), 3, task)
    assert samples == ()
    assert gaps == ("measurement of the new image: exit code 1: ImportError: libcudart.so.12",)


def test_probe_containers_are_closed_with_equal_limits() -> None:
    docker = engine(lambda _: Script(stdout=b'{"seconds": {"x": 1.0}}'))
    with Console().task("t") as task:
        measure(ProbeTarget(docker, "old"), ProbeTarget(docker, "new"), 1, task)
    limits = {(s.network, s.read_only, s.user, s.memory, s.cpus, s.pids, s.gpus) for s in docker.runs}
    assert limits == {("none", True, "65534:65534", 8 << 30, None, 2048, "none")}


def test_failed_probe_is_a_gap() -> None:
    def script(spec: ContainerSpec) -> Script:
        probe = spec.command[2]
        return {
            "inventory": Script(stdout=b'{"python": "3.11.2", "packages": [], "build": {}}'),
            "surface": Script(stderr=b"Segmentation fault", exit_code=139),
            "numerics": Script(seconds=10_000),
            "warning_lines": Script(stdout=b"hello"),
        }[probe]

    with Console().task("t") as task:
        seen = observe(ProbeTarget(engine(script), "old"), task)
    assert seen.inventory is not None
    assert (seen.surface, seen.numerics, seen.printed) == (None, None, None)
    assert [gap.partition(":")[0] for gap in seen.gaps] == ["public names", "numerics", "warnings"]
    assert "139" in seen.gaps[0]
    assert "no answer within" in seen.gaps[1]


def test_suite_contains_pytest_files_and_scripts(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "__pycache__").mkdir()
    for name, text in {
        "test_a.py": "",
        "sub/b_test.py": "",
        "conftest.py": "",
        "helper.py": "x = 1",
        "train.py": 'if __name__ == "__main__":\n    pass\n',
        "check.sh": "",
        "__pycache__/test_a.py": "",
    }.items():
        (tmp_path / name).write_text(text)
    suite = read_suite(tmp_path)
    assert suite.tests == ("sub/b_test.py", "test_a.py")
    assert set(suite.scripts) == {"train.py", "check.sh"}
    assert set(suite.files) == {"test_a.py", "sub/b_test.py", "conftest.py", "helper.py", "train.py", "check.sh"}


@pytest.mark.parametrize("content", [{}, {"readme.txt": "x"}], ids=["empty", "no tests"])
def test_suite_folder_without_tests_is_a_usage_error(content: dict[str, str], tmp_path: Path) -> None:
    for name, text in content.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match="holds no tests"):
        read_suite(tmp_path)


def test_unfinished_test_run_is_an_error_entry() -> None:
    line = b'{"name": "t", "outcome": "passed", "message": "", "seconds": 0.1}\n'
    whole = results(Output(line + b'{"end": true}\n', "", ""))
    early = results(Output(line, "", "the container ran out of memory"))
    assert [test.name for test in whole] == ["t"]
    assert [(test.name, test.outcome) for test in early] == [("t", "passed"), ("(the run)", "error")]


def test_test_with_failed_tear_down_is_an_error() -> None:
    lines = b'{"name": "t", "outcome": "passed"}\n{"name": "t", "outcome": "error", "message": "m"}\n{"end": true}\n'
    (test,) = results(Output(lines, "", ""))
    assert (test.outcome, test.message) == ("error", "m")


def test_pair_has_one_python_and_system() -> None:
    both = pair(request("2.15.1", "2.20.0"), store.load(), never)
    assert (both.old.python, both.old.os) == (both.new.python, both.new.os)
    assert (both.old.tensorflow, both.new.tensorflow) == ("2.15.1", "2.20.0")


def test_pair_keeps_the_matrix_row() -> None:
    matrix = Matrix(name="m", axes=Axes(tensorflow=("2.16.2",), os=("debian-bullseye",), flavor=("cpu", "gpu")))
    both = pair(request("2.16.2", "2.18.1", matrix=matrix, flavor="gpu"), store.load(), never)
    assert (both.old.os, both.new.os, both.new.flavor) == ("debian-bullseye", "debian-bullseye", "gpu")


def test_pair_without_common_python_raises_with_the_reason() -> None:
    matrix = Matrix(name="m", axes=Axes(tensorflow=("2.15.1",), os=("debian-bookworm",)))
    with pytest.raises(UnsatisfiableError, match=re.escape("2.6.5")):
        pair(request("2.6.5", "2.15.1", matrix=matrix), store.load(), never)


def test_release_outside_the_catalogue_is_proposed() -> None:
    catalog = store.load()
    known = next(row for row in catalog.tensorflow if (row.package, row.version) == ("tensorflow", "2.20.0"))
    fresh = msgspec.structs.replace(known, version="2.99.0", reviewed=False)
    asked: list[tuple[str, str]] = []

    def propose(version: str, package: str) -> TensorflowRelease:
        asked.append((version, package))
        return fresh

    both = pair(request("2.20.0", "2.99.0"), catalog, propose)
    assert asked == [("2.99.0", "tensorflow")]
    assert both.new.tensorflow == "2.99.0"
    assert both.proposed == ("tensorflow 2.99.0",)


def test_pair_uses_one_distribution() -> None:
    catalog = store.load()
    plain = next(row for row in catalog.tensorflow if (row.package, row.version) == ("tensorflow", "2.20.0"))
    fresh = msgspec.structs.replace(plain, version="2.99.0")
    both = pair(request("2.20.0", "2.99.0"), catalog, lambda *_: fresh)
    assert (both.old.package, both.new.package) == ("tensorflow", "tensorflow")


def test_wheel_file_sets_the_distribution_of_both_images() -> None:
    asked = request("2.19.1", "2.20.0", wheel=Path("tensorflow_cpu-2.20.0-cp311-cp311-manylinux_2_17_x86_64.whl"))
    both = pair(asked, store.load(), never)
    assert (both.old.package, both.new.package) == ("tensorflow-cpu", "tensorflow-cpu")


def test_targets_of_the_matrix_are_the_default_fleet() -> None:
    matrix = Matrix(name="m", axes=Axes(tensorflow=("2.18.1",)), targets=Targets(drivers=("535.104.05",), gpus=("T4",)))
    assert [(host.driver, host.gpus) for host in hosts(request("1", "2", matrix=matrix))] == [("535.104.05", ("T4",))]
    assert hosts(request("1", "2")) == ()


def test_row_of_a_bisection_serves_both_ends() -> None:
    row = pinned_row(request("2.12.1", "2.20.0"), store.load())
    assert (row.python, row.os) == ("3.11", "debian-bookworm")


def test_candidates_are_final_releases_and_catalogue_lines() -> None:
    catalog, row = store.load(), Combination(tensorflow="2.18.1", flavor="gpu")
    releases = candidates("tensorflow", row, catalog)
    assert {"2.12.1", "2.16.1", "2.20.0"} <= set(releases)
    assert not [version for version in releases if "rc" in version]
    assert {"12.2", "12.5"} <= set(candidates("cuda", row, catalog))
    lines = candidates("cudnn", row, catalog)
    assert "9.3" in lines
    assert len(lines) == len(set(lines))


def test_check_outcome_becomes_a_command_result() -> None:
    checks = tuple(
        CheckResult(name=name, level="cpu", outcome=name, observed="seen") for name in ("passed", "failed", "skipped")
    )
    found = [type(result_of_check(checks, name)) for name in ("passed", "failed", "skipped")]
    assert found == [CommandResult, CommandResult, Unbuildable]
    with pytest.raises(UsageError, match="no check 'nope'"):
        result_of_check(checks, "nope")


def document() -> UpgradeDocument:
    both = pair(request("2.15.1", "2.16.2"), store.load(), never)
    side = ComparedImage(
        tensorflow="2.15.1", environment=both.old, image=ImageRef(id="sha256:" + "a" * 64, size=10**9), verdict="PASSED"
    )
    failed = OutcomeChange(name="test_x", old="passed", new="failed", message="no | estimator <b>")
    package = PackageChange(
        name="keras",
        change="changed",
        old="2.15.0",
        new="3.15.1",
        old_licence="Apache-2.0",
        new_licence="MIT",
        old_size=1,
        new_size=2,
    )
    clause = Clause(
        clause="tests-newly-failed",
        says="your tests",
        otherwise="reject",
        state="violated",
        limit=0,
        found="1",
        details=("test_x: passed → failed: no estimator",),
    )
    return UpgradeDocument(
        old=side,
        new=replace(side, tensorflow="2.16.2", environment=both.new),
        flavor="cpu",
        decision="REJECT",
        policy="default",
        clauses=(clause,),
        differences=Differences(
            tests=(failed,), packages=(package,), surface=SurfaceChange(removed=("estimator",)), tests_run=1
        ),
        rounds=15,
        gaps=("old: numerics: no answer within 900 s",),
    )


def test_text_contains_decision_clause_and_gap() -> None:
    text = as_text(document())
    for part in ("REJECT", "test_x", "no | estimator", "keras", "2.15.0", "tf.estimator", "no answer within 900 s"):
        assert part in text


def test_markdown_escapes_bars_and_tags() -> None:
    text = as_markdown(document())
    assert "no \\| estimator &lt;b&gt;" in text
    bars = re.compile(r"(?<!\\)\|")
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(bars.findall(line)) for line in block.splitlines()}) == 1


def test_document_survives_a_json_round_trip() -> None:
    written = msgspec.json.encode(document())
    assert msgspec.json.decode(written, type=UpgradeDocument) == document()
    assert json.loads(written)["schema"] == "envbuilder/upgrade/v1"


GPU_ROW = Combination(tensorflow="2.20.0", flavor="gpu", os="debian-bookworm", python="3.11")


def test_cudnn_candidates_are_wheels_for_the_cuda_version() -> None:
    found = candidates("cudnn", GPU_ROW, store.load())
    assert {"8.9", "9.0", "9.1", "9.2", "9.3"} <= set(found)
    assert all(text.startswith(("8.", "9.")) for text in found)


@pytest.mark.parametrize(
    ("axis", "version", "brings"),
    [
        ("cudnn", "9.1", "nvidia-cudnn-cu12==9.1.1.17"),
        ("cudnn", "9.3", "nvidia-cudnn-cu12==9.3.0.75"),
        ("cuda", "11.8", "nvidia-cuda-runtime-cu11==11.8.89"),
        ("cuda", "12.4", "no wheels of CUDA 12.4 are known for tensorflow 2.20.0"),
        ("cudnn", "7.6", "was compiled with cuDNN 9.3 and refuses 7.6"),
    ],
)
def test_bisection_builds_versions_that_do_not_fit(axis: Any, version: str, brings: str) -> None:
    found = resolved(GPU_ROW, axis, version, store.load())
    if isinstance(found, Unbuildable):
        assert brings in found.why
    else:
        assert isinstance(found, Environment)
        assert brings in found.cuda_wheels


CATALOG = load()
LOCK = f"tensorflow==2.13.1 \\\n    --hash=sha256:{'d' * 64}\n"
WHEEL = f"nvidia-cudnn-cu11==8.6.0.163 \\\n    --hash=sha256:{'c' * 64}\n"
MATRIX = """\
name: ours
bases:
  corp: {{image: 'registry.example.org:5000/hardened/ubuntu@{digest}'}}
axes: {{tensorflow: [2.12.1, 2.13.1], os: [{os}], flavor: [{flavor}]}}
{more}
"""


VALUES: dict[str, Any] = {
    "old": "2.12.1",
    "new": "2.13.1",
    "matrix": "ours.yaml",
    **dict.fromkeys(("fleet", "policy", "rounds")),
}
"""Options of the command line."""


def asked(root: Path, facts: BaseFacts | None, os: str, flavor: str, more: str = "") -> Pair:
    """Find the two images of 2.12.1 and 2.13.1 that a matrix offers."""
    if facts is not None:
        keep(root, facts)
    text = MATRIX.format(digest=DIGEST, os=os, flavor=flavor, more=more)
    (root / "ours.yaml").write_text(
        text if facts is not None else "\n".join(text.splitlines()[:1] + text.splitlines()[3:])
    )
    options, known = read_upgrade(VALUES | {"flavor": flavor}, root, CATALOG)
    found = pair(options, known, never)
    assert pinned_row(options, known).os == os
    return found


@pytest.mark.parametrize(
    ("facts", "os", "flavor"),
    [
        (PLAIN, "corp", "cpu"),
        (PLAIN, "corp", "gpu"),
        (WITH_CUDA, "corp", "gpu"),
        (None, "debian-bookworm-cuda", "gpu"),
        (None, "nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu22.04", "gpu"),
    ],
)
def test_pair_uses_the_base_of_the_matrix(tmp_path: Path, facts: BaseFacts | None, os: str, flavor: str) -> None:
    found = asked(tmp_path, facts, os, flavor)
    assert (found.old.os, found.new.os, set(found.offered)) == (os, os, {found.old.id, found.new.id})
    assert (found.old.tensorflow, found.new.tensorflow, found.old.flavor) == ("2.12.1", "2.13.1", flavor)
    brings = facts is WITH_CUDA or os != "corp"
    assert bool(found.new.cuda_wheels) == (flavor == "gpu" and not brings)


def test_base_without_facts_raises_with_the_command(tmp_path: Path) -> None:
    text = MATRIX.format(digest=DIGEST, os="corp", flavor="cpu", more="")
    (tmp_path / "ours.yaml").write_text(text)
    with pytest.raises(InputError) as failed:
        read_upgrade(VALUES, tmp_path, CATALOG)
    assert "catalog look" in (failed.value.hint or "")


def test_proposed_image_has_the_files_and_template_of_the_matrix(tmp_path: Path) -> None:
    (tmp_path / "app.conf").write_text("a=1\n")
    (tmp_path / "own.j2").write_text('{% extends "Dockerfile.j2" %}{% block as_root %}RUN echo ours\n{% endblock %}\n')
    found = asked(tmp_path, PLAIN, "corp", "cpu", "files: {app.conf: /etc/app.conf}\ntemplate: own.j2\n")
    aside = Workspace(tmp_path).for_upgrades
    ensure_packages(found.new, LOCK, CATALOG, aside, cast("Any", SimpleNamespace(files=lambda _: ())))
    write_context(found.new, LOCK, aside)
    assert "RUN echo ours" in (aside.context(found.new.id) / "Dockerfile").read_text()
    assert (aside.context(found.new.id) / "files/app.conf").read_text() == "a=1\n"


class Locked(ImageBuilder):
    """A maker whose resolver answers with one text."""

    def _lock(self, environment: Environment, keep: str) -> str:  # noqa: ARG002 - the maker's own
        return LOCK


def test_new_image_keeps_the_system_locks_of_the_old_one(tmp_path: Path) -> None:
    found = asked(tmp_path, None, "debian-bookworm-cuda", "gpu")
    workspace = Workspace(tmp_path)
    cuda = found.new.packaged_cuda
    assert cuda is not None
    text = "".join(f"{'a' * 64}  {name}_11.8_amd64.deb\n" for name in cuda.packages)
    context = workspace.context(found.old.id)
    write_atomically(context / SYSTEM_LOCK, text.encode())
    write_atomically(context / CUDNN_LOCK, WHEEL.encode())
    maker = Locked(workspace, FakeEngine(), Console(), CATALOG)
    side = maker.lock_new(found.new, LockedImage(found.old, LOCK, committed=True))
    aside = workspace.for_upgrades.context(side.environment.id)
    assert system_lock.of_context(aside, side.environment) == {SYSTEM_LOCK: text, CUDNN_LOCK: WHEEL}
    other = msgspec.structs.replace(cuda, cudnn="nvidia-cudnn-cu11==8.9.6.50")
    (aside / CUDNN_LOCK).unlink()
    system_lock.carry_over(context, aside, msgspec.structs.replace(found.new, system_cuda=other))
    assert not (aside / CUDNN_LOCK).exists()
    (aside / SYSTEM_LOCK).write_text("# mine\n")
    system_lock.carry_over(context, aside, found.new)
    assert (aside / SYSTEM_LOCK).read_text() == "# mine\n"
