"""Decide from interleaved samples if a duration changed, and by how much.

Samples are compared only within a block of three rounds, by their ranks: Wilcoxon's rank-sum test stratified by block,
with its exact distribution. "Changed": the hypothesis that the true ratio lies within ``1/(1+relevant) … 1+relevant``
is rejected at ``alpha`` over all quantities of one comparison together (Holm).
"""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from statistics import median
from typing import Annotated, Literal

import msgspec

Change = Literal["slower", "faster", "same", "unclear"]

BLOCK = 3
"""Rounds in a block: with two, one spike costs too much; with five, drift within the block does (simulated)."""


class Samples(msgspec.Struct, frozen=True, kw_only=True):
    """A duration in seconds, or a memory peak in bytes, of both images: ``old[i]`` and ``new[i]`` are round i."""

    name: str
    unit: Literal["s", "B"] = "s"
    old: tuple[float, ...]
    new: tuple[float, ...]


class Interval(msgspec.Struct, frozen=True):
    """An estimate and its confidence bounds, None with too few samples."""

    value: float
    low: float | None
    high: float | None


class RatioResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one duration: medians in seconds, ratio new/old, and the test's answer.

    ``p`` is for the hypothesis "no relevant change"; ``p_adjusted`` is corrected for the number of quantities.
    """

    name: str
    rounds: int
    old_s: Interval
    new_s: Interval
    ratio: Interval
    p: float
    p_adjusted: float
    change: Change


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The definition of a change: the smallest relevant ratio less one, the test's error, the intervals' level."""

    relevant: Annotated[float, msgspec.Meta(gt=0, le=10)] = 0.05
    alpha: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.01
    confidence: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.95


def compare(samples: Sequence[Samples], settings: Settings) -> tuple[RatioResult, ...]:
    """Test all durations as one family; the order is kept.

    Raises ValueError for images of unequal length, no rounds, or a duration that is not positive.
    """
    for one in samples:
        if len(one.old) != len(one.new) or not one.old or min(*one.old, *one.new) <= 0:
            raise ValueError(f"{one.name}: needs as many positive durations on both images, at least one")
    differences = [sorted(_log_ratios(one)) for one in samples]
    p = [_p(row, len(one.old), settings) for row, one in zip(differences, samples, strict=True)]
    return tuple(_measured(*each, settings) for each in zip(samples, differences, p, holm(p), strict=True))


def _log_ratios(one: Samples) -> Iterator[float]:
    """Yield ``log(new/old)`` of every pair of samples within a block."""
    at = 0
    for size in blocks(len(one.old)):
        for old, new in product(one.old[at : at + size], one.new[at : at + size]):
            yield math.log(new / old)
        at += size


def blocks(rounds: int) -> tuple[int, ...]:
    """Divide rounds into blocks of three; the last ones are larger if there is a remainder: ``11 -> (3, 4, 4)``."""
    count = max(1, rounds // BLOCK)
    small, rest = divmod(rounds, count)
    return (small,) * (count - rest) + (small + 1,) * rest


def _p(differences: Sequence[float], rounds: int, settings: Settings) -> float:
    """Return the p-value of "the ratio is within the irrelevant range"; ties count against a change."""
    shift = math.log1p(settings.relevant)
    slower = sum(difference > shift for difference in differences)
    faster = sum(difference < -shift for difference in differences)
    ways = _ways(blocks(rounds))
    return min(1.0, 2 * sum(ways[max(slower, faster) :]) / sum(ways))


@lru_cache(maxsize=256)
def _ways(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Count the orders of the samples within blocks by the number of pairs that the new image loses."""
    total = [1]
    for size in sizes:
        one, other = total, _orders(size, size)
        total = [0] * (len(one) + len(other) - 1)
        for (i, a), (j, b) in product(enumerate(one), enumerate(other)):
            total[i + j] += a * b
    return tuple(total)


@lru_cache(maxsize=4096)
def _orders(old: int, new: int) -> tuple[int, ...]:
    """Count the orders of ``old`` and ``new`` samples by Mann and Whitney's statistic, by which sample is largest."""
    if not old or not new:
        return (1,)
    without_new = (0,) * old + _orders(old, new - 1)
    without_old = _orders(old - 1, new) + (0,) * new
    return tuple(map(sum, zip(without_new, without_old, strict=True)))


def _measured(one: Samples, differences: Sequence[float], p: float, p_all: float, settings: Settings) -> RatioResult:
    rounds = len(one.old)
    central = _central(differences, _ways(blocks(rounds)), settings.confidence)
    low, high = (None if bound is None else math.exp(bound) for bound in (central.low, central.high))
    ratio = Interval(math.exp(central.value), low, high)
    return RatioResult(
        name=one.name,
        rounds=rounds,
        old_s=median_interval(one.old, settings.confidence),
        new_s=median_interval(one.new, settings.confidence),
        ratio=ratio,
        p=p,
        p_adjusted=p_all,
        change=_change(ratio, settings, significant=p_all <= settings.alpha),
    )


def _change(ratio: Interval, settings: Settings, *, significant: bool) -> Change:
    if significant:
        return "slower" if ratio.value > 1 else "faster"
    if ratio.low is None or ratio.high is None:
        return "unclear"
    inside = 1 / (1 + settings.relevant) <= ratio.low and ratio.high <= 1 + settings.relevant
    return "same" if inside else "unclear"


def median_interval(values: Sequence[float], confidence: float) -> Interval:
    """Return the median and its distribution-free interval (order statistics, by the binomial distribution)."""
    ordered = sorted(values)
    return _central(ordered, [math.comb(len(ordered), k) for k in range(len(ordered) + 1)], confidence)


def _central(ordered: Sequence[float], ways: Sequence[int], confidence: float) -> Interval:
    """Return the median of sorted values and the order statistics that the test with ``ways`` does not reject."""
    total, mass, cut = sum(ways), 0, -1
    for count in ways:
        mass += count
        if 2 * mass / total > 1 - confidence:
            break
        cut += 1
    if cut < 0:
        return Interval(median(ordered), None, None)
    return Interval(median(ordered), ordered[cut], ordered[-1 - cut])


def holm(p: Sequence[float]) -> list[float]:
    """Adjust p-values for their number (Holm), so that the chance of any false claim stays below the level."""
    adjusted = [0.0] * len(p)
    floor = 0.0
    for place, index in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        floor = max(floor, min(1.0, (len(p) - place) * p[index]))
        adjusted[index] = floor
    return adjusted
