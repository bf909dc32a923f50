"""Laws of the judge: worse results never lead to a better verdict, and nothing but success is PASSED."""

from __future__ import annotations

from random import Random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from envbuilder.environment import Flavor
from envbuilder.validation.judge import judge
from envbuilder.verdict import LEVELS, CheckResult, Outcome

OUTCOMES: tuple[Outcome, ...] = ("passed", "failed", "skipped", "error", "timeout")
WORTH = {"FAILED": 0, "INCONCLUSIVE": 1, "PASSED": 2}
REACHED = ("none", *LEVELS)

RESULTS = st.lists(
    st.builds(
        CheckResult,
        name=st.sampled_from(["a", "b", "c"]),
        level=st.sampled_from(LEVELS),
        outcome=st.sampled_from(OUTCOMES),
    ),
    max_size=14,
).map(tuple)
FLAVORS: st.SearchStrategy[Flavor] = st.sampled_from(["cpu", "gpu"])
GPUS = st.integers(0, 8)


@given(RESULTS, FLAVORS, GPUS, st.booleans(), st.data())
def test_a_pass_turned_into_anything_else_never_improves(
    results: tuple[CheckResult, ...],
    flavor: Flavor,
    gpus: int,
    simulated: bool,  # noqa: FBT001
    data: st.DataObject,
) -> None:
    passed = [index for index, result in enumerate(results) if result.outcome == "passed"]
    if not passed:
        return
    index = data.draw(st.sampled_from(passed))
    outcome = data.draw(st.sampled_from(OUTCOMES[1:]))
    worse = (*results[:index], msgspec.structs.replace(results[index], outcome=outcome), *results[index + 1 :])
    before = judge(results, flavor=flavor, gpus=gpus, simulated=simulated)
    after = judge(worse, flavor=flavor, gpus=gpus, simulated=simulated)
    assert WORTH[after.verdict] <= WORTH[before.verdict]
    assert REACHED.index(after.level) <= REACHED.index(before.level)


@given(RESULTS, FLAVORS, GPUS, st.booleans())
def test_passed_means_that_every_required_check_passed(
    results: tuple[CheckResult, ...],
    flavor: Flavor,
    gpus: int,
    simulated: bool,  # noqa: FBT001
) -> None:
    told = judge(results, flavor=flavor, gpus=gpus, simulated=simulated)
    outcomes = {level: {result.outcome for result in results if result.level == level} for level in told.requires}
    complete = all(found == {"passed"} for found in outcomes.values())
    assert (told.verdict == "PASSED") == (complete and not simulated)
    assert (told.verdict == "PASSED") == (not told.reasons)


@given(RESULTS, FLAVORS, GPUS)
def test_simulated_is_never_better(results: tuple[CheckResult, ...], flavor: Flavor, gpus: int) -> None:
    real, simulated = (judge(results, flavor=flavor, gpus=gpus, simulated=value) for value in (False, True))
    assert simulated.verdict != "PASSED"
    assert simulated.level in ("none", "static", "load", "cpu")
    assert WORTH[simulated.verdict] <= WORTH[real.verdict]
    assert REACHED.index(simulated.level) <= REACHED.index(real.level)


@given(RESULTS, FLAVORS, GPUS, st.randoms())
def test_order_is_irrelevant(results: tuple[CheckResult, ...], flavor: Flavor, gpus: int, random: Random) -> None:
    shuffled = list(results)
    random.shuffle(shuffled)
    one, other = judge(results, flavor=flavor, gpus=gpus), judge(tuple(shuffled), flavor=flavor, gpus=gpus)
    assert (one.verdict, one.level) == (other.verdict, other.level)
