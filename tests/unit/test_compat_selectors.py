"""Selectors: different keys are AND, values of one key OR; one that matches nothing is an error that helps."""

import pytest

from envbuilder.catalog.store import load
from envbuilder.compat.plan import plan
from envbuilder.compat.selectors import select
from envbuilder.errors import NothingSelectedError, UsageError
from envbuilder.matrix import Axes, Matrix

ALL = plan(
    Matrix(
        name="m", axes=Axes(tensorflow=("2.18.1", "2.19.1", "2.20.0"), os=("debian-bookworm",), flavor=("cpu", "gpu"))
    ),
    load(),
).environments


@pytest.mark.parametrize(
    ("selectors", "count"),
    [
        ((), 6),
        (("tensorflow=2.20",), 2),
        (("flavor=cpu", "tf2.20.0-*"), 1),
        (("tf2.20.0-*", "tf2.18*"), 4),
        (("tf2.20.0-*,tf2.18*",), 4),
        (("tensorflow=2.18.1", "tensorflow=2.20.0", "flavor=cpu"), 2),
        (("tensorflow=2.18.1,2.20.0,flavor=cpu",), 2),
        (("tensorflow>=2.19,<2.20,flavor=cpu",), 1),
        (("tensorflow>=2.19", "tensorflow<2.20"), 2),
        (("cuda=12.5",), 3),
        (("tensorflow=latest",), 2),
        (("tensorflow>2.18.1,<2.20",), 2),
        (("tensorflow=~=2.18.0", "tensorflow!=2.20.0"), 2),
        (("python=3.11", "os=debian-bookworm"), 6),
    ],
)
def test_keys_are_and_and_values_of_one_key_are_or(selectors, count) -> None:
    found = select(ALL, selectors)
    assert len(found) == count
    assert list(found) == [row for row in ALL if row in found]


@pytest.mark.parametrize("selector", ["tf2.21*", "tensorflow>2.20", "tensorflow=2.2", "python=3.1", "cuda=11.8"])
def test_selector_that_matches_nothing_names_near_misses(selector) -> None:
    with pytest.raises(NothingSelectedError) as caught:
        select(ALL, ("flavor=cpu", selector))
    assert caught.value.exit_code == 3
    assert "near misses" in caught.value.hint


@pytest.mark.parametrize(
    "selector",
    ["colour=red", "tensorflow=new", "python=3.11 3.12", "colour>3", "tensorflow>new", "flavor=cpu,colour=red"],
)
def test_selector_that_makes_no_sense_is_a_usage_error(selector) -> None:
    with pytest.raises(UsageError):
        select(ALL, (selector,))


def test_selectors_that_match_alone_and_not_together_say_so() -> None:
    with pytest.raises(NothingSelectedError) as caught:
        select(ALL, ("flavor=cpu", "cuda=12.5"))
    assert caught.value.hint == "alone: flavor=cpu: 3; cuda=12.5: 3"
