"""Laws of the rules, over the real catalogue: order is irrelevant, sides are apart, newer drivers lose nothing."""

from __future__ import annotations

import itertools

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from envbuilder import versions
from envbuilder.catalog.store import load
from envbuilder.compat.check import check, findings_of
from envbuilder.compat.nearest import nearest
from envbuilder.compat.question import Candidate, Question
from envbuilder.compat.rules import RULES, judge, ordered
from envbuilder.compat.settle import settle
from envbuilder.finding import Code, compatible

CATALOG = load()

VERSIONS = [row.version for row in CATALOG.tensorflow if row.package == "tensorflow"]
DRIVERS = [row.releases[-1] if row.releases else row.first for row in CATALOG.drivers]
GPUS = list({row.compute_capability: row.name for row in CATALOG.gpus}.values())

questions = st.builds(
    Question,
    tensorflow=st.sampled_from(VERSIONS),
    package=st.sampled_from((None, None, "tensorflow-gpu", "tensorflow-cpu")),
    python=st.sampled_from((None, "2.7", "3.6", "3.8", "3.9", "3.11", "3.13")),
    cuda=st.sampled_from((None, None, "10.1", "11.2", "11.8", "12.3", "12.5", "12.9", "13.0")),
    cudnn=st.sampled_from((None, None, "7", "7.6.5", "8.1", "8.9.7", "9.1.0", "9.3", "9.11.0", "9.99")),
    driver=st.sampled_from((None, *DRIVERS, "999.1")),
    gpus=st.lists(st.sampled_from((*GPUS, "Voodoo 2")), max_size=3, unique=True).map(tuple),
    capabilities=st.sampled_from(((), (), ("8.6",), ("15.0",))),
    install=st.sampled_from((None, None, "and-cuda", "plain", "system")),
    base_image=st.sampled_from((None, None, *(row.name for row in CATALOG.images[::9]))),
    os=st.sampled_from((None, "debian-bullseye", "debian-trixie", "beos")),
    arch=st.sampled_from(("x86_64", "x86_64", "aarch64")),
    packages=st.lists(
        st.sampled_from(("numpy==2.0.0", "numpy==1.23.5", "protobuf==7.0.0", "keras==2.15.0", "h5py==3.15.0")),
        max_size=2,
        unique=True,
    ).map(tuple),
    avx=st.sampled_from((True, True, False)),
    as_of=st.sampled_from((None, "2020-01-01", "2026-11-20")),
)


def candidate_of(question: Question) -> Candidate:
    """Settle a question that is known to have a release."""
    found = settle(question, CATALOG).candidate
    assert found is not None
    return found


@settings(max_examples=200, deadline=None)
@given(questions, st.randoms(use_true_random=False))
def test_findings_do_not_depend_on_order(question: Question, random) -> None:
    """Rules asked in another order, GPUs and packages named in another order: the same findings in the same order."""
    if settle(question, CATALOG).candidate is None:
        return
    candidate = candidate_of(question)
    rules = random.sample(RULES, len(RULES))
    assert ordered(finding for rule in rules for finding in rule.find(candidate, CATALOG)) == judge(candidate, CATALOG)
    other = msgspec.structs.replace(
        question,
        gpus=tuple(random.sample(question.gpus, len(question.gpus))),
        packages=tuple(random.sample(question.packages, len(question.packages))),
    )
    if not any(finding.code is Code.DRIVER_TOO_OLD for finding in findings_of(question, CATALOG)):  # it lists the GPUs
        assert set(findings_of(other, CATALOG)) == set(findings_of(question, CATALOG))


@settings(max_examples=200, deadline=None)
@given(questions)
def test_no_rule_reads_the_other_side(question: Question) -> None:
    """A rule finds the same when the fields of the other side are empty: that is why the sides are judged apart."""
    if settle(question, CATALOG).candidate is None:
        return
    whole = candidate_of(question)
    host = msgspec.structs.replace(
        whole, cuda=None, cudnn=None, toolkit=None, built=None, cudnn_row=None, driver=None, branch=None, devices=()
    )
    gpu = msgspec.structs.replace(whole, python=None, system=None, glibc=None, glibc_of="", avx=True, packages=())
    assert judge(host, CATALOG, ("host",)) == judge(whole, CATALOG, ("host",))
    assert judge(gpu, CATALOG, ("gpu",)) == judge(whole, CATALOG, ("gpu",))


@settings(max_examples=200, deadline=None)
@given(questions)
def test_each_rule_gives_only_its_own_codes(question: Question) -> None:
    """The table says which codes a rule may give; every finding can be followed and is written in sentences."""
    if settle(question, CATALOG).candidate is None:
        return
    candidate = candidate_of(question)
    for rule in RULES:
        for finding in rule.find(candidate, CATALOG):
            assert finding.code in rule.codes
            assert finding.message[0].isalnum()
            assert finding.message.endswith(".")
            assert finding.fix.endswith(".")
            assert finding.code is Code.UNKNOWN or (finding.requires and finding.found and finding.sources)


@settings(max_examples=200, deadline=None)
@given(questions)
def test_what_is_chosen_is_exactly_what_was_not_given(question: Question) -> None:
    """What the user gave stays as given; what an answer adds is named in ``chosen``."""
    answer = check(question, CATALOG).environment
    for axis in ("python", "cuda", "cudnn"):
        given_, told = getattr(question, axis), getattr(answer, axis)
        assert given_ is None or told == given_
        assert (axis in answer.chosen) == (given_ is None and told is not None)


@settings(max_examples=40, deadline=None)
@given(questions)
def test_the_nearest_works_and_keeps_the_host(question: Question) -> None:
    """What is offered instead is compatible, on the same driver, GPUs, system and machine; else nothing near is."""
    near = nearest(question, CATALOG)
    if near is None:
        return
    found, changed = near
    assert compatible(findings_of(found, CATALOG)) is True
    kept = ("driver", "gpus", "capabilities", "os", "arch", "avx")
    assert all(getattr(found, name) == getattr(question, name) for name in kept)
    assert bool(changed) == (compatible(findings_of(question, CATALOG)) is not True)


def test_a_newer_driver_loses_nothing_unless_its_branch_dropped_the_gpu() -> None:
    """Over every release and compute capability: along the branches, yes turns to no only with a dropped GPU.

    Forward compatibility is the exception that the vendor makes: it names branches, and newer ones are not among them.
    """
    for version, gpu in itertools.product(VERSIONS, GPUS):
        worked = False
        for driver in sorted(DRIVERS, key=versions.key):
            document = check(Question(tensorflow=version, driver=driver, gpus=(gpu,)), CATALOG)
            codes = {finding.code for finding in document.findings}
            if document.compatible is True:
                worked = worked or Code.DRIVER_FORWARD_COMPAT not in codes
            elif worked:
                codes = {finding.code for finding in document.findings if finding.severity == "error"}
                assert codes == {Code.GPU_UNSUPPORTED_BY_DRIVER}, (version, gpu, driver, codes)


def test_more_of_a_gpu_stack_never_turns_an_error_into_a_claim() -> None:
    """A combination with an error stays incompatible when something unknown is added to it."""
    base = Question(tensorflow="2.20.0", python="3.8")
    assert check(base, CATALOG).compatible is False
    assert check(msgspec.structs.replace(base, gpus=("Voodoo 2",)), CATALOG).compatible is False
