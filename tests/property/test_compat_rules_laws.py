"""Laws of the rules, over the real catalogue: order is irrelevant, sides are apart, newer drivers lose nothing."""

import itertools

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from laws import examples
from real_questions import CATALOG, DRIVERS, GPUS, VERSIONS, questions

from envbuilder import versions
from envbuilder.catalog.rows import DriverBranch
from envbuilder.compat.binding import bind
from envbuilder.compat.candidate import Candidate
from envbuilder.compat.check import check, findings_of
from envbuilder.compat.question import Question
from envbuilder.compat.rules import RULES, evaluate, ordered
from envbuilder.finding import Code, Severity, compatible


def candidate_of(question: Question) -> Candidate:
    found = bind(question, CATALOG).candidate
    assume(found is not None)
    assert found is not None
    return found


@examples(66)
@given(questions, st.randoms(use_true_random=False))
def test_findings_do_not_depend_on_order_and_each_rule_gives_only_its_own_codes(question: Question, random) -> None:
    candidate = candidate_of(question)
    asked = []
    for rule in random.sample(RULES, len(RULES)):
        for finding in rule.find(candidate, CATALOG):
            assert finding.code in rule.codes
            assert finding.message[0].isalnum()
            assert finding.message.endswith(".")
            assert finding.fix.endswith(".")
            assert finding.code is Code.UNKNOWN or (finding.requires and finding.found and finding.sources)
            asked.append(finding)
    judged = evaluate(candidate, CATALOG)
    named = tuple(
        finding for finding in judged if finding.code is Code.DRIVER_BRANCH
    )  # no rule: it asks them all again
    assert ordered((*asked, *named)) == judged
    assert len(named) <= candidate.branch_named
    other = msgspec.structs.replace(
        question,
        gpus=tuple(random.sample(question.gpus, len(question.gpus))),
        packages=tuple(random.sample(question.packages, len(question.packages))),
    )
    if not any(finding.code is Code.DRIVER_TOO_OLD for finding in findings_of(question, CATALOG)):  # it lists the GPUs
        assert set(findings_of(other, CATALOG)) == set(findings_of(question, CATALOG))


@examples(40)
@given(questions, st.sampled_from([row for row in CATALOG.drivers if row.production]))
def test_branch_alone_is_its_newest_production_release(question: Question, branch: DriverBranch) -> None:
    known = branch.production
    bare = findings_of(msgspec.structs.replace(question, driver=branch.branch), CATALOG)
    whole = [findings_of(msgspec.structs.replace(question, driver=release), CATALOG) for release in known]
    assert tuple(finding for finding in bare if finding.code is not Code.DRIVER_BRANCH) == whole[-1]
    worse = [compatible(found) is False and compatible(whole[-1]) is not False for found in whole]
    for finding in bare:
        if finding.code is Code.DRIVER_BRANCH:
            assert (finding.severity is Severity.WARNING) == any(worse)
            assert not any(worse) or finding.requires == f"driver {known[worse.index(False)]}"


@examples(66)
@given(questions)
def test_no_rule_reads_the_other_side(question: Question) -> None:
    whole = candidate_of(question)
    host = msgspec.structs.replace(
        whole, cuda=None, cudnn=None, toolkit=None, built=None, cudnn_row=None, driver=None, branch=None, devices=()
    )
    gpu = msgspec.structs.replace(whole, python=None, system=None, glibc=None, glibc_of="", avx=True, packages=())
    assert evaluate(host, CATALOG, ("python",)) == evaluate(whole, CATALOG, ("python",))
    assert evaluate(gpu, CATALOG, ("cuda",)) == evaluate(whole, CATALOG, ("cuda",))


@examples(66)
@given(questions)
def test_chosen_axes_are_those_that_were_not_given(question: Question) -> None:
    answer = check(question, CATALOG).environment
    for axis in ("python", "cuda", "cudnn"):
        given_, told = getattr(question, axis), getattr(answer, axis)
        assert given_ is None or told == given_
        assert (axis in answer.chosen) == (given_ is None and told is not None)


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.full)])
def test_newer_driver_loses_nothing_unless_its_branch_dropped_the_gpu(step: int) -> None:
    """Along the branches, yes turns to no only with a dropped GPU, for (a seventh of) all releases and capabilities.

    Forward compatibility is the exception that the vendor makes: it names branches, and newer ones are not among them.
    """
    for version, gpu in list(itertools.product(VERSIONS, GPUS))[::step]:
        worked = False
        for driver in sorted(DRIVERS, key=versions.key):
            document = check(Question(tensorflow=version, driver=driver, gpus=(gpu,)), CATALOG)
            codes = {finding.code for finding in document.findings}
            if document.compatible is True:
                worked = worked or Code.DRIVER_FORWARD_COMPAT not in codes
            elif worked:
                codes = {finding.code for finding in document.findings if finding.severity == "error"}
                assert codes == {Code.GPU_UNSUPPORTED_BY_DRIVER}, (version, gpu, driver, codes)
