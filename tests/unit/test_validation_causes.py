"""One cause, one error: what follows from a defect that was named from outside is told, and never counted again."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from envbuilder.finding import Code, Finding, Severity
from envbuilder.validation.judge import Causes, judge, mark_consequences
from envbuilder.verdict import CheckResult


def error(code: Code, subject: str = "x") -> Finding:
    """Make an error."""
    return Finding(code=code, severity=Severity.ERROR, subject=subject, message="it is wrong")


def result(*findings: Finding, name: str = "import") -> CheckResult:
    """Make the failed result of a check."""
    return CheckResult(name=name, level="load", outcome="failed", findings=findings)


def left(effect: Finding, cause: Finding, *files: str) -> list[Code]:
    """Return the codes that are still errors in a container's result, beside a cause."""
    (told,) = mark_consequences([result(effect)], Causes((cause,), frozenset(files)))
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
    """A crash behind a changed file, a start behind a bad variable: told with the cause, and the outcome stays."""
    (told,) = mark_consequences([result(effect)], Causes((cause,), frozenset({"libssl.so.3"})))
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
    """Wrong numbers, forged answers, hangs, another library: no other defect excuses them."""
    assert left(effect, cause, "libssl.so.3") == [effect.code]


def test_a_cause_is_never_its_own_excuse() -> None:
    """The result that names the cause keeps it, whatever else is wrong."""
    cause = error(Code.MISSING_LIBRARY, "libcufft.so.11")
    (told,) = mark_consequences([result(cause, name="files")], Causes((cause,), frozenset({"libcufft.so.11"})))
    assert told.findings == (cause,)


def test_no_verdict_becomes_better() -> None:
    """Whatever follows from whatever: the word and the level of a verdict are what they were."""
    codes = (Code.PROBE_CRASHED, Code.USER_START, Code.FILES_DIFFER, Code.IMAGE_CONFIGURATION, Code.MISSING_LIBRARY)
    for one, other in itertools.product(codes, repeat=2):
        cause = error(other, "WORKDIR")
        named = msgspec.structs.replace(result(cause, name="files"), level="static")
        results = (named, result(error(one, "WORKDIR")))
        told = mark_consequences(results, Causes((cause,), frozenset({"WORKDIR"})))
        before, after = judge(results, flavor="cpu"), judge(told, flavor="cpu")
        assert (before.verdict, before.level) == (after.verdict, after.level)
        assert any(found.severity is Severity.ERROR for found in after.findings)
