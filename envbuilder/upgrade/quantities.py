"""The quantities that a policy's clauses bound: how each is read from two sides and their differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from envbuilder import versions
from envbuilder.upgrade import inventory, outcomes
from envbuilder.upgrade import measured_quantities as measured
from envbuilder.upgrade import outcome_quantities as answers
from envbuilder.upgrade.figures import Figures, Sides, count, not_asked, unknown
from envbuilder.upgrade.inventory import spdx
from envbuilder.upgrade.surface import folded
from envbuilder.upgrade.upgrade_document import HostChange, PackageChange

ClauseName = Literal[
    "verdict",
    "checks-newly-failed",
    "tests-newly-failed",
    "hosts-lost",
    "hosts-falling-to-ptx",
    "capabilities-lost",
    "pythons-lost",
    "minimum-driver-raised",
    "start-up-ratio",
    "work-ratio",
    "size-ratio",
    "numerics-outside",
    "numerics-changed",
    "names-removed",
    "calls-that-break",
    "warnings-new",
    "licences-new",
    "packages-new-major",
    "outputs-outside",
    "random-streams-changed",
    "durations-slower",
    "memory-ratio",
    "models-not-loading",
    "models-not-loading-back",
    "names-deprecated",
    "tests-failed-before",
    "tests-flaky",
]


def _hosts(sides: Sides, *, wanted: str, serving: tuple[str, ...]) -> Figures:
    rows = sides.differences.hosts
    if rows is None:
        return not_asked("no --fleet given" if sides.new.environment.flavor == "gpu" else "a CPU image")
    hit = [row for row in rows if row.old in serving and row.new == wanted]
    silent = [row for row in rows if row.old in serving and row.new == "unknown"]
    details = tuple(map(_host, (*hit, *silent)))
    found = f"{len(hit)} of {len(rows)}" + (f", no claim on {len(silent)}" if silent else "")
    return Figures(len(hit), len(hit) + len(silent), found, details)


def _host(row: HostChange) -> str:
    why = "; ".join(f"{finding.code}: {finding.message}" for finding in row.findings)
    return f"{row.host} ({row.gpu}, driver {row.driver}): {row.old} → {row.new}: {why}"


def _lost(sides: Sides, *names: str) -> Figures:
    return count([text for change in sides.differences.sets if change.name in names for text in change.lost])


def _pythons(sides: Sides) -> Figures:
    if not sides.old.pythons or not sides.new.pythons:
        return not_asked("one wheel file says nothing of others")
    return _lost(sides, inventory.PYTHONS)


def _driver(sides: Sides) -> Figures:
    old, new = sides.old.environment.minimum_driver, sides.new.environment.minimum_driver
    if old is None or new is None:
        return not_asked("a CPU image") if sides.new.environment.flavor == "cpu" else unknown("no claim")
    raised = versions.key(new) > versions.key(old)
    return Figures(raised, raised, f"{old} → {new}" if old != new else old)


def _numerics(sides: Sides, *, outside: bool) -> Figures:
    changes = sides.differences.numerics
    if changes is None:
        return unknown("not computed on one side")
    rows = outcomes.newly_outside(changes) if outside else changes
    return count(
        [f"{row.operation}: {_error(row.old)} → {_error(row.new)}{row.message and ': ' + row.message}" for row in rows]
    )


def _error(error: float | None) -> str:
    return "raises" if error is None else f"{error:.2e}"


def _outputs(sides: Sides) -> Figures:
    rows, compared = sides.differences.outputs, sides.differences.outputs_compared
    if rows is None or not compared:
        return unknown("not computed on one side")
    outside = [row for row in rows if row.outside]
    within = f", {len(rows) - len(outside)} within tolerance" if len(rows) > len(outside) else ""
    found = f"{len(outside) or 'none'} of {compared}{within}"
    return Figures(len(outside), len(outside), found, tuple(f"{row.operation}: {_drift(row.drift)}" for row in outside))


def _drift(drift: float | None) -> str:
    return "not comparable" if drift is None else f"differs by {drift:.1e} of the largest result"


def _streams(sides: Sides) -> Figures:
    names = sides.differences.streams_changed
    return unknown("not drawn on one side") if names is None else count(names)


def _deprecated(sides: Sides) -> Figures:
    surface = sides.differences.surface
    return (
        unknown("not walked on one side") if surface is None else count([f"tf.{n}" for n in surface.newly_deprecated])
    )


def _removed(sides: Sides) -> Figures:
    surface = sides.differences.surface
    if surface is None:
        return unknown("not walked on one side")
    members = [f"{m.member} of {m.count} classes ({', '.join(m.classes[:2])} …)" for m in surface.removed_members]
    return count([*(f"tf.{name}" for name in surface.removed), *members])


def _calls(sides: Sides) -> Figures:
    surface = sides.differences.surface
    if surface is None:
        return unknown("not walked on one side")
    functions = [f"tf.{name}: {change.breaks}" for name, change in folded(surface.signatures)]
    members = [f"{m.member} of {m.count} classes: {m.breaks}" for m in surface.changed_members if m.breaks]
    return count([*functions, *members])


def _warnings(sides: Sides) -> Figures:
    lines = sides.differences.warnings_new
    return unknown("not run on one side") if lines is None else count(lines)


def _start_up(sides: Sides) -> Figures:
    return measured.duration(sides, "start.total")


def _work(sides: Sides) -> Figures:
    return measured.duration(sides, "work.")


def _licences(sides: Sides) -> Figures:
    rows = sides.differences.packages
    if rows is None:
        return unknown("not listed on one side")
    return count([_licence(row) for row in rows if row.new is not None and _relicensed(row)])


def _relicensed(row: PackageChange) -> bool:
    return row.old is None or spdx(row.old_licence or "") != spdx(row.new_licence or "")


def _licence(row: PackageChange) -> str:
    before = "absent" if row.old is None else row.old_licence or "none stated"
    return f"{row.name}: {before} → {row.new_licence or 'none stated'}"


def _majors(sides: Sides) -> Figures:
    rows = sides.differences.packages
    if rows is None:
        return unknown("not listed on one side")
    return count(
        [
            f"{row.name} {row.old} → {row.new}"
            for row in rows
            if row.old is not None and row.new is not None and _major(row.old) != _major(row.new)
        ]
    )


def _major(version: str) -> int | None:
    try:
        return versions.major(version)
    except ValueError:
        return None


QUANTITIES: dict[ClauseName, tuple[str, Callable[[Sides], Figures]]] = {
    "verdict": ("the new image passes its validation", answers.verdict),
    "checks-newly-failed": ("checks that fail now and did not before", answers.checks),
    "tests-newly-failed": ("your tests that fail now and did not before", answers.newly_failing_tests),
    "hosts-lost": (
        "GPUs of the fleet that are served now and would not be any more",
        lambda sides: _hosts(sides, wanted="lost", serving=("native", "ptx")),
    ),
    "hosts-falling-to-ptx": (
        "GPUs of the fleet that would have to compile PTX",
        lambda sides: _hosts(sides, wanted="ptx", serving=("native",)),
    ),
    "capabilities-lost": (
        "compute capabilities without machine code or PTX any more",
        lambda sides: _lost(sides, inventory.CUBINS, inventory.PTX),
    ),
    "pythons-lost": ("Python versions without a wheel any more", _pythons),
    "minimum-driver-raised": ("the minimum driver is raised", _driver),
    "start-up-ratio": (
        "time from nothing to the first results, new over old",
        lambda s: measured.duration(s, "start.total"),
    ),
    "work-ratio": (
        "time of matmul, convolution and step, new over old, the worst",
        lambda s: measured.duration(s, "work."),
    ),
    "size-ratio": ("size of the image, new over old", measured.size),
    "numerics-outside": (
        "operations whose error leaves its precision's tolerance",
        lambda sides: _numerics(sides, outside=True),
    ),
    "numerics-changed": (
        "operations whose error against double precision changed by more than 2 x",
        lambda sides: _numerics(sides, outside=False),
    ),
    "names-removed": ("public names that are gone", _removed),
    "calls-that-break": ("public callables whose parameters changed so that calls can break", _calls),
    "warnings-new": ("warnings and deprecations newly printed", _warnings),
    "licences-new": ("packages that are new, or state another licence", _licences),
    "packages-new-major": ("packages with a new major version", _majors),
    "outputs-outside": ("operations whose results, on the same inputs, are not those of the old side", _outputs),
    "random-streams-changed": ("random generators that give something else for the same seed", _streams),
    "durations-slower": ("durations that are surely longer, within their limits or not", measured.slower),
    "memory-ratio": ("peak memory of a process, new over old, the worst", measured.memory),
    "models-not-loading": (
        "formats of models saved by the old side that the new one does not load",
        lambda sides: answers.models(sides, "old"),
    ),
    "models-not-loading-back": (
        "formats of models saved by the new side that the old one does not load",
        lambda sides: answers.models(sides, "new"),
    ),
    "names-deprecated": ("public names that are newly deprecated", _deprecated),
    "tests-failed-before": ("your tests that did not run and pass on the old side", answers.failed_before),
    "tests-flaky": ("your tests that fail now and then", answers.flaky),
}
"""Every quantity: the sentence that a clause is shown by, and how it is read."""
