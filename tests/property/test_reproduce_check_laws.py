"""`check` and `reproduce` give one answer about one environment, asked as options or told in a report."""

from hypothesis import given
from hypothesis import strategies as st
from laws import examples

from envbuilder.catalog.store import load
from envbuilder.compat.check import check
from envbuilder.compat.question import Question
from envbuilder.finding import Severity
from envbuilder.jobs.choose import check_with_image
from envbuilder.reproduce.analysis import analyse
from envbuilder.reproduce.causes import explains
from envbuilder.reproduce.question import Case

CATALOG = load()
RELEASES = [row for text in CATALOG.final_versions for row in CATALOG.distributions(text) if row.gpu and row.cuda]
TOOLKITS = [text for text in {row.cuda for row in RELEASES if row.cuda} if CATALOG.toolkit(text)]
questions = st.builds(
    lambda release, python, driver, gpu, cuda: Question(
        tensorflow=release.version,
        python=release.pythons[python % len(release.pythons)],
        driver=driver,
        gpus=(gpu,),
        cuda=cuda,
        install="system" if cuda else None,
    ),
    st.sampled_from(RELEASES),
    st.integers(0, 9),
    st.sampled_from([(branch.production or (branch.first,))[-1] for branch in CATALOG.drivers]),
    st.sampled_from([gpu.name for gpu in CATALOG.gpus if not (gpu.variants or gpu.arch)]),
    st.one_of(st.none(), st.sampled_from(sorted(TOOLKITS))),
)


def report_of(question: Question) -> str:
    return f"""TensorFlow does not detect the GPU

TensorFlow version: {question.tensorflow}
Python version: {question.python}
CUDA version: {question.cuda or ""}
GPU model: NVIDIA {question.gpus[0]}
NVIDIA driver version: {question.driver}

TensorFlow does not detect the GPU."""


@examples(32, times=5)
@given(questions)
def test_check_and_reproduce_agree(question: Question) -> None:
    document = analyse(report_of(question), CATALOG).document
    answer = check(question, CATALOG)
    wrong = {row.code for row in answer.findings if row.severity is Severity.ERROR}
    told = {row.code for row in document.predicted if row.severity is Severity.ERROR}
    assert {one for one in wrong if explains(one, Case(document.reported, document.symptoms, CATALOG))} <= told <= wrong
    assert set(document.diagnosis.codes) <= {row.code for row in answer.findings}
    assert document.diagnosis.codes or not told
    if document.nearest is not None:
        near = document.nearest.environment
        fields = ("tensorflow", "python", "cuda", "cudnn", "install", "driver")
        given_ = {name: getattr(near, name) for name in fields if name not in near.chosen}
        again = check_with_image(Question(**given_, gpus=question.gpus), CATALOG)
        assert again.compatible is not False
        assert (again.image.image if again.image else "") == document.nearest.image
