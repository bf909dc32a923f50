"""Laws of versions: no answer rests on how a version is spelled, or on the order of texts."""

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from laws import examples
from packaging.specifiers import SpecifierSet
from real_questions import questions

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.store import load
from envbuilder.choice import read_matrix
from envbuilder.compat.check import answer, check
from envbuilder.compat.plan import plan
from envbuilder.compat.question import Question
from envbuilder.support.templates import shipped

FIELDS = frozenset({"version", "cuda", "cudnn", "driver", "minimum_driver", "glibc", "python", "first", "last"}) | {
    "compute_capability", "first_capability", "last_capability", "pythons", "cubins", "ptx_isa", "releases",
}  # fmt: skip


class Told(str):
    """A version's text that refuses to be ordered, or to be held against another spelling of the same version."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        """Compare as texts do, but not two spellings of one version."""
        alike = str.__eq__(self, other)
        if not alike and isinstance(other, str) and versions.same(str(self), str(other)):
            raise AssertionError(f"{self} is held against {other} as a text")
        return alike is True

    __hash__ = str.__hash__

    def __lt__(self, other: object) -> bool:
        raise AssertionError(f"{self} is ordered as a text")

    __gt__ = __le__ = __ge__ = __lt__


def told(value: Any) -> Any:
    """Copy a part of the catalogue with every version in it told."""
    if isinstance(value, tuple):
        return tuple(map(told, value))
    if not isinstance(value, msgspec.Struct):
        return value
    fields = {name: getattr(value, name) for name in value.__struct_fields__}
    return type(value)(**{name: _told(one) if name in FIELDS else told(one) for name, one in fields.items()})


def _told(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_told, value))
    return Told(value) if type(value) is str else told(value)


CATALOG = load()
TOLD: Catalog = told(CATALOG)


def test_watched_texts_refuse_to_be_compared() -> None:
    assert Told("12.5") == "12.5"
    assert Told("12.5") != "12.6"
    assert isinstance(TOLD.tensorflow[0].version, Told)
    for wrong in (lambda: Told("9.1") < "9.10", lambda: Told("12.5") == "12.5.0", lambda: min("9", Told("12"))):
        with pytest.raises(AssertionError, match="as a text"):
            wrong()


@examples(40)
@given(questions)
def test_no_answer_rests_on_a_versions_text(question: Question) -> None:
    assert check(question, TOLD) == check(question, CATALOG)


@examples(2, times=4)  # a search asks thousands of questions
@given(questions)
def test_no_nearest_rests_on_a_versions_text(question: Question) -> None:
    assert answer(question, TOLD) == answer(question, CATALOG)


@pytest.mark.parametrize("name", ["quickstart", "tensorflow", "negative-controls"])
def test_no_plan_rests_on_a_versions_text(name: str) -> None:
    matrix = read_matrix(shipped("matrices") / f"{name}.yaml")
    assert plan(matrix, TOLD) == plan(matrix, CATALOG)


release_texts = st.sampled_from([version for version in load().final_versions if versions.at_least(version, "2.8")])
bounds = st.one_of(
    st.builds("{}{}".format, st.sampled_from(["<", "<=", ">", ">=", "==", "!=", "~="]), release_texts),
    st.builds(lambda text: f"~={versions.minor(text)}", release_texts),
    st.builds(
        lambda operator, text: f"{operator}{versions.minor(text)}.*", st.sampled_from(["==", "!="]), release_texts
    ),
)


@examples(200)
@example([">2.15.0"], ",")
@given(st.lists(bounds, min_size=1, max_size=4), st.sampled_from([",", ", "]))
def test_range_admits_what_packaging_admits(parts: list[str], comma: str) -> None:
    text = comma.join(parts)
    read = versions.bounds(text)
    assert read is not None
    oracle = SpecifierSet(text)
    admitted = [version for version in load().final_versions if versions.admits(read, version)]
    assert admitted == [version for version in load().final_versions if oracle.contains(version)]
    assert load().version(text) == (admitted[-1] if admitted else None)
    assert list(load().candidates(text)) == admitted[::-1]


@pytest.mark.parametrize(
    "text", ["2.20", "2.20.0", "", "newest", ">=", "~=2", "2.20,<2.21", ">=2.20,", ">2 <3", "=2.20", "latest,<3"]
)
def test_text_that_is_not_a_range_has_no_bounds(text: str) -> None:
    assert versions.bounds(text) is None
    assert versions.bounds("latest") == ()
