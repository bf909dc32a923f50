"""Laws of the upgrade statistics."""

import math

from hypothesis import given
from hypothesis import strategies as st

from envbuilder.upgrade.statistics import Samples, Settings, blocks, compare, holm

durations = st.floats(min_value=1e-3, max_value=1e3)
OPPOSITE = {"slower": "faster", "faster": "slower", "same": "same", "unclear": "unclear"}


@st.composite
def paired(draw: st.DrawFn) -> Samples:
    """Draw one duration with one to sixteen rounds."""
    rounds = draw(st.integers(1, 16))
    side = st.lists(durations, min_size=rounds, max_size=rounds).map(tuple)
    return Samples(name="x", old=draw(side), new=draw(side))


@given(paired())
def test_swapped_images_give_the_opposite_answer(samples: Samples) -> None:
    (there,) = compare([samples], Settings())
    (back,) = compare([Samples(name="x", old=samples.new, new=samples.old)], Settings())
    assert back.change == OPPOSITE[there.change]
    assert math.isclose(there.p, back.p)
    assert math.isclose(there.ratio.value * back.ratio.value, 1, rel_tol=1e-9)


@given(paired(), st.integers(-8, 8))
def test_unit_of_samples_does_not_change_the_answer(samples: Samples, power: int) -> None:
    scale = 2.0**power
    scaled = Samples(name="x", old=tuple(scale * x for x in samples.old), new=tuple(scale * x for x in samples.new))
    (one,), (other,) = compare([samples], Settings()), compare([scaled], Settings())
    assert (one.change, one.p) == (other.change, other.p)
    assert math.isclose(one.ratio.value, other.ratio.value, rel_tol=1e-9)


@given(paired(), st.floats(min_value=1.01, max_value=10))
def test_slowing_the_new_image_keeps_the_answer_slower(samples: Samples, factor: float) -> None:
    slowed = Samples(name="x", old=samples.old, new=tuple(factor * x for x in samples.new))
    if compare([samples], Settings())[0].change == "slower":
        assert compare([slowed], Settings())[0].change == "slower"


@given(st.lists(paired(), min_size=1, max_size=6))
def test_more_durations_never_add_a_claim(samples: list[Samples]) -> None:
    for together, alone in zip(compare(samples, Settings()), samples, strict=True):
        if together.change in ("slower", "faster"):
            assert compare([alone], Settings())[0].change == together.change


@given(paired())
def test_intervals_contain_their_estimates(samples: Samples) -> None:
    (answer,) = compare([samples], Settings())
    for interval in (answer.ratio, answer.old_s, answer.new_s):
        if interval.low is not None and interval.high is not None:
            assert interval.low <= interval.value <= interval.high


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_never_lowers_p_values_and_keeps_their_order(p: list[float]) -> None:
    adjusted = holm(p)
    assert all(x <= y <= 1 for x, y in zip(p, adjusted, strict=True))
    assert [y for _, y in sorted(zip(p, adjusted, strict=True))] == sorted(adjusted)


@given(st.integers(1, 200))
def test_blocks_contain_every_round_and_differ_by_at_most_one(rounds: int) -> None:
    sizes = blocks(rounds)
    assert sum(sizes) == rounds
    assert max(sizes) - min(sizes) <= 1
