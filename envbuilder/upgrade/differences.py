"""Put every comparison together: from two sides and what was observed in them to their differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from envbuilder.catalog.model import Catalog
from envbuilder.compat.fleet import FleetHost
from envbuilder.upgrade import hosts, inventory, outcomes, statistics, surface
from envbuilder.upgrade.observed import Observed
from envbuilder.upgrade.statistics import Samples, Settings
from envbuilder.upgrade.upgrade_document import Differences, Side
from envbuilder.verdict import CheckResult


@dataclass(frozen=True)
class Evidence:
    """All that is known of one side; ``checks`` is None where it has no verdict."""

    side: Side
    observed: Observed
    checks: tuple[CheckResult, ...] | None = None


def differences(  # noqa: PLR0913, PLR0917 - two sides, what was measured between them, and what judges it
    old: Evidence,
    new: Evidence,
    samples: Sequence[Samples],
    fleet: Sequence[FleetHost],
    catalog: Catalog,
    settings: Settings,
) -> Differences:
    """Compare two sides in every respect for which both have evidence; the rest is None, never "no difference"."""
    one, other = old.observed, new.observed
    warned = outcomes.warnings(one.printed, other.printed) if one.printed and other.printed else None
    gpu = new.side.environment.flavor == "gpu"
    return Differences(
        packages=inventory.packages(one.inventory, other.inventory) if one.inventory and other.inventory else None,
        requirements=inventory.requirements(one.inventory, other.inventory)
        if one.inventory and other.inventory
        else None,
        platform=inventory.platform(old.side, new.side, one.inventory, other.inventory),
        sets=inventory.sets(old.side, new.side),
        hosts=hosts.compare_hosts(old.side.environment, new.side.environment, fleet, catalog)
        if fleet and gpu
        else None,
        size_ratio=inventory.size_ratio(old.side, new.side),
        layers=inventory.layers(old.side, new.side),
        timings=statistics.compare(samples, settings) if samples else None,
        numerics=outcomes.numerics(one.numerics, other.numerics) if one.numerics and other.numerics else None,
        warnings_new=warned[0] if warned else None,
        warnings_gone=warned[1] if warned else (),
        surface=surface.compare_surfaces(one.surface, other.surface) if one.surface and other.surface else None,
        checks=outcomes.checks(old.checks, new.checks) if old.checks is not None and new.checks is not None else None,
        tests=outcomes.tests(one.tests, other.tests) if one.tests is not None and other.tests is not None else None,
        tests_run=_run(one, other),
    )


def _run(one: Observed, other: Observed) -> int | None:
    """Count the tests that ran on either side; None where none were asked for."""
    if one.tests is None and other.tests is None:
        return None
    return len({test.name for test in (*(one.tests or ()), *(other.tests or ()))})
