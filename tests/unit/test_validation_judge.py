"""The evaluation of results: verdict, level, budgets, and consequences of one cause."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from envbuilder.finding import Code, Finding, Severity
from envbuilder.matrix import Budgets
from envbuilder.validation.judge import Causes, budget_results, judge, mark_consequences
from envbuilder.verdict import CheckLevel, CheckResult, Measurement, Outcome, required_levels


def result(level: CheckLevel, outcome: Outcome = "passed", name: str = "", **more: object) -> CheckResult:
    return CheckResult(name=name or f"{level}-check", level=level, outcome=outcome, **more)  # type: ignore[arg-type]


CPU = (result("static"), result("load"), result("cpu"))
GPU = (*CPU, result("gpu"))


SKIPPED = result("gpu", "skipped", "gpu-matmul", observed="no NVIDIA driver on this host")


@pytest.mark.parametrize(
    ("results", "host", "verdict", "level"),
    [
        (CPU, {"flavor": "cpu"}, "PASSED", "cpu"),
        (GPU, {"flavor": "gpu"}, "PASSED", "gpu"),
        ((*GPU, result("multi-gpu")), {"flavor": "gpu", "gpus": 8}, "PASSED", "multi-gpu"),
        ((*GPU, result("multi-gpu", "skipped")), {"flavor": "gpu", "gpus": 1}, "PASSED", "gpu"),
        ((*CPU, SKIPPED), {"flavor": "gpu"}, "INCONCLUSIVE", "cpu"),
        (GPU, {"flavor": "gpu", "gpus": 1, "simulated": True}, "INCONCLUSIVE", "cpu"),
        *(
            ((result("static"), result("load", outcome), result("cpu")), {"flavor": "cpu"}, "FAILED", "static")
            for outcome in ("failed", "error", "timeout")
        ),
        (CPU[:2], {"flavor": "cpu"}, "INCONCLUSIVE", "load"),
        ((), {"flavor": "cpu"}, "INCONCLUSIVE", "none"),
    ],
)
def test_verdict_and_level_follow_from_the_results(
    results: tuple[CheckResult, ...], host: dict[str, Any], verdict: str, level: str
) -> None:
    told = judge(results, **host)
    assert (told.verdict, told.level) == (verdict, level)


def test_reasons_name_what_was_not_run_and_a_simulation() -> None:
    told = judge((*CPU, SKIPPED), flavor="gpu")
    assert told.reasons == ("gpu: gpu-matmul was not run: no NVIDIA driver on this host",)
    assert "simulated" in judge(GPU, flavor="gpu", gpus=1, simulated=True).reasons[-1]
    assert required_levels("cpu", 8) == ("static", "load", "cpu")


def test_findings_are_told_once_and_worst_first() -> None:
    warning = Finding(code=Code.STALLS, severity=Severity.WARNING, subject="a", message="m")
    error = Finding(code=Code.CUDNN_MISMATCH, severity=Severity.ERROR, subject="b", message="m")
    results = (
        result("static", findings=(warning,)),
        result("load", "failed", findings=(warning, error)),
        result("cpu"),
    )
    assert judge(results, flavor="cpu").findings == (error, warning)


def test_budgets_add_a_result_each() -> None:
    timed = result("load", measurements={"import": Measurement(3.0, "s")})
    budgets = Budgets(size_gb=2.0, import_s=2.5, first_op_s=1.0)
    size, importing, first_op = budget_results((timed,), budgets, 1_900_000_000)
    assert (size.name, size.outcome, size.level) == ("budget-size", "passed", "static")
    assert (importing.name, importing.outcome) == ("budget-import", "failed")
    assert [found.code for found in importing.findings] == [Code.BUDGET_EXCEEDED]
    assert (first_op.name, first_op.outcome) == ("budget-first-op", "skipped")
    assert budget_results((timed,), Budgets(), 10**12) == ()
    assert judge((*CPU, importing), flavor="cpu").verdict == "FAILED"


def error(code: Code, subject: str = "x") -> Finding:
    return Finding(code=code, severity=Severity.ERROR, subject=subject, message="it is wrong")


def failed_result(*findings: Finding, name: str = "import") -> CheckResult:
    return CheckResult(name=name, level="load", outcome="failed", findings=findings)


def left(effect: Finding, cause: Finding, *files: str) -> list[Code]:
    (told,) = mark_consequences([failed_result(effect)], Causes((cause,), frozenset(files)))
    return [one.code for one in told.findings if one.severity is Severity.ERROR]


@pytest.mark.parametrize(
    ("effect", "cause"),
    [
        (error(Code.PROBE_CRASHED), error(Code.FILES_DIFFER)),
        (error(Code.PROBE_CRASHED), error(Code.IMAGE_CONFIGURATION)),
        (error(Code.USER_START), error(Code.IMAGE_CONFIGURATION)),
        (error(Code.USER_START), error(Code.FILES_DIFFER, "WORKDIR")),
        (error(Code.KERAS_MISMATCH), error(Code.IMAGE_CONFIGURATION, "KERAS_BACKEND")),
        (error(Code.MISSING_LIBRARY, "libssl.so.3"), error(Code.FILES_DIFFER)),
        (error(Code.NOT_A_GPU_BUILD), error(Code.IMAGE_CLAIM, "build_info.py")),
        (error(Code.DRIVER_TOO_OLD), error(Code.STUB_LIBCUDA)),
    ],
)
def test_what_follows_is_a_warning_that_names_its_cause(effect: Finding, cause: Finding) -> None:
    (told,) = mark_consequences([failed_result(effect)], Causes((cause,), frozenset({"libssl.so.3"})))
    assert told.outcome == "failed"
    assert [one.severity for one in told.findings] == [Severity.WARNING]
    assert f"(follows from {cause.code}: {cause.subject})" in told.findings[0].message


@pytest.mark.parametrize(
    ("effect", "cause"),
    [
        (error(Code.WRONG_NUMBERS), error(Code.FILES_DIFFER)),
        (error(Code.PROTOCOL_VIOLATION), error(Code.FILES_DIFFER)),
        (error(Code.PROBE_TIMEOUT), error(Code.FILES_DIFFER)),
        (error(Code.USER_START), error(Code.FILES_DIFFER, "numpy")),
        (error(Code.KERAS_MISMATCH), error(Code.IMAGE_CONFIGURATION, "LD_PRELOAD")),
        (error(Code.MISSING_LIBRARY, "libcufft.so.11"), error(Code.FILES_DIFFER)),
        (error(Code.PROBE_CRASHED), error(Code.SECRET_IN_IMAGE)),
    ],
)
def test_what_is_a_defect_of_its_own_stays_one(effect: Finding, cause: Finding) -> None:
    assert left(effect, cause, "libssl.so.3") == [effect.code]


def test_a_cause_is_never_its_own_excuse() -> None:
    cause = error(Code.MISSING_LIBRARY, "libcufft.so.11")
    (told,) = mark_consequences([failed_result(cause, name="files")], Causes((cause,), frozenset({"libcufft.so.11"})))
    assert told.findings == (cause,)


def test_no_verdict_becomes_better() -> None:
    codes = (Code.PROBE_CRASHED, Code.USER_START, Code.FILES_DIFFER, Code.IMAGE_CONFIGURATION, Code.MISSING_LIBRARY)
    for one, other in itertools.product(codes, repeat=2):
        cause = error(other, "WORKDIR")
        named = msgspec.structs.replace(failed_result(cause, name="files"), level="static")
        results = (named, failed_result(error(one, "WORKDIR")))
        told = mark_consequences(results, Causes((cause,), frozenset({"WORKDIR"})))
        before, after = judge(results, flavor="cpu"), judge(told, flavor="cpu")
        assert (before.verdict, before.level) == (after.verdict, after.level)
        assert any(found.severity is Severity.ERROR for found in after.findings)
