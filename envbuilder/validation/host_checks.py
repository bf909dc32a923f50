"""Make the checks that look at an image from outside, each by its name in the table."""

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
"""The checks that name what is wrong with files and variables, or what stands before the driver; the rest follows."""


def run_host_checks(subject: ImageContext, checks: Iterable[Check]) -> tuple[tuple[CheckResult, ...], Causes]:
    """Make checks of the lane ``host``, and say which of their findings others may follow from.

    Raises InfrastructureError where the engine or the disk fails.
    """
    made = [(check, *_check(subject, check)) for check in checks]
    found = [(result, looked) for check, result, looked in made if check.name in CAUSES]
    causes = Causes(
        tuple(one for result, _ in found for one in result.findings if one.severity is Severity.ERROR),
        frozenset().union(*(looked.blamed for _, looked in found)),
    )
    return tuple(result for _, result, _ in made), causes


def _check(subject: ImageContext, check: Check) -> tuple[CheckResult, CheckOutput]:
    begun = time.monotonic()
    looked = HOST_CHECKS[check.name](subject)
    failed = any(finding.severity is Severity.ERROR for finding in looked.findings)
    result = CheckResult(
        name=check.name,
        level=check.level,
        outcome="failed" if failed else "skipped" if looked.undecided else "passed",
        duration_s=round(time.monotonic() - begun, 3),
        expected=looked.expected,
        observed=(looked.undecided or looked.observed)[:4000] if not failed else looked.observed[:4000],
        findings=looked.findings,
        measurements=dict(looked.measurements),
    )
    return result, looked
