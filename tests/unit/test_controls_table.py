"""Negative controls as values: the table, the recipe of a broken image, and how an answer is judged."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import factories
import pytest

from envbuilder.catalog.store import load
from envbuilder.choice import read_matrix
from envbuilder.compat.plan import plan
from envbuilder.controls import control as control_module
from envbuilder.controls.control import Control, Copy, Env, FromWheel, Run
from envbuilder.controls.control_run import environment_of, from_wheel
from envbuilder.controls.control_verdict import answer
from envbuilder.controls.recipe import broken_lock, dockerfile
from envbuilder.controls.table import CONTROLS, named
from envbuilder.errors import InfrastructureError, UnsatisfiableError, UsageError
from envbuilder.finding import Code, Finding, Severity
from envbuilder.image import lockfile
from envbuilder.pypi.package_index import DistFile, Member
from envbuilder.simulated import profile as profiles
from envbuilder.validation.checks import CHECKS
from envbuilder.verdict import CheckResult, Outcome, Verdict, Word

REQUIRED = {
    Code.LIBRARY_PATH,
    Code.MISSING_LIBRARY,
    Code.CUDNN_MISMATCH,
    Code.TWO_CUDA_STACKS,
    Code.STUB_LIBCUDA,
    Code.NUMPY_ABI,
    Code.XLA_TOOLS_MISSING,
    Code.WRONG_NUMBERS,
    Code.PROBE_TIMEOUT,
    Code.PROBE_CRASHED,
    Code.DRIVER_TOO_OLD,
    Code.LOCK_MISMATCH,
    Code.SECRET_IN_IMAGE,
    Code.FILES_DIFFER,
    Code.IMAGE_CONFIGURATION,
    Code.GPU_NOT_VISIBLE,
    Code.DRIVER_MISMATCH,
    Code.DRIVER_FORWARD_COMPAT,
    Code.PROTOCOL_VIOLATION,
    Code.PACKAGE_CONFLICT,
    Code.KERAS_MISMATCH,
    Code.GLIBC_TOO_OLD,
    Code.CPU_FEATURE_MISSING,
    Code.USER_START,
    Code.NO_KERNEL_IMAGE,
    Code.PTX_TOO_NEW,
    Code.IMAGE_CLAIM,
    Code.CONTAINER_REQUIREMENT,
    Code.GPU_ERRORS,
    Code.GPU_MEMORY,
    Code.CUDA_MISMATCH,
    Code.NOT_A_GPU_BUILD,
    Code.STALLS,
    Code.SLOW_PHASE,
    Code.PTX_JIT,
    Code.UNKNOWN,
    Code.PROTOBUF_ABI,
    Code.BUDGET_EXCEEDED,
}
"""What a suite that users rely on must be shown to find."""

LOCK = "absl-py==2.1.0 \\\n    --hash=sha256:" + "a" * 64 + "\nnumpy==1.26.4 \\\n    --hash=sha256:" + "b" * 64 + "\n"
MATRIX = Path(__file__).parents[2] / "matrices" / "negative-controls.yaml"


def control(code: Code | None = Code.MISSING_LIBRARY, **given: object) -> Control:
    """Make a control; what is not given does not matter."""
    return Control(**{"name": "a", "base": "cpu", "code": code, "broken": "it", **given})  # type: ignore[arg-type]


def check(name: str, outcome: Outcome, *codes: Code, severity: Severity = Severity.ERROR) -> CheckResult:
    """Make a check's result with findings of these codes."""
    findings = tuple(Finding(code=code, severity=severity, subject="it", message="so") for code in codes)
    return CheckResult(name=name, level="static", outcome=outcome, findings=findings)


def verdict(word: Word, *checks: CheckResult, simulated: bool = False) -> Verdict:
    """Make a verdict of these checks."""
    return factories.verdict(verdict=word, checks=checks, simulated=simulated)


PACKAGE = Path(control_module.__file__).parents[1]


def _written() -> set[Code]:
    """List every code that the suite's sources write: by its attribute on the host, by its name in the probes."""
    by_name = {code.value: code for code in Code}
    sources = [*(PACKAGE / "validation").rglob("*.py"), *(PACKAGE / "probes" / "suite").glob("*.py")]
    found = set()
    for node in (node for path in sources for node in ast.walk(ast.parse(path.read_text()))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Code":
            found.add(by_name[node.attr])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in by_name:
            found.add(by_name[node.value])
    return found


def test_every_code_that_the_suite_can_give_has_a_control() -> None:
    """No check's code, and none that the suite's sources write at all, is without an image that must lead to it."""
    told = {code for one in CHECKS for code in one.codes}
    assert told <= _written()
    assert len(_written()) > 30
    shown = {one.code for one in CONTROLS if one.code is not None}
    assert _written() - shown == set()
    assert shown - _written() == set(), "a control of a code that the suite cannot give"


def test_a_control_that_is_warned_of_is_of_a_code_that_is_never_an_error() -> None:
    """Where the suite could fail an image for a code, its control has to be one that fails."""
    assert {one.code for one in CONTROLS if one.warned} == {Code.SLOW_PHASE, Code.PTX_JIT, Code.UNKNOWN}
    for path in (PACKAGE / "probes" / "suite").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "finding" and node.args:
                code = node.args[0]
                if isinstance(code, ast.Constant) and code.value in ("SLOW_PHASE", "PTX_JIT", "UNKNOWN"):
                    severity = {word.arg: word.value for word in node.keywords}.get("severity")
                    assert isinstance(severity, ast.Constant), path.name
                    assert severity.value == "warning", path.name


def test_every_finding_that_must_be_shown_has_a_control() -> None:
    """The required codes are all there, every name once, and each kind of good environment is shown to be good."""
    assert {one.code for one in CONTROLS} >= REQUIRED
    names = [one.name for one in CONTROLS]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9-]+", name) for name in names), "names are tags and folders"
    assert {one.base for one in CONTROLS if one.code is None} >= {"cpu", "gpu"}


@pytest.mark.parametrize("one", [one for one in CONTROLS if one.simulate], ids=lambda one: one.name)
def test_simulated_hosts_of_controls_are_ones(one: Control) -> None:
    """Each profile fits the grammar and the catalogue."""
    assert profiles.parse(one.simulate, load()).text == one.simulate
    assert one.base == "gpu"


def test_every_file_that_a_control_copies_comes_from_somewhere() -> None:
    """What is copied is read out of a wheel, compiled, or ships as a defect; what is replaced is installed."""
    defects = {path.name for path in (Path(control_module.__file__).parent / "defects").glob("envbuilder_*.py")}
    assert len(defects) == 2
    for one in CONTROLS:
        sources = defects | {wheel.source for wheel in one.wheels} | ({"libcuda.so"} if one.stub else set())
        for step in one.steps:
            if isinstance(step, Copy):
                assert step.source in sources, one.name
        installed = " ".join(step.command for step in one.steps if isinstance(step, Run))
        assert all(f"{name}=={version}" in installed for name, version in one.locked), one.name


def test_the_matrix_has_a_good_environment_for_every_control() -> None:
    """The shipped matrix resolves, and each kind of control finds its environment in it."""
    environments = plan(read_matrix(MATRIX), load()).environments
    found = {one.base: environment_of(one.base, environments) for one in CONTROLS}
    assert found["gpu"].flavor == "gpu"
    assert found["cpu"].tensorflow == found["gpu"].tensorflow
    assert found["numpy-1"].tensorflow == "2.15.1"
    assert found["told-gpu"].loader_folders
    assert not found["gpu"].loader_folders
    with pytest.raises(UnsatisfiableError):
        environment_of("gpu", (found["cpu"],))


def test_a_recipe_adds_its_steps_as_root_and_leaves_the_user_as_it_was() -> None:
    """Steps stand in their order between the two users; the place of the packages follows the Python."""
    steps = (Copy("a.so", "{site}/a.so"), Run("rm {site}/b"), Env("LD_LIBRARY_PATH", "/c"))
    assert dockerfile(control(steps=steps), "3.13", LOCK).splitlines()[1:] == [
        "ARG BASE",
        "FROM ${BASE}",
        "USER root",
        "COPY a.so /opt/venv/lib/python3.13/site-packages/a.so",
        "RUN rm /opt/venv/lib/python3.13/site-packages/b",
        "ENV LD_LIBRARY_PATH=/c",
        "USER envbuilder",
    ]


def test_only_steps_that_reach_the_network_see_what_the_host_adds() -> None:
    """The host's certificates and index are mounted for the step, and are in no layer."""
    text = dockerfile(control(steps=(Run("pip install x", network=True), Run("rm y"))), "3.11", LOCK)
    steps = text.replace(" \\\n", " ").splitlines()  # as BuildKit reads it
    with_network, without = (line for line in steps if line.startswith("RUN"))
    assert "--mount=type=bind,source=host" in with_network
    assert re.search(r";\s+pip install x\Z", with_network)
    assert without == "RUN rm y"


def test_a_replaced_package_is_in_the_lock_and_in_the_image_s_claim() -> None:
    """The change of version is told, so that it is not what is found; the rest of the lock stays."""
    broken = control(locked=(("numpy", "2.0.2"),))
    lock = broken_lock(broken, LOCK)
    before, after = lockfile.parse(LOCK), lockfile.parse(lock)
    assert [(one.name, one.version) for one in after] == [("absl-py", "2.1.0"), ("numpy", "2.0.2")]
    assert after[0] == before[0]
    assert f'LABEL org.envbuilder.lock="{lockfile.digest(lock)}"' in dockerfile(broken, "3.11", lock)
    assert broken_lock(control(), LOCK) == LOCK
    assert "LABEL" not in dockerfile(control(), "3.11", LOCK)


def test_a_package_that_the_lock_lacks_cannot_be_replaced() -> None:
    """A control that no longer fits its environment is a bug, not a pass."""
    with pytest.raises(ValueError, match="scipy"):
        broken_lock(control(locked=(("scipy", "1.0"),)), LOCK)


def test_a_control_is_right_where_its_code_alone_is_red() -> None:
    """Several checks may find it; warnings and skipped checks beside it do not matter."""
    seen = verdict(
        "FAILED",
        check("libraries", "failed", Code.MISSING_LIBRARY),
        check("closure", "error", Code.MISSING_LIBRARY),
        check("driver", "passed", Code.DRIVER_MINOR_COMPAT, severity=Severity.WARNING),
        check("gpu", "skipped"),
    )
    judged = answer(control(), seen)
    assert (judged.wrong, judged.codes, judged.red) == ("", (Code.MISSING_LIBRARY,), ("libraries", "closure"))


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (verdict("PASSED", check("libraries", "passed")), "MISSING_LIBRARY was not found; the verdict is PASSED"),
        (verdict("FAILED", check("cudnn", "failed", Code.CUDNN_MISMATCH)), "with CUDNN_MISMATCH"),
        (
            verdict("FAILED", check("a", "failed", Code.MISSING_LIBRARY), check("b", "failed", Code.IMAGE_CLAIM)),
            "beside MISSING_LIBRARY also IMAGE_CLAIM",
        ),
        (
            verdict("FAILED", check("a", "failed", Code.MISSING_LIBRARY), check("b", "timeout")),
            "red without a finding: b",
        ),
        (
            verdict("FAILED", check("a", "failed", Code.MISSING_LIBRARY), check("b", "passed", Code.IMAGE_CLAIM)),
            "an error in a check that is not red: b",
        ),
        (verdict("INCONCLUSIVE", check("a", "failed", Code.MISSING_LIBRARY)), "the verdict is INCONCLUSIVE"),
        (
            verdict("FAILED", check("a", "failed", Code.MISSING_LIBRARY, Code.IMAGE_CLAIM)),
            "beside MISSING_LIBRARY also IMAGE_CLAIM",
        ),
    ],
)
def test_a_control_that_comes_out_otherwise_is_told(seen: Verdict, why: str) -> None:
    """A pass, another code, a second code and a red check without a reason are each refused."""
    assert why in answer(control(), seen).wrong


def test_a_control_of_a_warning_is_right_where_that_warning_stands_alone() -> None:
    """Nothing may be red, no other code be warned of but what the control's own package brings; absence is told."""
    slow = control(Code.SLOW_PHASE, warned=True, added=(("mine", "1.0"),))
    told = check("start-up", "passed", Code.SLOW_PHASE, severity=Severity.WARNING)
    beside = check("files", "passed", Code.UNKNOWN, severity=Severity.WARNING)
    judged = answer(slow, verdict("PASSED", told, beside))
    assert (judged.wrong, judged.codes) == ("", (Code.SLOW_PHASE,))
    assert "was not found" in answer(slow, verdict("PASSED", beside)).wrong
    assert "is FAILED" in answer(slow, verdict("FAILED", told)).wrong
    other = check("secrets", "passed", Code.IMAGE_CONFIGURATION, severity=Severity.WARNING)
    assert "beside SLOW_PHASE also IMAGE_CONFIGURATION" in answer(slow, verdict("PASSED", told, other)).wrong
    red = check("matmul", "failed", Code.WRONG_NUMBERS)
    assert answer(slow, verdict("FAILED", told, red)).wrong
    louder = check("start-up", "failed", Code.SLOW_PHASE)
    for word in ("FAILED", "INCONCLUSIVE"):
        assert "became an error" in answer(slow, verdict(word, louder)).wrong
    assert "matmul is red" in answer(slow, verdict("FAILED", told, red)).wrong
    unknown = control(Code.UNKNOWN, warned=True, added=(("mine", "1.0"),))
    assert answer(unknown, verdict("PASSED", beside)).wrong == ""


def test_a_package_may_stand_in_another_s_place_in_the_lock() -> None:
    """Its name is the other's, its version the same, its hashes are gone; what is not in the lock is a bug."""
    lock = broken_lock(control(swapped=(("numpy", "numpy-cpu"),)), LOCK)
    assert [(one.name, one.version, one.hashes) for one in lockfile.parse(lock)][1] == ("numpy-cpu", "1.26.4", ())
    with pytest.raises(ValueError, match="scipy"):
        broken_lock(control(swapped=(("scipy", "scipy-cpu"),)), LOCK)


def test_a_good_environment_may_have_nothing_red() -> None:
    """It is right where it passes or lacks a GPU, and wrong as soon as anything fails."""
    good = control(None)
    assert answer(good, verdict("PASSED", check("a", "passed"))).wrong == ""
    assert answer(good, verdict("INCONCLUSIVE", check("a", "skipped"))).wrong == ""
    assert "red: IMAGE_CLAIM" in answer(good, verdict("FAILED", check("a", "failed", Code.IMAGE_CLAIM))).wrong


def test_a_simulated_host_that_is_not_called_one_is_wrong() -> None:
    """The verdict itself has to say that the driver was simulated."""
    simulated = control(Code.DRIVER_TOO_OLD, simulate="driver=470.57.02,gpu=A100")
    red = check("driver", "failed", Code.DRIVER_TOO_OLD)
    assert "simulated" in answer(simulated, verdict("FAILED", red)).wrong
    assert answer(simulated, verdict("FAILED", red, simulated=True)).wrong == ""


def test_controls_are_chosen_by_name_in_the_table_s_order() -> None:
    """All without names; an unknown one is refused with those that there are."""
    assert named(()) == CONTROLS
    assert [one.name for one in named(("no-ptxas", "good-cpu"))] == ["good-cpu", "no-ptxas"]
    with pytest.raises(UsageError) as refused:
        named(("older-cudn",))
    assert "older-cudnn" in refused.value.hint


class Shelf:
    """An index of one project whose wheels hold one file."""

    def files(self, project: str) -> tuple[DistFile, ...]:
        names = ("nvidia_x_cu12-9.1.0-py3-none-manylinux2014_aarch64.whl", "nvidia_x_cu12-9.1.0-py3-none-x86_64.whl")
        return tuple(DistFile(project=project, filename=name, url=name) for name in names)

    def member(self, file: DistFile, name: str) -> bytes | None:
        raise NotImplementedError

    def members(self, file: DistFile) -> tuple[Member, ...]:
        return (Member(name="lib/a.so", packed=1, size=len(file.filename), offset=0, method=0),)

    def metadata(self, file: DistFile) -> str:
        raise NotImplementedError

    def stream(self, file: DistFile, member: Member) -> Iterator[bytes]:
        yield from (file.filename[:9].encode(), file.filename[9 : member.size].encode())

    def whole(self, file: DistFile) -> Iterator[bytes]:
        raise NotImplementedError

    def size(self, file: DistFile) -> int:
        raise NotImplementedError


def test_one_file_of_a_wheel_is_read_for_this_machine() -> None:
    """The x86-64 wheel is meant; a version or a file that is not there is an error of the index, with its name."""
    wanted = FromWheel("nvidia-x-cu12", "9.1.0", "lib/a.so", "a.so")
    assert b"x86_64" in from_wheel(Shelf(), wanted)
    for wrong in (
        FromWheel("nvidia-x-cu12", "9.1", "lib/a.so", "a.so"),
        FromWheel("nvidia-x-cu12", "9.1.0", "b", "b"),
    ):
        with pytest.raises(InfrastructureError, match="nvidia-x-cu12"):
            from_wheel(Shelf(), wrong)
