"""The statistics of an upgrade: exact distributions, and how often they are wrong on realistic noise."""

from __future__ import annotations

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
def test_the_same_version_twice_never_differs(noise: tuple[float, float, float]) -> None:
    """No comparison out of 200 of equal sides claims any change, however noisy or drifting the machine."""
    random_ = random.Random(20)  # noqa: S311 - simulated noise
    answers = [one for _ in range(200) for one in compare(family(random_, 1.0, *noise), Settings())]
    assert not [one for one in answers if one.change in ("slower", "faster")]


def test_a_planted_slow_down_is_found() -> None:
    """A slow-down of 30 % in one duration of eight is found in at least 19 of 20 comparisons, and nothing else is."""
    random_ = random.Random(30)  # noqa: S311 - simulated noise
    answers = [compare(family(random_, 1.3, 0.03, 0.05, 0.03), Settings()) for _ in range(200)]
    assert sum(answer[0].change == "slower" for answer in answers) >= 190
    assert not [one for answer in answers for one in answer[1:] if one.change in ("slower", "faster")]


def test_an_irrelevant_difference_is_no_change() -> None:
    """A difference of 3 %, measured without any noise, is called the same."""
    steady = Samples(name="x", old=(1.0,) * ROUNDS, new=(1.03,) * ROUNDS)
    (answer,) = compare([steady], Settings())
    assert answer.change == "same"


def test_noise_larger_than_the_difference_gives_no_claim() -> None:
    """Ten per cent slower within fifty per cent of noise is unclear, not the same and not slower."""
    random_ = random.Random(1)  # noqa: S311 - simulated noise
    old, new = noisy(random_, 0.5, 0.0, 0.0)
    (answer,) = compare([Samples(name="x", old=tuple(old), new=tuple(1.1 * x for x in new))], Settings())
    assert answer.change == "unclear"


def rounds_needed(quantities: int, settings: Settings) -> int:
    """Return the fewest rounds with which a change in one of ``quantities`` durations could be claimed at all."""
    rounds = 1
    while 2 * quantities / sum(statistics._ways(statistics.blocks(rounds))) > settings.alpha:
        rounds += 1
    return rounds


@pytest.mark.parametrize("rounds", [1, 2, 3, 4])
def test_too_few_rounds_never_claim(rounds: int) -> None:
    """A tenfold difference in fewer rounds than the test needs is unclear."""
    (answer,) = compare([Samples(name="x", old=(1.0,) * rounds, new=(10.0,) * rounds)], Settings())
    assert answer.change == "unclear"
    assert rounds < rounds_needed(1, Settings())


def test_rounds_needed_is_the_boundary() -> None:
    """With as many rounds as are needed a complete separation is claimed; with one fewer it is not."""
    for quantities in (1, 4, 10):
        needed = rounds_needed(quantities, Settings())
        for rounds, claimed in ((needed, True), (needed - 1, False)):
            flat = [Samples(name="same", old=(1.0,) * rounds, new=(1.0,) * rounds)] * (quantities - 1)
            slow = Samples(name="slow", old=(1.0,) * rounds, new=(2.0,) * rounds)
            assert (compare([slow, *flat], Settings())[0].change == "slower") is claimed


def test_the_distribution_is_that_of_all_orders() -> None:
    """The counts by which p-values are made agree with writing every order of two blocks down."""
    counted: dict[int, int] = {}
    for orders in itertools.product(itertools.combinations(range(4), 2), repeat=2):
        wins = sum(n > o for new in orders for n in new for o in set(range(4)) - set(new))
        counted[wins] = counted.get(wins, 0) + 1
    assert statistics._ways((2, 2)) == tuple(counted[k] for k in range(9))


def test_the_median_interval_is_the_textbook_one() -> None:
    """For ten samples the 95 % interval of the median runs from the second to the ninth value."""
    found = statistics.median_interval([float(x) for x in range(1, 11)], 0.95)
    assert (found.value, found.low, found.high) == (5.5, 2.0, 9.0)


def test_holm_is_the_textbook_one() -> None:
    """Holm's adjustment multiplies by the number of hypotheses left and never decreases."""
    assert statistics.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


@pytest.mark.parametrize(("old", "new"), [((), ()), ((1.0,), (1.0, 2.0)), ((0.0,), (1.0,)), ((1.0,), (-1.0,))], ids=str)
def test_impossible_samples_are_refused(old: tuple[float, ...], new: tuple[float, ...]) -> None:
    """Empty, unequal or non-positive samples are a mistake of the caller."""
    with pytest.raises(ValueError, match="positive"):
        compare([Samples(name="x", old=old, new=new)], Settings())
