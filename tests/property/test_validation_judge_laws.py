"""Laws of the judge: worse results never lead to a better verdict, and nothing but success is PASSED."""

from random import Random
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from laws import no_better

from envbuilder.validation.judge import judge
from envbuilder.verdict import LEVELS, CheckResult, Outcome

OUTCOMES: tuple[Outcome, ...] = ("passed", "failed", "skipped", "error", "timeout")
RESULTS = st.lists(
    st.builds(
        CheckResult,
        name=st.sampled_from(["a", "b", "c"]),
        level=st.sampled_from(LEVELS),
        outcome=st.sampled_from(OUTCOMES),
    ),
    max_size=14,
).map(tuple)
HOSTS = st.fixed_dictionaries(
    {"flavor": st.sampled_from(["cpu", "gpu"]), "gpus": st.integers(0, 8), "simulated": st.booleans()}
)

Results = tuple[CheckResult, ...]
Host = dict[str, Any]


@given(RESULTS, HOSTS, st.data())
def test_pass_turned_into_anything_else_never_improves(results: Results, host: Host, data: st.DataObject) -> None:
    passed = [index for index, result in enumerate(results) if result.outcome == "passed"]
    if not passed:
        return
    index = data.draw(st.sampled_from(passed))
    outcome = data.draw(st.sampled_from(OUTCOMES[1:]))
    worse = (*results[:index], msgspec.structs.replace(results[index], outcome=outcome), *results[index + 1 :])
    assert no_better(judge(worse, **host), judge(results, **host))


@given(RESULTS, HOSTS)
def test_passed_means_that_every_required_check_passed(results: Results, host: Host) -> None:
    told = judge(results, **host)
    outcomes = {level: {result.outcome for result in results if result.level == level} for level in told.requires}
    complete = all(found == {"passed"} for found in outcomes.values())
    assert (told.verdict == "PASSED") == (complete and not host["simulated"])
    assert (told.verdict == "PASSED") == (not told.reasons)


@given(RESULTS, HOSTS)
def test_simulated_is_never_better(results: Results, host: Host) -> None:
    real, simulated = (judge(results, **{**host, "simulated": value}) for value in (False, True))
    assert simulated.verdict != "PASSED"
    assert simulated.level in ("none", "static", "load", "cpu")
    assert no_better(simulated, real)


@given(RESULTS, HOSTS, st.randoms())
def test_order_is_irrelevant(results: Results, host: Host, random: Random) -> None:
    shuffled = tuple(random.sample(results, len(results)))
    one, other = judge(results, **host), judge(shuffled, **host)
    assert (one.verdict, one.level) == (other.verdict, other.level)
