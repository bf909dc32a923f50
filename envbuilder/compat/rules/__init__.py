"""Every compatibility rule in its order, and the function that evaluates them."""

import itertools
from collections.abc import Iterable

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.compat.candidate import Candidate, Part, Rule
from envbuilder.compat.rules import cuda, driver, gpu, packages
from envbuilder.finding import SEVERITY_RANK, Code, Finding, compatible

RULES: tuple[Rule, ...] = tuple(
    sorted(
        itertools.chain(packages.RULES, cuda.RULES, driver.RULES, gpu.RULES),
        key=lambda rule: list(Code).index(rule.codes[0]),
    )
)
"""Every rule, in the order of the codes: from what stops earliest to what costs least."""

_PLACE = {code: place for place, rule in reversed(list(enumerate(RULES))) for code in rule.codes} | {Code.UNKNOWN: 99}


def evaluate(
    candidate: Candidate, catalog: Catalog, parts: tuple[Part, ...] = ("python", "cuda")
) -> tuple[Finding, ...]:
    """Run every rule of these parts; the findings come in the order of `ordered`.

    For a driver branch without a release, its newest production release is evaluated; a finding names older releases
    with another result.
    """
    found = tuple(finding for rule in RULES if rule.part in parts for finding in rule.find(candidate, catalog))
    if not candidate.branch_named or "cuda" not in parts:
        return ordered(found)

    def works(release: str) -> bool:
        other = msgspec.structs.replace(candidate, driver=release, branch_named=False, windows="")
        return compatible(evaluate(other, catalog, ("cuda",))) is not False

    return ordered((*found, *driver.branch_given(candidate, works, newest_works=compatible(found) is not False)))


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings, each once: errors first, then in the order of the rules, then by subject."""
    rank = {row: (SEVERITY_RANK[row.severity], _PLACE.get(row.code, 98), row.subject, row.message) for row in findings}
    return tuple(sorted(rank, key=rank.__getitem__))
