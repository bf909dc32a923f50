"""Run the checks that read an image on the host, each by its name in the table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from envbuilder.finding import Severity
from envbuilder.validation.checks import Check
from envbuilder.validation.image_binaries import binaries
from envbuilder.validation.image_claims import claims
from envbuilder.validation.image_context import CheckOutput, ImageContext
from envbuilder.validation.image_settings import configuration, requirement
from envbuilder.validation.installed_files import files
from envbuilder.validation.judge import Causes
from envbuilder.validation.secret_checks import layers, secrets
from envbuilder.validation.static_checks import complete, consistent, locked, no_stub, only_one, tools, versions
from envbuilder.verdict import CheckResult

HOST_CHECKS: Mapping[str, Callable[[ImageContext], CheckOutput]] = {
    "locked": locked,
    "packages": consistent,
    "one-cuda": only_one,
    "no-stub": no_stub,
    "closure": complete,
    "symbol-versions": versions,
    "xla-tools": tools,
    "files": files,
    "binaries": binaries,
    "claims": claims,
    "configuration": configuration,
    "start-up-requirement": requirement,
    "secrets": secrets,
    "layers": layers,
}
"""Every check of the lane ``host``, by name."""


CAUSES = ("files", "binaries", "configuration", "no-stub")
"""The checks that find defects of files, variables and driver stubs; errors of other checks may follow from these."""


def run_host_checks(subject: ImageContext, checks: Iterable[Check]) -> tuple[tuple[CheckResult, ...], Causes]:
    """Run checks of the lane ``host``; return their results, and the errors from which others may follow.

    Raises InfrastructureError if the engine or the disk fails.
    """
    checked = [(check, *_check(subject, check)) for check in checks]
    found = [(result, output) for check, result, output in checked if check.name in CAUSES]
    findings = [one for result, _ in found for one in result.findings]
    follow = {name: codes for _, output in found for name, codes in output.follow.items()}
    causes = Causes(
        tuple(one for one in findings if one.severity is Severity.ERROR),
        frozenset().union(*(output.blamed for _, output in found)),
        tuple(one for one in findings if one.severity is not Severity.ERROR and one.subject in follow),
        follow,
    )
    return tuple(result for _, result, _ in checked), causes


def _check(subject: ImageContext, check: Check) -> tuple[CheckResult, CheckOutput]:
    begun = time.monotonic()
    output = HOST_CHECKS[check.name](subject)
    failed = any(finding.severity is Severity.ERROR for finding in output.findings)
    result = CheckResult(
        name=check.name,
        level=check.level,
        outcome="failed" if failed else "skipped" if output.undecided else "passed",
        duration_s=round(time.monotonic() - begun, 3),
        expected=output.expected,
        observed=(output.undecided or output.observed)[:4000] if not failed else output.observed[:4000],
        findings=output.findings,
        measurements=dict(output.measurements),
    )
    return result, output
