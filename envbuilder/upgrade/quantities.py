"""The quantities that a policy's clauses compare with their limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
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
    SurfaceChange,
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


def _count_or_unknown(details: Iterable[str] | None, reason: str) -> QuantityValue:
    return unknown(reason) if details is None else count(tuple(details))


def _duration(images: ComparedImages, prefix: str) -> QuantityValue:
    rows = [row for row in images.differences.timings or () if row.name.startswith(prefix)]
    return _worst(rows, map(_timing, rows))


def _memory(images: ComparedImages) -> QuantityValue:
    rows = images.differences.memory or ()
    return _worst(
        rows, (f"{row.name}: {_sizes(row.old.value, row.new.value)}, {ratio_text(row.ratio)}" for row in rows)
    )


def _worst(rows: Sequence[RatioResult | MemoryChange], details: Iterable[str]) -> QuantityValue:
    """Bound the largest ratio; unbounded above if an interval is unknown."""
    if not rows:
        return unknown("not measured")
    worst = max(rows, key=lambda row: row.ratio.value)
    highs = [row.ratio.high for row in rows]
    lows = [row.ratio.low for row in rows if row.ratio.low is not None and row.change == "slower"]
    high = None if None in highs else max(high for high in highs if high is not None)
    return QuantityValue(max(lows, default=None), high, f"{ratio_text(worst.ratio)} {worst.name}", tuple(details))


def _slower(images: ComparedImages) -> QuantityValue:
    """Count the durations that are certainly longer, whatever their limits."""
    rows = images.differences.timings
    if not rows:
        return unknown("not measured")
    if any(row.ratio.low is None for row in rows):
        return unknown("too few rounds to prove a change")
    return count([_timing(row) for row in rows if row.change == "slower"], nothing=f"none of {len(rows)}")


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
    medians = f"medians {row.old_s.value:.4g} s and {row.new_s.value:.4g} s"
    note = SPEED_CHANGED if speed_changed(row.old_s, row.new_s, row.ratio) else medians
    return f"{row.name}: {ratio_text(row.ratio)} within rounds, {row.change}; {note}"


def _sizes(old: float, new: float) -> str:
    return f"{old / 1e6:.0f} MB → {new / 1e6:.0f} MB"


def _image_size(images: ComparedImages) -> QuantityValue:
    ratio = images.differences.size_ratio
    if ratio is None or images.old.image is None or images.new.image is None:
        return unknown("an image is missing")
    return QuantityValue(ratio, ratio, f"{ratio:.3f} x ({_sizes(images.old.image.size, images.new.image.size)})")


_VERDICT_BOUNDS = {"PASSED": 0, "FAILED": 1, "INCONCLUSIVE": None}


def _verdict(images: ComparedImages) -> QuantityValue:
    verdict = images.new.verdict
    if verdict is None:
        return unknown("not validated")
    bound = _VERDICT_BOUNDS[verdict]
    return QuantityValue(bound, bound, verdict, () if verdict == "PASSED" else images.new.reasons)


def _failed_checks(images: ComparedImages) -> QuantityValue:
    changes = images.differences.checks
    return _count_or_unknown(None if changes is None else _failures(changes), "one image has no verdict")


def _failures(changes: Sequence[OutcomeChange]) -> tuple[str, ...]:
    rows = compare.newly_failed(changes)
    return tuple(f"{_outcomes(row)}: {row.message}{row.again and ' (' + row.again + ')'}" for row in rows)


def _outcomes(change: OutcomeChange) -> str:
    return f"{change.name}: {change.old or 'absent'} → {change.new or 'absent'}"


def _failed_tests(images: ComparedImages) -> QuantityValue:
    """Count the user's tests that newly fail; a suite without a pass on the old image proves nothing."""
    changes, counted = images.differences.tests, images.differences.tests_counted
    total = images.differences.tests_run
    if total is None:
        return not_requested("no --suite given")
    if changes is None or not total:
        return unknown("no test gave an answer")
    failed = _failures(changes)
    both = f", {counted.passed_both} of {total} pass on both" if counted else ""
    if failed:
        return QuantityValue(len(failed), len(failed), f"{len(failed)} of {total} tests{both}", failed)
    if counted is not None and not counted.passed_old:
        return QuantityValue(None, None, f"none of {total} passed on the old image", counted.failed_before)
    if counted is not None and not counted.ended:
        return QuantityValue(None, None, f"the run did not finish{both}", counted.failed_before)
    return QuantityValue(0, 0, f"none of {total}{both}")


def _failed_before(images: ComparedImages) -> QuantityValue:
    """Count the user's tests that did not run and pass on the old image: they prove nothing."""
    counted = images.differences.tests_counted
    if counted is not None:
        return count(counted.failed_before, nothing=f"none of {counted.total}")
    return not_requested("no --suite given") if images.differences.tests_run is None else unknown("nothing was counted")


def _flaky(images: ComparedImages) -> QuantityValue:
    """Count the user's flaky tests, found by further runs."""
    changes = images.differences.tests
    if changes is None:
        return not_requested("no --suite given")
    return count([f"{_outcomes(row)}: {row.again}: {row.message}" for row in changes if row.flaky])


def _models(images: ComparedImages, saved_by: str) -> QuantityValue:
    """Count the formats that one image saved and the other cannot load, or predicts differently from."""
    rows = images.differences.models
    if rows is None:
        return unknown("not exchanged")
    own = [row for row in rows if row.saved_by == saved_by]
    return count([f"{row.name}: {row.wrong}" for row in own if row.wrong], nothing=f"none of {len(own)} formats")


def _hosts(images: ComparedImages, wanted: str, before: tuple[str, ...]) -> QuantityValue:
    rows = images.differences.hosts
    if rows is None:
        return not_requested("no --fleet given" if images.new.environment.flavor == "gpu" else "a CPU image")
    changed = [row for row in rows if row.old in before and row.new == wanted]
    unclear = [row for row in rows if row.old in before and row.new == "unknown"]
    found = f"{len(changed)} of {len(rows)}" + (f", no claim on {len(unclear)}" if unclear else "")
    return QuantityValue(
        len(changed), len(changed) + len(unclear), found, tuple(_host(row) for row in (*changed, *unclear))
    )


def _host(row: HostChange) -> str:
    findings = "; ".join(f"{finding.code}: {finding.message}" for finding in row.findings)
    return f"{row.host} ({row.gpu}, driver {row.driver}): {row.old} → {row.new}: {findings}"


def _lost(images: ComparedImages, *names: str) -> QuantityValue:
    return count([text for change in images.differences.sets if change.name in names for text in change.lost])


def _capabilities(images: ComparedImages) -> QuantityValue:
    return _lost(images, inventory.CUBINS, inventory.PTX)


def _pythons(images: ComparedImages) -> QuantityValue:
    if not images.old.pythons or not images.new.pythons:
        return not_requested("unknown for a local wheel file")
    return _lost(images, inventory.PYTHONS)


def _driver(images: ComparedImages) -> QuantityValue:
    old, new = images.old.environment.minimum_driver, images.new.environment.minimum_driver
    if old is None or new is None:
        return not_requested("a CPU image") if images.new.environment.flavor == "cpu" else unknown("no claim")
    raised = versions.key(new) > versions.key(old)
    return QuantityValue(raised, raised, f"{old} → {new}" if old != new else old)


def _numerics(images: ComparedImages, *, outside: bool) -> QuantityValue:
    changes = images.differences.numerics
    if changes is None:
        return unknown("not computed on one image")
    rows = compare.newly_outside(changes) if outside else changes
    errors = ((row, f"{_error(row.old)} → {_error(row.new)}") for row in rows)
    return count([f"{row.operation}: {text}{row.message and ': ' + row.message}" for row, text in errors])


def _error(error: float | None) -> str:
    return "raises" if error is None else f"{error:.2e}"


def _outputs(images: ComparedImages) -> QuantityValue:
    rows, compared = images.differences.outputs, images.differences.outputs_compared
    if rows is None or not compared:
        return unknown("not computed on one image")
    details = tuple(f"{row.operation}: {_drift(row.drift)}" for row in rows if row.outside)
    within = f", {len(rows) - len(details)} within tolerance" if len(rows) > len(details) else ""
    return QuantityValue(len(details), len(details), f"{len(details) or 'none'} of {compared}{within}", details)


def _drift(drift: float | None) -> str:
    return "not comparable" if drift is None else f"differs by {drift:.1e} of the largest result"


def _streams(images: ComparedImages) -> QuantityValue:
    return _count_or_unknown(images.differences.streams_changed, "not run on one image")


def _warnings(images: ComparedImages) -> QuantityValue:
    return _count_or_unknown(images.differences.warnings_new, "not run on one image")


def _names(images: ComparedImages, details: Callable[[SurfaceChange], list[str]]) -> QuantityValue:
    surface = images.differences.surface
    return _count_or_unknown(None if surface is None else details(surface), "not read on one image")


def _removed(surface: SurfaceChange) -> list[str]:
    members = [f"{m.member} of {m.count} classes ({', '.join(m.classes[:2])} …)" for m in surface.removed_members]
    return [*(f"tf.{name}" for name in surface.removed), *members]


def _calls(surface: SurfaceChange) -> list[str]:
    functions = [f"tf.{name}: {change.breaks}" for name, change in without_aliases(surface.signatures)]
    return functions + [f"{m.member} of {m.count} classes: {m.breaks}" for m in surface.changed_members if m.breaks]


def _deprecated(surface: SurfaceChange) -> list[str]:
    return [f"tf.{name}" for name in surface.newly_deprecated]


def _packages(images: ComparedImages, detail: Callable[[PackageChange], str | None]) -> QuantityValue:
    rows = images.differences.packages
    details = None if rows is None else [text for row in rows if (text := detail(row))]
    return _count_or_unknown(details, "not listed on one image")


def _licence(row: PackageChange) -> str | None:
    if row.new is None or (row.old is not None and spdx(row.old_licence or "") == spdx(row.new_licence or "")):
        return None
    before = "absent" if row.old is None else row.old_licence or "none stated"
    return f"{row.name}: {before} → {row.new_licence or 'none stated'}"


def _new_major(row: PackageChange) -> str | None:
    if row.old is None or row.new is None or _major(row.old) == _major(row.new):
        return None
    return f"{row.name} {row.old} → {row.new}"


def _major(version: str) -> int | None:
    try:
        return versions.major(version)
    except ValueError:
        return None


ClauseName = Literal[
    "verdict", "checks-newly-failed", "tests-newly-failed", "hosts-lost", "hosts-falling-to-ptx", "capabilities-lost",
    "pythons-lost", "minimum-driver-raised", "start-up-ratio", "work-ratio", "size-ratio", "numerics-outside",
    "numerics-changed", "names-removed", "calls-that-break", "warnings-new", "licences-new", "packages-new-major",
    "outputs-outside", "random-streams-changed", "durations-slower", "memory-ratio", "models-not-loading",
    "models-not-loading-back", "names-deprecated", "tests-failed-before", "tests-flaky",
]  # fmt: skip

QUANTITIES: dict[ClauseName, tuple[str, Callable[[ComparedImages], QuantityValue]]] = {
    "verdict": ("the new image passes its validation", _verdict),
    "checks-newly-failed": ("checks that newly fail", _failed_checks),
    "tests-newly-failed": ("your tests that newly fail", _failed_tests),
    "hosts-lost": (
        "GPUs of the fleet that would lose support",
        partial(_hosts, wanted="lost", before=("native", "ptx")),
    ),
    "hosts-falling-to-ptx": (
        "GPUs of the fleet that would have to compile PTX",
        partial(_hosts, wanted="ptx", before=("native",)),
    ),
    "capabilities-lost": ("compute capabilities that lose machine code or PTX", _capabilities),
    "pythons-lost": ("Python versions that lose their wheel", _pythons),
    "minimum-driver-raised": ("the minimum driver is raised", _driver),
    "start-up-ratio": (
        "time from process start to the first results, new/old",
        partial(_duration, prefix="start.total"),
    ),
    "work-ratio": (
        "time of matmul, convolution and training step, new/old, the worst",
        partial(_duration, prefix="work."),
    ),
    "size-ratio": ("size of the image, new/old", _image_size),
    "numerics-outside": ("operations whose error exceeds its precision's tolerance", partial(_numerics, outside=True)),
    "numerics-changed": (
        "operations whose error against double precision changed by more than 2 x",
        partial(_numerics, outside=False),
    ),
    "names-removed": ("public names that were removed", partial(_names, details=_removed)),
    "calls-that-break": (
        "public callables whose parameters changed so that calls can break",
        partial(_names, details=_calls),
    ),
    "warnings-new": ("new warnings and deprecations", _warnings),
    "licences-new": ("packages that are new or changed their licence", partial(_packages, detail=_licence)),
    "packages-new-major": ("packages with a new major version", partial(_packages, detail=_new_major)),
    "outputs-outside": ("operations with other results than the old image on the same inputs", _outputs),
    "random-streams-changed": ("random generators with another result for the same seed", _streams),
    "durations-slower": ("durations that are certainly longer, even within their limits", _slower),
    "memory-ratio": ("peak memory of a process, new/old, the worst", _memory),
    "models-not-loading": (
        "formats of models saved by the old image that the new one cannot load",
        partial(_models, saved_by="old"),
    ),
    "models-not-loading-back": (
        "formats of models saved by the new image that the old one cannot load",
        partial(_models, saved_by="new"),
    ),
    "names-deprecated": ("public names that are newly deprecated", partial(_names, details=_deprecated)),
    "tests-failed-before": ("your tests that did not run and pass on the old image", _failed_before),
    "tests-flaky": ("your flaky tests", _flaky),
}
"""Every quantity: its sentence in clauses, and the function that reads it."""
