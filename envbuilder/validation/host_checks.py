"""Make the checks that look at an image from outside, each by its name in the table."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from envbuilder.finding import Severity
from envbuilder.validation.checks.specification import Check
from envbuilder.validation.image_binaries import binaries
from envbuilder.validation.image_claims import claims
from envbuilder.validation.image_secrets import layers, secrets
from envbuilder.validation.image_variables import configuration, requirement
from envbuilder.validation.installed_files import files
from envbuilder.validation.outside import Looked, Outside
from envbuilder.validation.static_looks import complete, consistent, locked, no_stub, only_one, tools, versions
from envbuilder.verdict import CheckResult

LOOKS: Mapping[str, Callable[[Outside], Looked]] = {
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


def check_outside(subject: Outside, check: Check) -> CheckResult:
    """Make one check of the lane ``host``. Raises InfrastructureError where the engine or the disk fails."""
    begun = time.monotonic()
    looked = LOOKS[check.name](subject)
    failed = any(finding.severity is Severity.ERROR for finding in looked.findings)
    return CheckResult(
        name=check.name,
        tier=check.tier,
        outcome="failed" if failed else "passed",
        duration_s=round(time.monotonic() - begun, 3),
        expected=looked.expected,
        observed=looked.observed[:4000],
        findings=looked.findings,
        measurements=dict(looked.measurements),
    )
