"""The quantities that a policy's clauses bound: how each is read from two sides and their differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from envbuilder import versions
from envbuilder.upgrade import outcomes
from envbuilder.upgrade.inventory import spdx
from envbuilder.upgrade.statistics import Measured
from envbuilder.upgrade.upgrade_document import Differences, HostChange, OutcomeChange, PackageChange, Side

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
]


class Figures(NamedTuple):
    """What a quantity came to: bounds on its value (equal where it is counted), a text, and its details.

    ``low`` None: it could not be found out. ``asked`` False: nothing was asked that it could answer.
    """

    low: float | None
    high: float | None
    found: str
    details: tuple[str, ...] = ()
    asked: bool = True


class Sides(NamedTuple):
    """What the quantities are read from."""

    old: Side
    new: Side
    differences: Differences


def _count(details: Sequence[str], *, nothing: str = "none") -> Figures:
    return Figures(len(details), len(details), str(len(details)) if details else nothing, tuple(details))


def _unknown(why: str) -> Figures:
    return Figures(None, None, why)


def _not_asked(why: str) -> Figures:
    return Figures(None, None, why, asked=False)


def _verdict(sides: Sides) -> Figures:
    match sides.new.verdict:
        case "PASSED":
            return Figures(0, 0, "PASSED")
        case "FAILED":
            return Figures(1, 1, "FAILED", sides.new.reasons)
        case "INCONCLUSIVE":
            return Figures(None, None, "INCONCLUSIVE", sides.new.reasons)
        case None:
            return _unknown("not validated")


def _checks(sides: Sides) -> Figures:
    changes = sides.differences.checks
    return _unknown("one side has no verdict") if changes is None else _failed(changes)


def _failed(changes: Sequence[OutcomeChange], *, nothing: str = "none") -> Figures:
    rows = outcomes.newly_failed(changes)
    return _count([f"{c.name}: {c.old or 'absent'} → {c.new or 'absent'}: {c.message}" for c in rows], nothing=nothing)


def _tests(sides: Sides) -> Figures:
    changes = sides.differences.tests
    if sides.differences.tests_run is None:
        return _not_asked("no --suite given")
    if changes is None or not sides.differences.tests_run:
        return _unknown("no test gave an answer")
    return _failed(changes, nothing=f"none of {sides.differences.tests_run}")


def _hosts(sides: Sides, *, wanted: str, serving: tuple[str, ...]) -> Figures:
    rows = sides.differences.hosts
    if rows is None:
        return _not_asked("no --fleet given" if sides.new.environment.flavor == "gpu" else "a CPU image")
    hit = [row for row in rows if row.old in serving and row.new == wanted]
    silent = [row for row in rows if row.old in serving and row.new == "unknown"]
    details = tuple(map(_host, (*hit, *silent)))
    found = f"{len(hit)} of {len(rows)}" + (f", no claim on {len(silent)}" if silent else "")
    return Figures(len(hit), len(hit) + len(silent), found, details)


def _host(row: HostChange) -> str:
    why = "; ".join(f"{finding.code}: {finding.message}" for finding in row.findings)
    return f"{row.host} ({row.gpu}, driver {row.driver}): {row.old} → {row.new}: {why}"


def _lost(sides: Sides, name: str) -> Figures:
    return _count([text for change in sides.differences.sets if change.name.startswith(name) for text in change.lost])


def _pythons(sides: Sides) -> Figures:
    if not sides.old.pythons or not sides.new.pythons:
        return _not_asked("one wheel file says nothing of others")
    return _lost(sides, "Python")


def _driver(sides: Sides) -> Figures:
    old, new = sides.old.environment.minimum_driver, sides.new.environment.minimum_driver
    if old is None or new is None:
        return _not_asked("a CPU image") if sides.new.environment.flavor == "cpu" else _unknown("no claim")
    raised = versions.key(new) > versions.key(old)
    return Figures(raised, raised, f"{old} → {new}" if old != new else old)


def _duration(sides: Sides, *names: str) -> Figures:
    timings = sides.differences.timings
    rows = [row for row in timings or () if row.name.startswith(names)]
    if not rows:
        return _unknown("not measured")
    worst = max(rows, key=lambda row: row.ratio.value)
    highs = [row.ratio.high for row in rows]
    lows = [row.ratio.low for row in rows if row.ratio.low is not None and row.change == "slower"]
    return Figures(
        max(lows, default=None),
        None if None in highs else max(high for high in highs if high is not None),
        _ratio(worst),
        tuple(map(_timing, rows)),
    )


def _ratio(row: Measured) -> str:
    if row.ratio.low is None or row.ratio.high is None:
        return f"{row.ratio.value:.2f} x (too few rounds for an interval)"
    return f"{row.ratio.value:.2f} x ({row.ratio.low:.2f} to {row.ratio.high:.2f})"


def _timing(row: Measured) -> str:
    return f"{row.name}: {row.old_s.value:.4g} s → {row.new_s.value:.4g} s, {_ratio(row)}, {row.change}"


def _size(sides: Sides) -> Figures:
    ratio = sides.differences.size_ratio
    if ratio is None or sides.old.image is None or sides.new.image is None:
        return _unknown("an image is missing")
    sizes = f"{sides.old.image.size / 1e6:.0f} MB → {sides.new.image.size / 1e6:.0f} MB"
    return Figures(ratio, ratio, f"{ratio:.3f} x ({sizes})")


def _numerics(sides: Sides, *, outside: bool) -> Figures:
    changes = sides.differences.numerics
    if changes is None:
        return _unknown("not computed on one side")
    rows = outcomes.newly_outside(changes) if outside else changes
    return _count(
        [f"{row.operation}: {_error(row.old)} → {_error(row.new)}{row.message and ': ' + row.message}" for row in rows]
    )


def _error(error: float | None) -> str:
    return "raises" if error is None else f"{error:.2e}"


def _removed(sides: Sides) -> Figures:
    surface = sides.differences.surface
    if surface is None:
        return _unknown("not walked on one side")
    members = [f"{m.member} of {m.count} classes ({', '.join(m.classes[:2])} …)" for m in surface.removed_members]
    return _count([*(f"tf.{name}" for name in surface.removed), *members])


def _calls(sides: Sides) -> Figures:
    surface = sides.differences.surface
    if surface is None:
        return _unknown("not walked on one side")
    functions = [f"tf.{change.name}: {change.breaks}" for change in surface.signatures if change.breaks]
    members = [f"{m.member} of {m.count} classes: {m.breaks}" for m in surface.changed_members if m.breaks]
    return _count([*functions, *members])


def _warnings(sides: Sides) -> Figures:
    lines = sides.differences.warnings_new
    return _unknown("not run on one side") if lines is None else _count(lines)


def _licences(sides: Sides) -> Figures:
    rows = sides.differences.packages
    if rows is None:
        return _unknown("not listed on one side")
    return _count([_licence(row) for row in rows if row.new is not None and _relicensed(row)])


def _relicensed(row: PackageChange) -> bool:
    return row.old is None or spdx(row.old_licence or "") != spdx(row.new_licence or "")


def _licence(row: PackageChange) -> str:
    before = "absent" if row.old is None else row.old_licence or "none stated"
    return f"{row.name}: {before} → {row.new_licence or 'none stated'}"


def _majors(sides: Sides) -> Figures:
    rows = sides.differences.packages
    if rows is None:
        return _unknown("not listed on one side")
    return _count(
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
    "verdict": ("the new image passes its validation", _verdict),
    "checks-newly-failed": ("checks that fail now and did not before", _checks),
    "tests-newly-failed": ("your tests that fail now and did not before", _tests),
    "hosts-lost": (
        "GPUs of the fleet that are served now and would not be any more",
        lambda sides: _hosts(sides, wanted="lost", serving=("native", "ptx")),
    ),
    "hosts-falling-to-ptx": (
        "GPUs of the fleet that would have to compile PTX",
        lambda sides: _hosts(sides, wanted="ptx", serving=("native",)),
    ),
    "capabilities-lost": ("compute capabilities without machine code or PTX any more", lambda s: _lost(s, "compute")),
    "pythons-lost": ("Python versions without a wheel any more", _pythons),
    "minimum-driver-raised": ("the minimum driver is raised", _driver),
    "start-up-ratio": ("time from nothing to the first results, new over old", lambda s: _duration(s, "start.total")),
    "work-ratio": ("time of matmul, convolution and step, new over old, the worst", lambda s: _duration(s, "work.")),
    "size-ratio": ("size of the image, new over old", _size),
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
}
"""Every quantity: the sentence that a clause is shown by, and how it is read."""
