"""The statistics of an upgrade: exact distributions, and how often they are wrong on realistic noise."""

import itertools
import math
import random

import pytest

from envbuilder.upgrade import statistics
from envbuilder.upgrade.statistics import Samples, Settings, compare

ROUNDS = 15
"""What `upgrade` measures unless told otherwise."""

FAMILY = 8
"""About as many durations as one comparison holds."""


def noisy(random_: random.Random, spread: float, drift: float, spikes: float) -> tuple[list[float], list[float]]:
    """Draw interleaved durations of two equal sides: own noise, a drifting machine, and now and then a stall."""
    sides: tuple[list[float], list[float]] = ([], [])
    level = 0.0
    for _ in range(ROUNDS):
        level = 0.8 * level + random_.gauss(0, drift)
        for side in sides:
            stall = random_.uniform(1.3, 3) if random_.random() < spikes else 1.0
            side.append(2.5 * stall * math.exp(level + random_.gauss(0, spread)))
    return sides


def family(random_: random.Random, slowed: float, *noise: float) -> list[Samples]:
    """Draw a comparison in which only the first duration has changed, by the factor ``slowed``."""
    drawn = [noisy(random_, *noise) for _ in range(FAMILY)]
    factors = [slowed] + [1.0] * (FAMILY - 1)
    return [
        Samples(name=str(i), old=tuple(old), new=tuple(factor * x for x in new))
        for i, ((old, new), factor) in enumerate(zip(drawn, factors, strict=True))
    ]


@pytest.mark.parametrize("noise", [(0.03, 0.05, 0.03), (0.06, 0.1, 0.03), (0.2, 0.2, 0.05)], ids=str)
def test_equal_images_never_differ_despite_noise_and_drift(noise: tuple[float, float, float]) -> None:
    random_ = random.Random(20)  # noqa: S311 - simulated noise
    answers = [one for _ in range(200) for one in compare(family(random_, 1.0, *noise), Settings())]
    assert not [one for one in answers if one.change in ("slower", "faster")]


def test_slow_down_of_30_percent_is_found() -> None:
    random_ = random.Random(30)  # noqa: S311 - simulated noise
    answers = [compare(family(random_, 1.3, 0.03, 0.05, 0.03), Settings()) for _ in range(200)]
    assert sum(answer[0].change == "slower" for answer in answers) >= 190
    assert not [one for answer in answers for one in answer[1:] if one.change in ("slower", "faster")]


def test_irrelevant_difference_is_the_same() -> None:
    steady = Samples(name="x", old=(1.0,) * ROUNDS, new=(1.03,) * ROUNDS)
    (answer,) = compare([steady], Settings())
    assert answer.change == "same"


def test_difference_smaller_than_the_noise_is_unclear() -> None:
    random_ = random.Random(1)  # noqa: S311 - simulated noise
    old, new = noisy(random_, 0.5, 0.0, 0.0)
    (answer,) = compare([Samples(name="x", old=tuple(old), new=tuple(1.1 * x for x in new))], Settings())
    assert answer.change == "unclear"


def test_distribution_matches_an_enumeration_of_all_orders() -> None:
    counted: dict[int, int] = {}
    for orders in itertools.product(itertools.combinations(range(4), 2), repeat=2):
        wins = sum(n > o for new in orders for n in new for o in set(range(4)) - set(new))
        counted[wins] = counted.get(wins, 0) + 1
    assert statistics._ways((2, 2)) == tuple(counted[k] for k in range(9))


def test_median_interval_matches_the_textbook() -> None:
    found = statistics.median_interval([float(x) for x in range(1, 11)], 0.95)
    assert (found.value, found.low, found.high) == (5.5, 2.0, 9.0)


def test_holm_matches_the_textbook() -> None:
    assert statistics.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


@pytest.mark.parametrize(("old", "new"), [((), ()), ((1.0,), (1.0, 2.0)), ((0.0,), (1.0,)), ((1.0,), (-1.0,))], ids=str)
def test_invalid_samples_raise_value_error(old: tuple[float, ...], new: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="positive"):
        compare([Samples(name="x", old=old, new=new)], Settings())
