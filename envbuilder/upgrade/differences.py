"""Put every comparison together: from two sides and what was observed in them to their differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from envbuilder.catalog.model import Catalog
from envbuilder.compat.fleet import FleetHost
from envbuilder.upgrade import hosts, inventory, outcomes, statistics, surface
from envbuilder.upgrade.observed import Observed
from envbuilder.upgrade.outputs import compare_outputs, streams
from envbuilder.upgrade.statistics import Samples, Settings
from envbuilder.upgrade.upgrade_document import Differences, MemoryChange, ModelExchange, Side
from envbuilder.verdict import CheckResult


@dataclass(frozen=True)
class Evidence:
    """All that is known of one side; ``checks`` is None where it has no verdict."""

    side: Side
    observed: Observed
    checks: tuple[CheckResult, ...] | None = None


def differences(
    old: Evidence,
    new: Evidence,
    samples: Sequence[Samples],
    fleet: Sequence[FleetHost],
    catalog: Catalog,
    settings: Settings,
    models: tuple[ModelExchange, ...] | None = None,
) -> Differences:
    """Compare two sides in every respect for which both have evidence; the rest is None, never "no difference"."""
    one, other = old.observed, new.observed
    warned = outcomes.warnings(one.printed, other.printed) if one.printed and other.printed else None
    outputs, compared = compare_outputs(one.numerics, other.numerics) if one.numerics and other.numerics else (None, 0)
    gpu = new.side.environment.flavor == "gpu"
    tests = (
        outcomes.compare_tests(one.tests, other.tests, one.again, other.again)
        if one.tests is not None and other.tests is not None
        else None
    )
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
        timings=statistics.compare([one for one in samples if one.unit == "s"], settings) if samples else None,
        numerics=outcomes.numerics(one.numerics, other.numerics) if one.numerics and other.numerics else None,
        warnings_new=warned[0] if warned else None,
        warnings_gone=warned[1] if warned else (),
        surface=surface.compare_surfaces(one.surface, other.surface) if one.surface and other.surface else None,
        checks=outcomes.checks(old.checks, new.checks) if old.checks is not None and new.checks is not None else None,
        tests=tests,
        tests_run=_run(one, other),
        tests_counted=outcomes.count_tests(one.tests, other.tests, tests or ())
        if one.tests is not None and other.tests is not None
        else None,
        outputs=outputs,
        outputs_compared=compared,
        streams_changed=streams(one.numerics, other.numerics) if one.numerics and other.numerics else None,
        memory=_memory(samples, settings),
        models=models,
    )


def _memory(samples: Sequence[Samples], settings: Settings) -> tuple[MemoryChange, ...] | None:
    """Judge peaks of memory as durations are, in a family of their own; None where none were read."""
    rows = statistics.compare([one for one in samples if one.unit == "B"], settings)
    return (
        tuple(
            MemoryChange(
                name=row.name, rounds=row.rounds, old=row.old_s, new=row.new_s, ratio=row.ratio, change=row.change
            )
            for row in rows
        )
        or None
    )


def _run(one: Observed, other: Observed) -> int | None:
    """Count the tests that ran on either side; None where none were asked for."""
    if one.tests is None and other.tests is None:
        return None
    return len({test.name for test in (*(one.tests or ()), *(other.tests or ()))} - {outcomes.THE_RUN})
