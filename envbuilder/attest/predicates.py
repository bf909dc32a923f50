"""Statements made from a verdict: the community's test-result and our own, which holds the whole verdict."""

from __future__ import annotations

from typing import Literal, assert_never

import msgspec

from envbuilder.attest.statement import REHEARSAL, TEST_RESULT, VERDICT, Resource, Statement, about, resource
from envbuilder.errors import PublishError
from envbuilder.finding import Severity
from envbuilder.verdict import CheckResult, Verdict

Allowance = Literal["inconclusive"]
Result = Literal["PASSED", "WARNED", "FAILED"]


class ResultPredicate(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The predicate test-result v0.1; the fields with our prefix are extensions that other readers ignore."""

    result: Result
    configuration: tuple[Resource, ...]
    passed_tests: tuple[str, ...]
    warned_tests: tuple[str, ...]
    failed_tests: tuple[str, ...]
    skipped: tuple[str, ...] = msgspec.field(name="envbuilder_skippedTests", default=())
    unfinished: tuple[str, ...] = msgspec.field(name="envbuilder_unfinishedTests", default=())
    verdict: str = msgspec.field(name="envbuilder_verdict", default="")
    level: str = msgspec.field(name="envbuilder_level", default="")
    allowed: tuple[str, ...] = msgspec.field(name="envbuilder_allowed", default=())


class VerdictPredicate(msgspec.Struct, frozen=True, kw_only=True):
    """Our predicate: the full verdict, and what the publisher allowed although it is not PASSED."""

    verdict: Verdict
    allowed: tuple[Allowance, ...] = ()


def verdict_statement(name: str, verdict: Verdict, *, allowed: tuple[Allowance, ...] = ()) -> Statement:
    """State the whole verdict about the image that it judged. Raises PublishError where it names no digest."""
    return about(name, _digest(verdict), VERDICT, VerdictPredicate(verdict=verdict, allowed=allowed))


def rehearsal_statement(name: str, verdict: Verdict) -> Statement:
    """State what came of a simulated driver, under a type that proves nothing. Raises PublishError for what was real.

    Its word is never PASSED where a GPU was asked for, and that it was simulated stands in it as well.
    """
    if not verdict.unreal or verdict.image.digest is None:
        raise PublishError("only what was simulated, about a digest, is a rehearsal", hint="state it as a verdict")
    return about(name, verdict.image.digest, REHEARSAL, VerdictPredicate(verdict=verdict))


def result_statement(name: str, verdict: Verdict, *, allowed: tuple[Allowance, ...] = ()) -> Statement | None:
    """State the checks' outcomes; None for an INCONCLUSIVE verdict that nobody allowed.

    An allowed INCONCLUSIVE is WARNED, with the allowance in it: it never becomes PASSED.
    """
    digest = _digest(verdict)
    result = _result(verdict, allowed)
    if result is None:
        return None
    return about(name, digest, TEST_RESULT, _test_result(verdict, result, allowed))


def _digest(verdict: Verdict) -> str:
    if verdict.unreal:
        raise PublishError(
            "a simulated verdict is never stated: no driver or GPU of this verdict was real",
            hint="validate on a host with the driver and GPU that the verdict should speak of",
        )
    if verdict.image.digest is None:
        raise PublishError("the verdict names no manifest digest: validate the image by its registry digest")
    return verdict.image.digest


def _result(verdict: Verdict, allowed: tuple[Allowance, ...]) -> Result | None:
    match verdict.verdict:
        case "PASSED":
            return "WARNED" if any(map(_warned, verdict.checks)) else "PASSED"
        case "FAILED":
            return "FAILED"
        case "INCONCLUSIVE":
            return "WARNED" if "inconclusive" in allowed else None
        case _ as never:
            assert_never(never)


def _warned(check: CheckResult) -> bool:
    return check.outcome == "passed" and any(f.severity is Severity.WARNING for f in check.findings)


def _test_result(verdict: Verdict, result: Result, allowed: tuple[Allowance, ...]) -> ResultPredicate:
    def names(*outcomes: str) -> tuple[str, ...]:
        return tuple(check.name for check in verdict.checks if check.outcome in outcomes)

    warned = tuple(check.name for check in verdict.checks if _warned(check))
    return ResultPredicate(
        result=result,
        configuration=(resource("suite", verdict.suite), resource("requirements.lock", verdict.lock)),
        passed_tests=tuple(name for name in names("passed") if name not in warned),
        warned_tests=warned,
        failed_tests=names("failed"),
        skipped=names("skipped"),
        unfinished=names("error", "timeout"),
        verdict=verdict.verdict,
        level=verdict.level,
        allowed=allowed,
    )
