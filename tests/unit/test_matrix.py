"""A matrix: every combination once, in order, exclusions with their reason; and selectors of its environments."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_rows import rows

from envbuilder.catalog.store import load
from envbuilder.choice import read_matrix
from envbuilder.cli.schema_command import schema
from envbuilder.compat.plan import plan
from envbuilder.compat.selectors import select
from envbuilder.errors import InputError, NothingSelectedError, UsageError
from envbuilder.matrix import Axes, Exclude, Include, Matrix, expand

AXES = Axes(tensorflow=("2.19.1", "2.20.0"), os=("debian-bookworm", "debian-trixie"), flavor=("cpu", "gpu"))
MATRIX = Matrix(name="m", axes=AXES)
RULES = st.builds(
    Exclude,
    reason=st.just("not wanted"),
    tensorflow=st.sampled_from([None, "2.19.1", "2.20.0", "9.9"]),
    os=st.sampled_from([None, "debian-trixie"]),
    flavor=st.sampled_from([None, "cpu", "gpu"]),
)


def test_product_comes_in_the_order_of_the_axes() -> None:
    wanted, left_out = expand(MATRIX)
    assert [(c.tensorflow, c.os, c.flavor) for c in wanted[:3]] == [
        ("2.19.1", "debian-bookworm", "cpu"),
        ("2.19.1", "debian-bookworm", "gpu"),
        ("2.19.1", "debian-trixie", "cpu"),
    ]
    assert len(wanted) == 8
    assert left_out == ()


@given(st.lists(RULES, max_size=4))
def test_exclude_never_adds_a_combination(rules: list[Exclude]) -> None:
    every = set(expand(MATRIX)[0])
    wanted, left_out = expand(Matrix(name="m", axes=AXES, exclude=tuple(rules)))
    assert set(wanted) <= every
    assert set(wanted) | {row.combination for row in left_out} == every


@given(st.permutations(AXES.tensorflow), st.permutations(AXES.os))
def test_order_of_values_is_irrelevant(releases: list[str], systems: list[str]) -> None:
    axes = Axes(tensorflow=tuple(releases), os=tuple(systems), flavor=("gpu", "cpu"))
    assert set(expand(Matrix(name="m", axes=axes))[0]) == set(expand(MATRIX)[0])


def test_empty_exclude_rule_excludes_nothing() -> None:
    assert expand(Matrix(name="m", axes=AXES, exclude=(Exclude(reason="typo"),)))[0] == expand(MATRIX)[0]


def test_included_rows_are_added_once() -> None:
    rows = (
        Include(tensorflow="2.20.0", os="debian-bookworm"),
        Include(tensorflow="2.15.1", packages=("numpy==2.0.0",)),
    )
    wanted, _ = expand(Matrix(name="m", axes=AXES, include=rows))
    assert len(wanted) == 9
    assert wanted[-1].packages == ("numpy==2.0.0",)


@rows
def test_axes_are_multiplied(axes: dict[str, Any], combinations: list[str]) -> None:
    wanted, _ = expand(Matrix(name="m", axes=Axes(tensorflow=("2.20.0",), flavor=("cpu", "gpu"), **axes)))
    assert [f"{one.flavor} {one.variant} {one.cuda}" for one in wanted] == combinations


def test_variant_is_excluded() -> None:
    axes = Axes(tensorflow=("2.20.0",), variant=("devel", "runtime"))
    rule = Exclude(reason="not wanted", variant="devel")
    assert [one.variant for one in expand(Matrix(name="m", axes=axes, exclude=(rule,)))[0]] == ["runtime"]


def test_form_is_another_name_of_the_key_variant(tmp_path: Path) -> None:
    text = "name: m\naxes:\n  tensorflow: ['2.20.0']\n  KEY: [runtime]\n"
    matrices = []
    for key in ("form", "variant"):
        (tmp_path / "m.yaml").write_text(text.replace("KEY", key))
        matrices.append(read_matrix(tmp_path / "m.yaml"))
    assert matrices[0] == matrices[1]
    assert {"form", "variant"} <= schema("matrix")["$defs"]["Axes"]["properties"].keys()
    (tmp_path / "m.yaml").write_text(text.replace("KEY", "form") + "  variant: [devel]\n")
    with pytest.raises(InputError, match="the same key as variant"):
        read_matrix(tmp_path / "m.yaml")


ALL = plan(
    Matrix(
        name="m", axes=Axes(tensorflow=("2.18.1", "2.19.1", "2.20.0"), os=("debian-bookworm",), flavor=("cpu", "gpu"))
    ),
    load(),
).environments


@rows
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


@rows
def test_selector_that_makes_no_sense_is_a_usage_error(selector) -> None:
    with pytest.raises(UsageError):
        select(ALL, (selector,))


def test_selectors_that_match_alone_and_not_together_say_so() -> None:
    with pytest.raises(NothingSelectedError) as caught:
        select(ALL, ("flavor=cpu", "cuda=12.5"))
    assert caught.value.hint == "alone: flavor=cpu: 3; cuda=12.5: 3"
