"""The geometry of the page's pictures; units are those of the picture's view box. Pure: values in, rectangles out."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from envbuilder.image.build import LayerSize
from envbuilder.verdict import Phase, Verdict

WIDTH, LEFT, RIGHT = 720.0, 44.0, 8.0
_LANE, _SUB, _GAP = 26.0, 10.0, 12.0
COLOURS = 10


@dataclass(frozen=True)
class Bar:
    """A rectangle; ``colour`` is a number of the page's palette, ``text`` is written in it where there is room."""

    x: float
    y: float
    width: float
    height: float
    colour: int
    text: str
    title: str


@dataclass(frozen=True)
class Tick:
    """A mark on the axis."""

    x: float
    text: str


@dataclass(frozen=True)
class Lane:
    """One row of bars: its name, the middle of its height, its sum as text."""

    name: str
    y: float
    total: str


@dataclass(frozen=True)
class Row:
    """One phase in numbers, for those who do not see the picture: medians and ranges in seconds."""

    phase: str
    colour: int
    cold: str
    warm: str
    nested: bool
    short: str


@dataclass(frozen=True)
class Picture:
    """A picture, and in words what it shows."""

    width: float
    height: float
    bars: tuple[Bar, ...]
    ticks: tuple[Tick, ...]
    lanes: tuple[Lane, ...]
    words: str


def seconds(value: float) -> str:
    """Write a time with three figures: ``12.3 s``, ``94 ms``."""
    return f"{value:.3g} s" if value >= 1 else f"{value * 1000:.3g} ms"


def size(value: float) -> str:
    """Write bytes with decimal units, as disks and registries count: ``5.15 GB``."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.0f} B"


def timeline(phases: tuple[Phase, ...]) -> Picture | None:
    """Draw start-up: a lane for cold and one for warm caches, phases in their order, nested ones on a thinner lane.

    A phase named ``parent: part`` is nested in ``parent``. None where nothing was measured.
    """
    names = {phase.phase for phase in phases}
    lanes = [(name, _medians(phases, name)) for name in ("cold", "warm")]
    lanes = [(name, values) for name, values in lanes if values]
    if not lanes:
        return None
    spans = {name: _spans(phases, names, values) for name, values in lanes}
    longest = max(span.begin + span.drawn for lane in spans.values() for span in lane) or 1.0
    scale = (WIDTH - LEFT - RIGHT) / longest
    bars: list[Bar] = []
    rows: list[Lane] = []
    y = 0.0
    for name, _ in lanes:
        bars += [_bar(span, y, scale) for span in spans[name]]
        total = sum(span.value for span in spans[name] if span.parent is None)
        rows.append(Lane(name, y + _LANE / 2, seconds(total)))
        y += _LANE + _SUB + _GAP
    words = "; ".join(f"{lane.name}: {lane.total} in all" for lane in rows)
    return Picture(WIDTH, y + 18, tuple(bars), _ticks(longest, scale), tuple(rows), f"Start-up, {words}")


@dataclass(frozen=True)
class _Span:
    """One phase: where it is drawn (in seconds from the start), what it took, and what it is a part of."""

    phase: str
    colour: int
    begin: float
    drawn: float
    value: float
    parent: str | None


def _spans(phases: tuple[Phase, ...], names: set[str], values: dict[str, float]) -> list[_Span]:
    """Place phases one after the other, and parts one after the other from where their parent begins.

    Parts may come from another process than their parent: where they take longer in all, they are drawn in
    proportion inside it, with their own times in the words. A part whose parent was not measured stands for itself.
    """
    parents = {name: parent for name in values if (parent := _parent(name, names)) in values}
    sums = {parent: sum(values[name] for name in parents if parents[name] == parent) for parent in parents.values()}
    made: list[_Span] = []
    begins: dict[str | None, float] = {}
    now = 0.0
    for index, phase in enumerate(phases):
        value, parent = values.get(phase.phase), parents.get(phase.phase)
        if value is None:
            continue
        if parent is None:
            begins[phase.phase] = now
            made.append(_Span(phase.phase, index % COLOURS, now, value, value, None))
            now += value
        elif parent in begins:
            drawn = value * min(1.0, values[parent] / sums[parent])
            made.append(_Span(phase.phase, index % COLOURS, begins[parent], drawn, value, parent))
            begins[parent] += drawn
    return made


def _bar(span: _Span, y: float, scale: float) -> Bar:
    width = max(span.drawn * scale, 0.75)
    shown = span.phase if span.parent is None and width > 7 * len(span.phase) else ""
    top, height = (y, _LANE) if span.parent is None else (y + _LANE + 2, _SUB)
    title = f"{span.phase}: {seconds(span.value)}"
    return Bar(LEFT + span.begin * scale, top, width, height, span.colour, shown, title)


def phase_rows(phases: tuple[Phase, ...]) -> tuple[Row, ...]:
    """Return the figures of the same picture."""
    names = {phase.phase for phase in phases}
    return tuple(
        Row(
            phase.phase,
            index % COLOURS,
            _range(phase.cold_s),
            _range(phase.warm_s),
            _parent(phase.phase, names) is not None,
            seconds(statistics.median(phase.cold_s or phase.warm_s)) if phase.cold_s or phase.warm_s else "",
        )
        for index, phase in enumerate(phases)
    )


def _parent(name: str, names: set[str]) -> str | None:
    head, colon, _ = name.partition(": ")
    return head if colon and head in names else None


def _medians(phases: tuple[Phase, ...], caches: str) -> dict[str, float]:
    samples = {phase.phase: phase.cold_s if caches == "cold" else phase.warm_s for phase in phases}
    return {name: statistics.median(values) for name, values in samples.items() if values}


def _range(samples: tuple[float, ...]) -> str:
    if not samples:
        return "not measured"
    median = seconds(statistics.median(samples))
    return (
        median
        if len(samples) == 1
        else f"{median} ({seconds(min(samples))} to {seconds(max(samples))}, n={len(samples)})"
    )


def _ticks(longest: float, scale: float) -> tuple[Tick, ...]:
    """Return four to nine marks at round seconds."""
    rough = longest / 6
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return tuple(Tick(LEFT + n * step * scale, seconds(n * step) if n else "0") for n in range(int(longest / step) + 1))


_LAYER_NAMES = (
    ("cuda.lock", "CUDA libraries"),
    ("/part/nvidia-", "CUDA libraries"),
    ("/part/nccl.lock", "NCCL"),
    ("/part/tensorflow.lock", "TensorFlow"),
    ("/part/required.lock", "what TensorFlow requires"),
    ("/part/added.lock", "what the matrix adds"),
    ("requirements.lock #", "TensorFlow and the lock"),
    ("requirements.lock /opt", "lock and description"),
    ("useradd", "user"),
    ("-m venv", "Python's environment"),
    ("WORKDIR", "working folder"),
)
"""What of an instruction tells what a layer is for, and its name."""


def layer_name(layer: LayerSize, index: int) -> str:
    """Name a layer in few words, by the instruction that made it."""
    if index == 0:
        return "base system"
    known = next((name for mark, name in _LAYER_NAMES if mark in layer.created_by), None)
    return known or " ".join(layer.created_by.split())[:60] or "unnamed"


def layer_bars(layers: tuple[LayerSize, ...]) -> Picture | None:
    """Draw an image's layers by size, lowest first; None for an image without any."""
    total = sum(layer.size for layer in layers)
    if not total:
        return None
    scale = (WIDTH - RIGHT) / total
    bars, x = [], 0.0
    for index, layer in enumerate(layers):
        width = layer.size * scale
        name = layer_name(layer, index)
        if width >= 0.5:  # noqa: PLR2004 - less than half a unit cannot be seen; the table has it
            shown = name if width > 7 * len(name) else ""
            bars.append(Bar(x, 0, width, _LANE, index % COLOURS, shown, f"{name}: {size(layer.size)}"))
        x += width
    return Picture(WIDTH, _LANE, tuple(bars), (), (), f"{size(total)} in {len(layers)} layers")


@dataclass(frozen=True)
class Point:
    """One run in the history's picture."""

    x: float
    y: float
    word: str
    title: str


@dataclass(frozen=True)
class Course:
    """Import times over runs: the points, and the line through them."""

    width: float
    height: float
    points: tuple[Point, ...]
    line: str
    words: str


def course(verdicts: tuple[Verdict, ...]) -> Course | None:
    """Draw the import time of an environment's runs in their order; None for fewer than two that measured it."""
    measured = [(verdict, value) for verdict in verdicts if (value := import_seconds(verdict)) is not None]
    if len(measured) < 2:  # noqa: PLR2004 - one point is no course
        return None
    height, width = 56.0, 360.0
    highest = max(value for _, value in measured) or 1.0
    step = (width - 20) / (len(measured) - 1)
    points = tuple(
        Point(
            10 + index * step,
            height - 8 - (height - 16) * value / highest,
            verdict.verdict,
            f"{verdict.finished[:16]}: {verdict.verdict}, import {seconds(value)}",
        )
        for index, (verdict, value) in enumerate(measured)
    )
    line = " ".join(f"{point.x:.1f},{point.y:.1f}" for point in points)
    first, last = seconds(measured[0][1]), seconds(measured[-1][1])
    return Course(width, height, points, line, f"Import time over {len(points)} runs: first {first}, last {last}")


def import_seconds(verdict: Verdict) -> float | None:
    """Return the median import time with cold caches, warm where cold was not measured; None for neither."""
    for phase in verdict.timeline:
        if phase.phase == "import":
            samples = phase.cold_s or phase.warm_s
            return statistics.median(samples) if samples else None
    return None
