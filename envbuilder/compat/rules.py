"""Every compatibility rule in its order, and the one function that asks them all."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from envbuilder.catalog.model import Catalog
from envbuilder.compat import container, cuda_libraries, hardware, kernels, library_path, software
from envbuilder.compat.candidate import Candidate
from envbuilder.compat.rule import Rule, Side
from envbuilder.finding import SEVERITY_RANK, Code, Finding

_ORDER = {code: place for place, code in enumerate(Code)}

RULES: tuple[Rule, ...] = tuple(
    sorted(
        itertools.chain.from_iterable(
            module.RULES for module in (software, cuda_libraries, library_path, hardware, kernels, container)
        ),
        key=lambda rule: _ORDER[rule.codes[0]],
    )
)
"""Every rule, in the order of the table of codes: from what stops earliest to what costs least."""

_PLACE = {code: place for place, rule in reversed(list(enumerate(RULES))) for code in rule.codes} | {Code.UNKNOWN: 99}


def judge(candidate: Candidate, catalog: Catalog, sides: tuple[Side, ...] = ("host", "gpu")) -> tuple[Finding, ...]:
    """Ask every rule of these sides; the findings come in the order of `ordered`."""
    return ordered(finding for rule in RULES if rule.side in sides for finding in rule.find(candidate, catalog))


def ordered(findings: Iterator[Finding] | tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Sort findings, each once: errors first, then by the table's order, then by what they are about."""
    return tuple(sorted(dict.fromkeys(findings), key=_rank))


def joined(*sides: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Join findings that are in order and have none in common, such as those of the two sides."""
    given = [side for side in sides if side]
    return given[0] if len(given) == 1 else tuple(sorted(itertools.chain(*given), key=_rank))


def _rank(finding: Finding) -> tuple[int, int, str, str]:
    return SEVERITY_RANK[finding.severity], _PLACE.get(finding.code, 98), finding.subject, finding.message
