"""The quantities that a policy's clauses compare: name, unit, value and how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from envbuilder import versions
from envbuilder.upgrade import compare, inventory
from envbuilder.upgrade.document import (
    ComparedImage,
    Differences,
    HostChange,
    MemoryChange,
    OutcomeChange,
    PackageChange,
)
from envbuilder.upgrade.inventory import spdx
from envbuilder.upgrade.statistics import Interval, RatioResult
from envbuilder.upgrade.surface import without_aliases


class QuantityValue(NamedTuple):
    """A quantity's value as bounds (equal if it is counted), a text, and its details.

    ``low`` None: unknown. ``asked`` False: nothing was requested that could answer it.
    """

    low: float | None
    high: float | None
    found: str
    details: tuple[str, ...] = ()
    asked: bool = True


class ComparedImages(NamedTuple):
    """The inputs of the quantities."""

    old: ComparedImage
    new: ComparedImage
    differences: Differences


def count(details: Sequence[str], *, nothing: str = "none") -> QuantityValue:
    """Count details, without a text."""
    return QuantityValue(len(details), len(details), str(len(details)) if details else nothing, tuple(details))


def unknown(why: str) -> QuantityValue:
    """Return an unknown value with its reason."""
    return QuantityValue(None, None, why)


def not_requested(why: str) -> QuantityValue:
    """Return the reason why nothing was requested."""
    return QuantityValue(None, None, why, asked=False)


def duration(sides: ComparedImages, *names: str) -> QuantityValue:
    """Bound the worst ratio of the durations with this prefix."""
    timings = sides.differences.timings
    rows = [row for row in timings or () if row.name.startswith(names)]
    if not rows:
        return unknown("not measured")
    return _worst(rows, tuple(map(_timing, rows)))


def _worst(rows: Sequence[RatioResult | MemoryChange], details: tuple[str, ...]) -> QuantityValue:
    """Bound the largest ratio; unbounded above if an interval is unknown."""
    worst = max(rows, key=lambda row: row.ratio.value)
    highs = [row.ratio.high for row in rows]
    lows = [row.ratio.low for row in rows if row.ratio.low is not None and row.change == "slower"]
    return QuantityValue(
        max(lows, default=None),
        None if None in highs else max(high for high in highs if high is not None),
        f"{ratio_text(worst.ratio)} {worst.name}",
        details,
    )


def ratio_text(ratio: Interval) -> str:
    """Format a ratio with its interval: ``1.03 x (0.99 to 1.07)``."""
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.2f} x (too few rounds for an interval)"
    return f"{ratio.value:.2f} x ({ratio.low:.2f} to {ratio.high:.2f})"


def speed_changed(old: Interval, new: Interval, ratio: Interval) -> bool:
    """Return True if two medians over all rounds disagree with the ratio within rounds.

    That happens if the machine's speed changed between rounds; only the ratio is then meaningful.
    """
    plain = new.value / old.value
    return ratio.low is not None and ratio.high is not None and not ratio.low <= plain <= ratio.high


SPEED_CHANGED = "the machine's speed changed: compare by the ratio, not the medians"


def _timing(row: RatioResult) -> str:
    said = f"{row.name}: {ratio_text(row.ratio)} within rounds, {row.change}"
    medians = f"medians {row.old_s.value:.4g} s and {row.new_s.value:.4g} s"
    return f"{said}; {SPEED_CHANGED if speed_changed(row.old_s, row.new_s, row.ratio) else medians}"


def slower(sides: ComparedImages) -> QuantityValue:
    """Count the durations that are certainly longer, whatever their limits."""
    rows = sides.differences.timings
    if not rows:
        return unknown("not measured")
    if any(row.ratio.low is None for row in rows):
        return unknown("too few rounds to prove a change")
    found = [row for row in rows if row.change == "slower"]
    return count([_timing(row) for row in found], nothing=f"none of {len(rows)}")


def memory(sides: ComparedImages) -> QuantityValue:
    rows = sides.differences.memory
    if not rows:
        return unknown("not measured")
    sizes = ((row, f"{row.old.value / 1e6:.0f} MB → {row.new.value / 1e6:.0f} MB") for row in rows)
    return _worst(rows, tuple(f"{row.name}: {text}, {ratio_text(row.ratio)}" for row, text in sizes))


def size(sides: ComparedImages) -> QuantityValue:
    ratio = sides.differences.size_ratio
    if ratio is None or sides.old.image is None or sides.new.image is None:
        return unknown("an image is missing")
    sizes = f"{sides.old.image.size / 1e6:.0f} MB → {sides.new.image.size / 1e6:.0f} MB"
    return QuantityValue(ratio, ratio, f"{ratio:.3f} x ({sizes})")


def verdict(sides: ComparedImages) -> QuantityValue:
    match sides.new.verdict:
        case "PASSED":
            return QuantityValue(0, 0, "PASSED")
        case "FAILED":
            return QuantityValue(1, 1, "FAILED", sides.new.reasons)
        case "INCONCLUSIVE":
            return QuantityValue(None, None, "INCONCLUSIVE", sides.new.reasons)
        case None:
            return unknown("not validated")


def checks(sides: ComparedImages) -> QuantityValue:
    changes = sides.differences.checks
    return unknown("one image has no verdict") if changes is None else count(_failures(changes))


def _failures(changes: Sequence[OutcomeChange]) -> list[str]:
    rows = compare.newly_failed(changes)
    return [f"{_change(c)}: {c.message}{c.again and ' (' + c.again + ')'}" for c in rows]


def _change(change: OutcomeChange) -> str:
    return f"{change.name}: {change.old or 'absent'} → {change.new or 'absent'}"


def newly_failing_tests(sides: ComparedImages) -> QuantityValue:
    """Count the user's tests that newly fail; a suite without a pass on the old image proves nothing."""
    changes, counted = sides.differences.tests, sides.differences.tests_counted
    total = sides.differences.tests_run
    if total is None:
        return not_requested("no --suite given")
    if changes is None or not total:
        return unknown("no test gave an answer")
    failed = _failures(changes)
    both = f", {counted.passed_both} of {total} pass on both" if counted else ""
    if failed:
        return QuantityValue(len(failed), len(failed), f"{len(failed)} of {total} tests{both}", tuple(failed))
    if counted is not None and not counted.passed_old:
        return QuantityValue(None, None, f"none of {total} passed on the old image", counted.failed_before)
    if counted is not None and not counted.ended:
        return QuantityValue(None, None, f"the run did not finish{both}", counted.failed_before)
    return QuantityValue(0, 0, f"none of {total}{both}")


def failed_before(sides: ComparedImages) -> QuantityValue:
    """Count the user's tests that did not run and pass on the old image: they prove nothing."""
    counted = sides.differences.tests_counted
    if counted is None:
        return (
            not_requested("no --suite given") if sides.differences.tests_run is None else unknown("nothing was counted")
        )
    return count(counted.failed_before, nothing=f"none of {counted.total}")


def flaky(sides: ComparedImages) -> QuantityValue:
    """Count the user's flaky tests, found by further runs."""
    changes = sides.differences.tests
    if changes is None:
        return not_requested("no --suite given")
    return count([f"{_change(c)}: {c.again}: {c.message}" for c in changes if c.flaky])


def models(sides: ComparedImages, saved_by: str) -> QuantityValue:
    """Count the formats that one image saved and the other cannot load, or predicts differently from."""
    rows = sides.differences.models
    if rows is None:
        return unknown("not exchanged")
    own = [row for row in rows if row.saved_by == saved_by]
    return count([f"{row.name}: {row.wrong}" for row in own if row.wrong], nothing=f"none of {len(own)} formats")


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


def _hosts(sides: ComparedImages, *, wanted: str, serving: tuple[str, ...]) -> QuantityValue:
    rows = sides.differences.hosts
    if rows is None:
        return not_requested("no --fleet given" if sides.new.environment.flavor == "gpu" else "a CPU image")
    hit = [row for row in rows if row.old in serving and row.new == wanted]
    silent = [row for row in rows if row.old in serving and row.new == "unknown"]
    details = tuple(map(_host, (*hit, *silent)))
    found = f"{len(hit)} of {len(rows)}" + (f", no claim on {len(silent)}" if silent else "")
    return QuantityValue(len(hit), len(hit) + len(silent), found, details)


def _host(row: HostChange) -> str:
    why = "; ".join(f"{finding.code}: {finding.message}" for finding in row.findings)
    return f"{row.host} ({row.gpu}, driver {row.driver}): {row.old} → {row.new}: {why}"


def _lost(sides: ComparedImages, *names: str) -> QuantityValue:
    return count([text for change in sides.differences.sets if change.name in names for text in change.lost])


def _pythons(sides: ComparedImages) -> QuantityValue:
    if not sides.old.pythons or not sides.new.pythons:
        return not_requested("unknown for a local wheel file")
    return _lost(sides, inventory.PYTHONS)


def _driver(sides: ComparedImages) -> QuantityValue:
    old, new = sides.old.environment.minimum_driver, sides.new.environment.minimum_driver
    if old is None or new is None:
        return not_requested("a CPU image") if sides.new.environment.flavor == "cpu" else unknown("no claim")
    raised = versions.key(new) > versions.key(old)
    return QuantityValue(raised, raised, f"{old} → {new}" if old != new else old)


def _numerics(sides: ComparedImages, *, outside: bool) -> QuantityValue:
    changes = sides.differences.numerics
    if changes is None:
        return unknown("not computed on one image")
    rows = compare.newly_outside(changes) if outside else changes
    return count(
        [f"{row.operation}: {_error(row.old)} → {_error(row.new)}{row.message and ': ' + row.message}" for row in rows]
    )


def _error(error: float | None) -> str:
    return "raises" if error is None else f"{error:.2e}"


def _outputs(sides: ComparedImages) -> QuantityValue:
    rows, compared = sides.differences.outputs, sides.differences.outputs_compared
    if rows is None or not compared:
        return unknown("not computed on one image")
    outside = [row for row in rows if row.outside]
    within = f", {len(rows) - len(outside)} within tolerance" if len(rows) > len(outside) else ""
    found = f"{len(outside) or 'none'} of {compared}{within}"
    return QuantityValue(
        len(outside), len(outside), found, tuple(f"{row.operation}: {_drift(row.drift)}" for row in outside)
    )


def _drift(drift: float | None) -> str:
    return "not comparable" if drift is None else f"differs by {drift:.1e} of the largest result"


def _streams(sides: ComparedImages) -> QuantityValue:
    names = sides.differences.streams_changed
    return unknown("not run on one image") if names is None else count(names)


def _deprecated(sides: ComparedImages) -> QuantityValue:
    surface = sides.differences.surface
    return unknown("not read on one image") if surface is None else count([f"tf.{n}" for n in surface.newly_deprecated])


def _removed(sides: ComparedImages) -> QuantityValue:
    surface = sides.differences.surface
    if surface is None:
        return unknown("not read on one image")
    members = [f"{m.member} of {m.count} classes ({', '.join(m.classes[:2])} …)" for m in surface.removed_members]
    return count([*(f"tf.{name}" for name in surface.removed), *members])


def _calls(sides: ComparedImages) -> QuantityValue:
    surface = sides.differences.surface
    if surface is None:
        return unknown("not read on one image")
    functions = [f"tf.{name}: {change.breaks}" for name, change in without_aliases(surface.signatures)]
    members = [f"{m.member} of {m.count} classes: {m.breaks}" for m in surface.changed_members if m.breaks]
    return count([*functions, *members])


def _warnings(sides: ComparedImages) -> QuantityValue:
    lines = sides.differences.warnings_new
    return unknown("not run on one image") if lines is None else count(lines)


def _start_up(sides: ComparedImages) -> QuantityValue:
    return duration(sides, "start.total")


def _work(sides: ComparedImages) -> QuantityValue:
    return duration(sides, "work.")


def _licences(sides: ComparedImages) -> QuantityValue:
    rows = sides.differences.packages
    if rows is None:
        return unknown("not listed on one image")
    return count([_licence(row) for row in rows if row.new is not None and _relicensed(row)])


def _relicensed(row: PackageChange) -> bool:
    return row.old is None or spdx(row.old_licence or "") != spdx(row.new_licence or "")


def _licence(row: PackageChange) -> str:
    before = "absent" if row.old is None else row.old_licence or "none stated"
    return f"{row.name}: {before} → {row.new_licence or 'none stated'}"


def _majors(sides: ComparedImages) -> QuantityValue:
    rows = sides.differences.packages
    if rows is None:
        return unknown("not listed on one image")
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


QUANTITIES: dict[ClauseName, tuple[str, Callable[[ComparedImages], QuantityValue]]] = {
    "verdict": ("the new image passes its validation", verdict),
    "checks-newly-failed": ("checks that newly fail", checks),
    "tests-newly-failed": ("your tests that newly fail", newly_failing_tests),
    "hosts-lost": (
        "GPUs of the fleet that would lose support",
        lambda sides: _hosts(sides, wanted="lost", serving=("native", "ptx")),
    ),
    "hosts-falling-to-ptx": (
        "GPUs of the fleet that would have to compile PTX",
        lambda sides: _hosts(sides, wanted="ptx", serving=("native",)),
    ),
    "capabilities-lost": (
        "compute capabilities that lose machine code or PTX",
        lambda sides: _lost(sides, inventory.CUBINS, inventory.PTX),
    ),
    "pythons-lost": ("Python versions that lose their wheel", _pythons),
    "minimum-driver-raised": ("the minimum driver is raised", _driver),
    "start-up-ratio": (
        "time from process start to the first results, new/old",
        lambda s: duration(s, "start.total"),
    ),
    "work-ratio": (
        "time of matmul, convolution and training step, new/old, the worst",
        lambda s: duration(s, "work."),
    ),
    "size-ratio": ("size of the image, new/old", size),
    "numerics-outside": (
        "operations whose error exceeds its precision's tolerance",
        lambda sides: _numerics(sides, outside=True),
    ),
    "numerics-changed": (
        "operations whose error against double precision changed by more than 2 x",
        lambda sides: _numerics(sides, outside=False),
    ),
    "names-removed": ("public names that were removed", _removed),
    "calls-that-break": ("public callables whose parameters changed so that calls can break", _calls),
    "warnings-new": ("new warnings and deprecations", _warnings),
    "licences-new": ("packages that are new or changed their licence", _licences),
    "packages-new-major": ("packages with a new major version", _majors),
    "outputs-outside": ("operations with other results than the old image on the same inputs", _outputs),
    "random-streams-changed": ("random generators with another result for the same seed", _streams),
    "durations-slower": ("durations that are certainly longer, even within their limits", slower),
    "memory-ratio": ("peak memory of a process, new/old, the worst", memory),
    "models-not-loading": (
        "formats of models saved by the old image that the new one cannot load",
        lambda sides: models(sides, "old"),
    ),
    "models-not-loading-back": (
        "formats of models saved by the new image that the old one cannot load",
        lambda sides: models(sides, "new"),
    ),
    "names-deprecated": ("public names that are newly deprecated", _deprecated),
    "tests-failed-before": ("your tests that did not run and pass on the old image", failed_before),
    "tests-flaky": ("your flaky tests", flaky),
}
"""Every quantity: its sentence in clauses, and the function that reads it."""
