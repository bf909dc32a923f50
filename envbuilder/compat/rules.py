"""Every compatibility rule in its order, and the one function that asks them all."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.compat import (
    container,
    cuda_libraries,
    driver_branch,
    hardware,
    kernels,
    library_path,
    machine,
    software,
)
from envbuilder.compat.candidate import Candidate
from envbuilder.compat.rule import Rule, Side
from envbuilder.finding import SEVERITY_RANK, Code, Finding, compatible

_ORDER = {code: place for place, code in enumerate(Code)}

RULES: tuple[Rule, ...] = tuple(
    sorted(
        itertools.chain.from_iterable(
            module.RULES for module in (software, machine, cuda_libraries, library_path, hardware, kernels, container)
        ),
        key=lambda rule: _ORDER[rule.codes[0]],
    )
)
"""Every rule, in the order of the table of codes: from what stops earliest to what costs least."""

_PLACE = {code: place for place, rule in reversed(list(enumerate(RULES))) for code in rule.codes} | {Code.UNKNOWN: 99}


def judge(candidate: Candidate, catalog: Catalog, sides: tuple[Side, ...] = ("host", "gpu")) -> tuple[Finding, ...]:
    """Ask every rule of these sides; the findings come in the order of `ordered`.

    Where a driver branch was named alone, its newest production release is judged, and what an older one is judged to
    be apart from it is said beside.
    """
    found = (finding for rule in RULES if rule.side in sides for finding in rule.find(candidate, catalog))
    if not candidate.branch_named or "gpu" not in sides:
        return ordered(found)
    newest = tuple(found)
    older = functools.partial(_works_with, candidate, catalog)
    return ordered((*newest, *driver_branch.branch_meant(candidate, compatible(newest) is not False, older)))


def _works_with(candidate: Candidate, catalog: Catalog, driver: str) -> bool:
    """Tell whether nothing is wrong on the GPU's side with another release of the driver, numbered as on Linux."""
    other = msgspec.structs.replace(candidate, driver=driver, branch_named=False, windows="")
    return compatible(judge(other, catalog, ("gpu",))) is not False


def ordered(findings: Iterator[Finding] | tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Sort findings, each once: errors first, then by the table's order, then by what they are about."""
    return tuple(sorted(dict.fromkeys(findings), key=_rank))


def joined(*sides: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Join findings that are in order and have none in common, such as those of the two sides."""
    given = [side for side in sides if side]
    return given[0] if len(given) == 1 else tuple(sorted(itertools.chain(*given), key=_rank))


def _rank(finding: Finding) -> tuple[int, int, str, str]:
    return SEVERITY_RANK[finding.severity], _PLACE.get(finding.code, 98), finding.subject, finding.message
