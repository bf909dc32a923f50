"""Resolve: what is chosen, what is kept as reported, and how things are named."""

import re
from typing import Any

import msgspec
import pytest
from factories import resolved

from envbuilder.catalog.store import load
from envbuilder.compat.resolve import resolve
from envbuilder.environment import Combination, Environment, Rejection
from envbuilder.finding import Code, Severity

CATALOG = load()


@pytest.mark.parametrize(
    ("version", "flavor", "folders"),
    [("2.13.1", "gpu", ("*",)), ("2.20.0", "gpu", ()), ("2.21.0", "gpu", ("cusolver",)), ("2.13.1", "cpu", ())],
)
def test_environment_names_folders_for_the_loader(version: str, flavor: str, folders: tuple[str, ...]) -> None:
    assert resolved(tensorflow=version, flavor=flavor).loader_folders == folders


def test_ids_tell_combinations_apart_and_are_valid_tags() -> None:
    combinations: list[dict[str, Any]] = [
        {"packages": ("numpy==2.0.0",)},
        {"packages": ("numpy>=2,<3",)},
        {"packages": ("numpy>=2,<4",)},
        {"controls": ("broken",)},
        {"package": "tensorflow"},
        {"packages": tuple(f"package{number}==1.0.{number}" for number in range(30))},
        {},
    ]
    names = [resolved(**combination).id for combination in combinations]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", name) for name in names)


def test_cpu_image_takes_the_small_distribution_where_it_has_a_wheel() -> None:
    assert resolved(os=None).requirements == ("tensorflow-cpu==2.20.0",)
    without = msgspec.structs.replace(
        CATALOG, tensorflow=tuple(row for row in CATALOG.tensorflow if row.package != "tensorflow-cpu")
    )
    result = resolve(Combination(tensorflow="2.20.0"), without)
    assert isinstance(result, Environment)
    assert result.requirements == ("tensorflow==2.20.0",)


@pytest.mark.parametrize(
    ("combination", "code"),
    [
        ({"tensorflow": "2.18.1", "flavor": "gpu", "cudnn": "9.1"}, Code.CUDNN_MISMATCH),
        ({"tensorflow": "2.15.1", "packages": ("numpy==2.0.0",)}, Code.NUMPY_ABI),
        ({"tensorflow": "2.18.1", "flavor": "gpu", "cuda": "11.8"}, Code.CUDA_MISMATCH),
    ],
)
def test_reported_mismatch_is_built_and_kept_as_a_finding(combination: dict[str, Any], code: Code) -> None:
    asked = Combination(**combination)
    assert isinstance(resolve(asked, CATALOG), Rejection)
    reported = resolve(asked, CATALOG, as_reported=True)
    control = resolve(msgspec.structs.replace(asked, controls=("on-purpose",)), CATALOG)
    for found in (reported, control):
        assert isinstance(found, Environment)
        assert code in {finding.code for finding in found.findings if finding.severity is Severity.ERROR}


def test_environment_that_cannot_be_installed_is_rejected_even_as_reported() -> None:
    assert isinstance(resolve(Combination(tensorflow="2.20.0", python="3.7"), CATALOG, as_reported=True), Rejection)
    assert isinstance(resolve(Combination(tensorflow="9.9.9"), CATALOG, as_reported=True), Rejection)
