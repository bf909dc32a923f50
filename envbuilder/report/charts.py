"""The data of the page's charts. Positions and widths are shares of the chart's width (0 to 1)."""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from envbuilder.engine.port import Layer
from envbuilder.verdict import Phase
from envbuilder.workspace import packaged_yaml

COLOURS = 10
_SMALLEST_SHARE = 0.0007  # a smaller layer cannot be seen; the list of layers has it


@dataclass(frozen=True)
class Bar:
    """One rectangle; ``colour`` is a number of the page's palette. A nested one is drawn below its parent."""

    name: str
    title: str
    colour: int
    begin: float
    width: float
    nested: bool = False


@dataclass(frozen=True)
class BarChart:
    """Lanes of bars by name, marks on the axis (position and text), and a description in words."""

    lanes: tuple[tuple[str, tuple[Bar, ...]], ...]
    words: str
    ticks: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True)
class PhaseRow:
    """One phase in numbers: median and range for cold and warm caches."""

    phase: str
    colour: int
    cold: str
    warm: str
    nested: bool
    short: str


@dataclass(frozen=True)
class Trend:
    """The course of one figure over runs: its first and last value, and points of a line (x, y: shares of 100)."""

    name: str
    first: str
    last: str
    points: tuple[tuple[float, float], ...]


def seconds(value: float) -> str:
    """Write a time with three figures: ``12.3 s``, ``94 ms``."""
    return f"{value:.3g} s" if value >= 1 else f"{value * 1000:.3g} ms"


def size(value: float) -> str:
    """Write bytes with decimal units, as disks and registries count: ``5.15 GB``."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.0f} B"


def timeline(phases: tuple[Phase, ...]) -> BarChart | None:
    """Return a lane of phases for cold and one for warm caches; None if nothing was measured.

    A phase named ``parent: part`` is nested in ``parent``.
    """
    found = {name: _medians(phases, name) for name in ("cold", "warm")}
    spans = {name: list(_spans(phases, values)) for name, values in found.items() if values}
    if not spans:
        return None
    longest = max(bar.begin + bar.width for bars in spans.values() for bar in bars)
    if not 1e-9 < longest < math.inf:  # noqa: PLR2004 - a nanosecond
        return None
    lanes = tuple(
        (name, tuple(replace(bar, begin=bar.begin / longest, width=bar.width / longest) for bar in bars))
        for name, bars in spans.items()
    )
    totals = {name: sum(bar.width for bar in bars if not bar.nested) for name, bars in spans.items()}
    words = "; ".join(f"{name}: {seconds(total)} in all" for name, total in totals.items())
    return BarChart(lanes, f"Start-up, {words}", _ticks(longest))


def _spans(phases: tuple[Phase, ...], values: dict[str, float]) -> Iterator[Bar]:
    """Yield phases one after the other, in seconds, and parts one after the other from the begin of their parent.

    Parts may come from another process than their parent: if they take longer in all, their bars are shortened in
    proportion. A part whose parent was not measured is a phase of its own.
    """
    names = {phase.phase for phase in phases}
    parents = {name: parent for name in values if (parent := _parent(name, names)) in values}
    sums = {parent: sum(values[name] for name in parents if parents[name] == parent) for parent in parents.values()}
    begins: dict[str | None, float] = {}
    now = 0.0
    for index, name in enumerate(phase.phase for phase in phases):
        if name not in values:
            continue
        value, parent = values[name], parents.get(name)
        title = f"{name}: {seconds(value)}"
        if parent is None:
            begins[name] = now
            yield Bar(name, title, index % COLOURS, now, value)
            now += value
        elif parent in begins:
            width = value * min(1.0, values[parent] / sums[parent])
            yield Bar(name, title, index % COLOURS, begins[parent], width, nested=True)
            begins[parent] += width


def phase_rows(phases: tuple[Phase, ...]) -> tuple[PhaseRow, ...]:
    """Return the figures of the same chart."""
    names, middle = {phase.phase for phase in phases}, medians(phases)
    return tuple(
        PhaseRow(
            phase.phase,
            index % COLOURS,
            _range(phase.cold_s),
            _range(phase.warm_s),
            _parent(phase.phase, names) is not None,
            seconds(middle[phase.phase]) if phase.phase in middle else "",
        )
        for index, phase in enumerate(phases)
    )


def _parent(name: str, names: set[str]) -> str | None:
    head, colon, _ = name.partition(": ")
    return head if colon and head in names else None


def _medians(phases: tuple[Phase, ...], caches: str) -> dict[str, float]:
    samples = {phase.phase: phase.cold_s if caches == "cold" else phase.warm_s for phase in phases}
    return {name: statistics.median(values) for name, values in samples.items() if values}


def medians(phases: tuple[Phase, ...]) -> dict[str, float]:
    """Return the median of each phase with cold caches, else with warm ones, in seconds."""
    return _medians(phases, "warm") | _medians(phases, "cold")


def _range(samples: tuple[float, ...]) -> str:
    if not samples:
        return "not measured"
    median = seconds(statistics.median(samples))
    if len(samples) == 1:
        return median
    return f"{median} ({seconds(min(samples))} to {seconds(max(samples))}, n={len(samples)})"


def _ticks(longest: float) -> tuple[tuple[float, str], ...]:
    """Return four to nine marks at round seconds."""
    rough = longest / 6
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return tuple((n * step / longest, seconds(n * step) if n else "0") for n in range(int(longest / step) + 1))


def layer_name(layer: Layer, index: int) -> str:
    """Name a layer in few words, by its instruction."""
    if index == 0:
        return "base system"
    names = packaged_yaml("report/layers.yaml", dict[str, str])
    known = next((name for mark, name in names.items() if mark in layer.created_by), None)
    return known or " ".join(layer.created_by.split())[:60] or "unnamed"


def layer_chart(layers: tuple[Layer, ...]) -> BarChart | None:
    total = sum(layer.size for layer in layers)
    if not total:
        return None
    bars, begin = [], 0.0
    for index, layer in enumerate(layers):
        share, name = layer.size / total, layer_name(layer, index)
        if share >= _SMALLEST_SHARE:
            bars.append(Bar(name, f"{name}: {size(layer.size)}", index % COLOURS, begin, share))
        begin += share
    return BarChart((("", tuple(bars)),), f"{size(total)} in {len(layers)} layers")


def trend(name: str, values: Sequence[float | None], written: Callable[[float], str]) -> Trend | None:
    """Return the course of a figure; None for fewer than two runs that measured it."""
    known = [value for value in values if value is not None]
    if len(known) < 2:  # noqa: PLR2004 - one point is not a course
        return None
    low, high = min(known), max(known)
    across, span = 100 / (len(known) - 1), high - low or 1.0
    points = tuple((number * across, 90 - 80 * (value - low) / span) for number, value in enumerate(known))
    return Trend(name, written(known[0]), written(known[-1]), points)
