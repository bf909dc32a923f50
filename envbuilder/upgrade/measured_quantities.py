"""Quantities that are measured: durations, peak memory, sizes."""

from __future__ import annotations

from collections.abc import Sequence

from envbuilder.upgrade.figures import Figures, Sides, count, unknown
from envbuilder.upgrade.statistics import Interval, Measured
from envbuilder.upgrade.upgrade_document import MemoryChange


def duration(sides: Sides, *names: str) -> Figures:
    """Bound the longest of the durations whose names begin so."""
    timings = sides.differences.timings
    rows = [row for row in timings or () if row.name.startswith(names)]
    if not rows:
        return unknown("not measured")
    return _worst(rows, tuple(map(_timing, rows)))


def _worst(rows: Sequence[Measured | MemoryChange], details: tuple[str, ...]) -> Figures:
    """Bound the largest ratio: surely at least, and at most where every interval is known."""
    worst = max(rows, key=lambda row: row.ratio.value)
    highs = [row.ratio.high for row in rows]
    lows = [row.ratio.low for row in rows if row.ratio.low is not None and row.change == "slower"]
    return Figures(
        max(lows, default=None),
        None if None in highs else max(high for high in highs if high is not None),
        f"{ratio_text(worst.ratio)} {worst.name}",
        details,
    )


def ratio_text(ratio: Interval) -> str:
    """Write a ratio with its interval: ``1.03 x (0.99 to 1.07)``."""
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.2f} x (too few rounds for an interval)"
    return f"{ratio.value:.2f} x ({ratio.low:.2f} to {ratio.high:.2f})"


def drifted(old: Interval, new: Interval, ratio: Interval) -> bool:
    """Tell whether two medians, each over all rounds, say something else than the ratio within rounds.

    That is so where the machine was faster in some rounds than in others; the ratio alone can then be read.
    """
    plain = new.value / old.value
    return ratio.low is not None and ratio.high is not None and not ratio.low <= plain <= ratio.high


DRIFTED = "the machine's speed changed meanwhile: read the ratio, not the medians"


def _timing(row: Measured) -> str:
    said = f"{row.name}: {ratio_text(row.ratio)} within rounds, {row.change}"
    medians = f"medians {row.old_s.value:.4g} s and {row.new_s.value:.4g} s"
    return f"{said}; {DRIFTED if drifted(row.old_s, row.new_s, row.ratio) else medians}"


def slower(sides: Sides) -> Figures:
    """Count the durations that are surely longer, whatever their limits say."""
    rows = sides.differences.timings
    if not rows:
        return unknown("not measured")
    if any(row.ratio.low is None for row in rows):
        return unknown("too few rounds to claim anything")
    found = [row for row in rows if row.change == "slower"]
    return count([_timing(row) for row in found], nothing=f"none of {len(rows)}")


def memory(sides: Sides) -> Figures:
    """Bound the largest growth of a process's peak memory."""
    rows = sides.differences.memory
    if not rows:
        return unknown("not measured")
    sizes = ((row, f"{row.old.value / 1e6:.0f} MB → {row.new.value / 1e6:.0f} MB") for row in rows)
    return _worst(rows, tuple(f"{row.name}: {text}, {ratio_text(row.ratio)}" for row, text in sizes))


def size(sides: Sides) -> Figures:
    """Read the images' sizes."""
    ratio = sides.differences.size_ratio
    if ratio is None or sides.old.image is None or sides.new.image is None:
        return unknown("an image is missing")
    sizes = f"{sides.old.image.size / 1e6:.0f} MB → {sides.new.image.size / 1e6:.0f} MB"
    return Figures(ratio, ratio, f"{ratio:.3f} x ({sizes})")
