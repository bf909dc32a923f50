"""Negative controls: the table, the image of a control, and the evaluation of its verdict."""

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import factories
import msgspec
import pytest
from package_folders import MemoryIndex
from table_rows import beside, rows

from envbuilder.catalog.store import load
from envbuilder.choice import read_matrix
from envbuilder.compat.plan import plan
from envbuilder.controls import control as control_module
from envbuilder.controls.control import RECORD_TOOL, Control, FromWheel, controls, instruction, named, of_wheel, steps
from envbuilder.controls.defects.envbuilder_defect import _DEFECTS
from envbuilder.controls.run import STUB, broken_locks, dockerfile, environment_of, evaluate, from_wheel
from envbuilder.errors import InfrastructureError, UnsatisfiableError, UsageError
from envbuilder.finding import Code, Finding, Severity
from envbuilder.image import lockfile, system_lock
from envbuilder.simulated import profile as profiles
from envbuilder.validation.image_context import FindingText
from envbuilder.validation.suite_plan import CHECKS
from envbuilder.verdict import CheckResult, Outcome, Verdict, Word
from envbuilder.workspace import packaged_yaml

LOCK = "absl-py==2.1.0 \\\n    --hash=sha256:" + "a" * 64 + "\nnumpy==1.26.4 \\\n    --hash=sha256:" + "b" * 64 + "\n"
LOCKS = {lockfile.LOCK: LOCK}
MATRIX = Path(__file__).parents[2] / "matrices" / "negative-controls.yaml"
PACKAGE = Path(control_module.__file__).parents[1]
DEFECTS = PACKAGE / "controls" / "defects"
CONTROLS = controls()


def control(code: Code | None = Code.MISSING_LIBRARY, **given: Any) -> Control:
    return Control(**{"name": "a", "base": "cpu", "code": code, "broken": "it", **given})


def check(name: str, outcome: Outcome, *codes: Code, severity: Severity = Severity.ERROR) -> CheckResult:
    findings = tuple(Finding(code=code, severity=severity, subject="it", message="so") for code in codes)
    return CheckResult(name=name, level="static", outcome=outcome, findings=findings)


def warned(name: str, code: Code) -> CheckResult:
    return check(name, "passed", code, severity=Severity.WARNING)


def verdict(word: Word, *checks: CheckResult, simulated: bool = False) -> Verdict:
    return factories.verdict(verdict=word, checks=checks, simulated=simulated)


def written_codes() -> set[Code]:
    by_name = {code.value: code for code in Code}
    sources = [*(PACKAGE / "validation").rglob("*.py"), *(PACKAGE / "probes" / "suite").glob("*.py")]
    found = {text.code for text in packaged_yaml("validation/check_findings.yaml", dict[str, FindingText]).values()}
    for node in (node for path in sources for node in ast.walk(ast.parse(path.read_text()))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Code":
            found.add(by_name[node.attr])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in by_name:
            found.add(by_name[node.value])
    return found


def test_every_code_that_the_suite_can_give_has_a_control() -> None:
    """Add a row to controls.yaml for a new code: a check without a control has never been shown to fail."""
    written = written_codes()
    assert len(written) > 30
    assert {code for one in CHECKS for code in one.codes} <= written
    assert {one.code for one in CONTROLS if one.code is not None} == written


def test_every_check_has_a_control_or_a_reason_to_have_none() -> None:
    """Name a new check in `checks` of its control: a code that several checks give does not show which one failed."""
    giving = {code: {check.name for check in CHECKS if code in check.codes} for code in Code}
    shown = {name for one in CONTROLS for name in one.checks}
    for one in CONTROLS:
        assert one.code is None or giving[one.code] >= set(one.checks), one.name
        shown |= giving[one.code] if one.code and not one.extra and len(giving[one.code]) == 1 else set()
    without = {name for names in beside(__file__)["without control"].values() for name in names.split()}
    assert shown ^ without == {check.name for check in CHECKS}


def test_only_codes_that_are_never_errors_have_a_control_that_warns() -> None:
    assert {one.code for one in CONTROLS if one.warned} == {Code.SLOW_PHASE, Code.PTX_JIT, Code.UNKNOWN}


def test_names_are_unique_and_each_kind_of_good_environment_is_a_control() -> None:
    names = [one.name for one in CONTROLS]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9-]+", name) for name in names), "names are tags and folders"
    assert {one.base for one in CONTROLS if one.code is None} >= {"cpu", "gpu", "system-gpu"}


@pytest.mark.parametrize("one", [one for one in CONTROLS if one.simulate], ids=lambda one: one.name)
def test_simulated_hosts_of_controls_are_valid(one: Control) -> None:
    assert profiles.parse(one.simulate, load()).text == one.simulate
    assert one.base == "gpu"


def test_every_copied_file_exists_and_every_locked_version_is_installed() -> None:
    for one in CONTROLS:
        files = [step.file for step in one.steps if step.file and not step.wheel]
        assert all(name == STUB or (DEFECTS / name).is_file() for name in files), one.name
        defects = {step.instruction.split("/")[-1] for step in one.steps if step.file == "envbuilder_defect.py"}
        assert defects <= {f"{name}.py" for name in (*_DEFECTS, "envbuilder_forger")}, f"{one.name} breaks nothing"
        installed = " ".join(step.instruction for step in one.steps)
        repacked = any(step.wheel for step in one.steps) and " update " in installed
        own = {f"{word.replace('_', '-')}==1.0" for word in installed.split()}
        assert repacked or all(pin in own or pin in installed for pin in one.lock), one.name


def test_matrix_has_a_good_environment_for_every_control() -> None:
    environments = plan(read_matrix(MATRIX), load()).environments
    found = {one.base: environment_of(one.base, environments) for one in CONTROLS}
    assert found["gpu"].flavor == "gpu"
    assert found["cpu"].tensorflow == found["gpu"].tensorflow
    assert found["numpy-1"].tensorflow == "2.15.1"
    assert found["told-gpu"].loader_folders
    assert not found["gpu"].loader_folders
    with pytest.raises(UnsatisfiableError):
        environment_of("gpu", (found["cpu"],))


def test_dockerfile_runs_its_steps_as_root_and_restores_the_user() -> None:
    made = (
        instruction("COPY a.so {site}/a.so"),
        *steps({"record": ["b"], "folder": "/x"}),
        of_wheel(FromWheel("x", "1", "lib/c.so"), "/lib/c.so"),
        instruction("ENV LD_LIBRARY_PATH=/c"),
    )
    assert (
        dockerfile(control(steps=made), "3.13", LOCKS).splitlines()[1:] == beside(__file__)["dockerfile"].splitlines()
    )


def test_only_steps_with_network_get_the_certificates_and_index_of_the_host() -> None:
    text = dockerfile(control(steps=(*steps({"network": "pip install x"}), instruction("RUN rm y"))), "3.11", LOCKS)
    lines = text.replace(" \\\n", " ").splitlines()  # as BuildKit reads it
    with_network, without = (line for line in lines if line.startswith("RUN"))
    assert "--mount=type=bind,source=host" in with_network
    assert re.search(r";\s+pip install x\Z", with_network)
    assert without == "RUN rm y"


def test_record_tool_writes_the_record_of_a_new_package_and_updates_it(tmp_path: Path) -> None:
    def record(*words: str) -> int:
        command = [sys.executable, "-IS", str(DEFECTS / RECORD_TOOL), *words]
        return subprocess.run(command, cwd=tmp_path, check=False).returncode

    (tmp_path / "mine.py").write_text("VERSION = 1\n")
    assert record("package", "mine") == 0
    path = tmp_path / "mine-1.0.dist-info" / "RECORD"
    before = path.read_text().splitlines()
    names = ["mine.py", "mine-1.0.dist-info/METADATA", "mine-1.0.dist-info/RECORD"]
    assert [line.partition(",")[0] for line in before] == names
    (tmp_path / "mine.py").write_text("VERSION = 2\n")
    assert record("update", "mine.py") == 0
    after = path.read_text().splitlines()
    assert after[0] != before[0]
    assert after[1:] == before[1:]
    assert record("update", "nobody.py") == 1


def test_changed_packages_are_in_the_lock_and_in_the_label() -> None:
    broken = control(lock=("numpy==2.0.2", "mine==1.0"))
    lock = broken_locks(broken, LOCKS)["requirements.lock"]
    before, after = lockfile.parse(LOCK), lockfile.parse(lock)
    assert [one.text for one in after[1:]] == ["numpy==2.0.2", "mine==1.0"]
    assert after[0] == before[0]
    assert f'LABEL org.envbuilder.lock="{lockfile.digest(lock)}"' in dockerfile(broken, "3.11", LOCKS)
    assert broken_locks(control(), LOCKS) == LOCKS
    assert "LABEL" not in dockerfile(control(), "3.11", LOCKS)
    swapped = broken_locks(control(lock=("numpy-cpu==1.26.4",), unlock=("numpy",)), LOCKS)["requirements.lock"]
    assert [f"{one.name}=={one.version}" for one in lockfile.parse(swapped)] == ["absl-py==2.1.0", "numpy-cpu==1.26.4"]


def test_packages_of_the_system_leave_its_lock_and_a_pin_stays_in_the_lock_of_its_package() -> None:
    system = f"{'c' * 64}  libx10_1.0_amd64.deb\n{'d' * 64}  libx10-dev_1.0_amd64.deb\n"
    locks = LOCKS | {"system.lock": system, "cudnn.lock": f"cudnn-cu11==8.6 \\\n    --hash=sha256:{'e' * 64}\n"}
    broken = control(lock=("cudnn-cu11==8.5",), unlock=("libx10",))
    changed = {"cudnn.lock": "cudnn-cu11==8.5\n", "system.lock": system.partition("\n")[2]}
    assert broken_locks(broken, locks) == LOCKS | changed
    text = dockerfile(broken, "3.11", locks)
    assert f'LABEL org.envbuilder.system="{system_lock.digest(changed)}"' in text
    assert "envbuilder.lock" not in text


TWICE = (check("libraries", "failed", Code.MISSING_LIBRARY), check("closure", "error", Code.MISSING_LIBRARY))
IGNORED = (warned("driver", Code.DRIVER_MINOR_COMPAT), check("gpu", "skipped"))
SLOW = warned("start-up", Code.SLOW_PHASE)
NEW_WHEEL = warned("files", Code.UNKNOWN)
OF_AN_ERROR = control()
OF_A_WARNING = control(Code.SLOW_PHASE, warned=True, lock=("mine==1.0",))


@rows
def test_control_is_right_only_with_its_own_result(
    given: dict[str, Any], word: Word, checks: list[list[Any]], why: str, *, simulated: bool
) -> None:
    made = msgspec.convert({"name": "a", "base": "cpu", "broken": "it", **given}, Control)
    found = [
        check(name, outcome, *map(Code, codes), severity=Severity(severity))
        for name, outcome, severity, *codes in checks
    ]
    wrong = evaluate(made, verdict(word, *found, simulated=simulated)).wrong
    assert why in wrong
    assert bool(wrong) is bool(why)


def test_row_names_the_codes_and_the_checks_that_failed() -> None:
    found = evaluate(OF_AN_ERROR, verdict("FAILED", *TWICE, *IGNORED))
    assert (found.codes, found.red) == ((Code.MISSING_LIBRARY,), ("libraries", "closure"))
    assert evaluate(OF_A_WARNING, verdict("PASSED", SLOW, NEW_WHEEL)).codes == (Code.SLOW_PHASE,)


def test_controls_are_selected_by_name_in_the_order_of_the_table() -> None:
    assert named(()) == CONTROLS
    assert [one.name for one in named(("no-ptxas", "good-cpu"))] == ["good-cpu", "no-ptxas"]
    with pytest.raises(UsageError) as refused:
        named(("older-cudn",))
    assert "older-cudnn" in refused.value.hint


SHELF = MemoryIndex(
    ("nvidia_x_cu12-9.1.0-py3-none-manylinux2014_aarch64.whl", {"lib/a.so": b"aarch64"}),
    ("nvidia_x_cu12-9.1.0-py3-none-x86_64.whl", {"lib/a.so": b"x86_64"}),
)


def test_one_file_of_a_wheel_is_read_for_this_machine() -> None:
    assert from_wheel(SHELF, FromWheel("nvidia-x-cu12", "9.1.0", "lib/a.so")) == b"x86_64"


@pytest.mark.parametrize(("version", "member"), [("9.1", "lib/a.so"), ("9.1.0", "b")])
def test_unknown_file_of_a_wheel_is_an_error_of_the_index(version: str, member: str) -> None:
    with pytest.raises(InfrastructureError, match="nvidia-x-cu12"):
        from_wheel(SHELF, FromWheel("nvidia-x-cu12", version, member))
