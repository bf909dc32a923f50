"""Resolve: what is chosen, what is kept as reported, how things are named, and what a plan says."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from frozen_catalog import up_to

from envbuilder.catalog.store import load
from envbuilder.compat.check_text import change_text
from envbuilder.compat.plan import plan
from envbuilder.compat.resolve import resolve
from envbuilder.environment import Combination, Environment, Rejection, Variant
from envbuilder.finding import Code, Severity
from envbuilder.matrix import Axes, Include, Matrix, Targets

CATALOG = load()


def environment(*, as_reported: bool = False, targets: Targets | None = None, **wish) -> Environment:
    """Resolve a wish that is expected to resolve."""
    result = resolve(Combination(**wish), CATALOG, targets or Targets(), as_reported=as_reported)
    assert isinstance(result, Environment), result
    return result


def rejection(targets: Targets | None = None, **wish) -> Rejection:
    """Resolve a wish that is expected to be rejected."""
    result = resolve(Combination(**wish), CATALOG, targets or Targets())
    assert isinstance(result, Rejection), result
    return result


@pytest.mark.parametrize(
    ("wish", "name"),
    [
        ({"tensorflow": "2.20.0", "os": "debian-bookworm"}, "tf2.20.0-py311-cpu-bookworm"),
        (
            {"tensorflow": "2.18.1", "os": "debian-bookworm", "flavor": "gpu"},
            "tf2.18.1-py311-cu12.5-cudnn9.3-bookworm",
        ),
        ({"tensorflow": "2.18", "os": "debian-bookworm"}, "tf2.18.1-py311-cpu-bookworm"),
        ({"tensorflow": "2.17.1", "python": "3.10", "os": "python-3.10"}, "tf2.17.1-py310-cpu-bookworm"),
        (
            {"tensorflow": "2.20.0", "os": "debian-bookworm", "packages": ("numpy==2.0.0",)},
            "tf2.20.0-py311-cpu-bookworm-numpy2.0.0",
        ),
        (
            {"tensorflow": "2.20.0", "os": "debian-bookworm", "package": "tensorflow"},
            "tf2.20.0-py311-cpu-bookworm-tensorflow",
        ),
    ],
)
def test_ids_are_readable(wish, name) -> None:
    assert environment(**wish).id == name


def test_an_environment_names_what_the_loader_has_to_be_told_of() -> None:
    made = {
        version: environment(tensorflow=version, os=os, flavor="gpu")
        for version, os in (("2.13.1", "debian-bookworm"), ("2.20.0", "debian-bookworm"), ("2.21.0", "debian-bookworm"))
    }
    assert {version: one.loader_folders for version, one in made.items()} == {
        "2.13.1": ("*",),
        "2.20.0": (),
        "2.21.0": ("cusolver",),
    }
    assert environment(tensorflow="2.13.1", os="debian-bookworm").loader_folders == ()
    assert made["2.21.0"].id == "tf2.21.0-py311-cu12.5-cudnn9.3-bookworm"


def test_ids_tell_combinations_apart_and_are_valid_tags() -> None:
    wishes: list[dict[str, Any]] = [
        {"packages": ("numpy==2.0.0",)},
        {"packages": ("numpy>=2,<3",)},
        {"packages": ("numpy>=2,<4",)},
        {"controls": ("broken",)},
        {"package": "tensorflow"},
        {"packages": tuple(f"package{number}==1.0.{number}" for number in range(30))},
        {},
    ]
    names = [environment(tensorflow="2.20.0", os="debian-bookworm", **wish).id for wish in wishes]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", name) for name in names)


def test_a_cpu_image_takes_the_small_distribution_where_it_has_a_wheel() -> None:
    assert environment(tensorflow="2.20.0").requirements == ("tensorflow-cpu==2.20.0",)
    without = msgspec.structs.replace(
        CATALOG, tensorflow=tuple(row for row in CATALOG.tensorflow if row.package != "tensorflow-cpu")
    )
    result = resolve(Combination(tensorflow="2.20.0"), without)
    assert isinstance(result, Environment)
    assert result.requirements == ("tensorflow==2.20.0",)


def test_a_gpu_environment_pins_what_the_build_was_made_with() -> None:
    found = environment(tensorflow="2.18.1", flavor="gpu")
    assert (found.cuda, found.minimum_driver) == ("12.5", "525.60.13")
    assert "nvidia-cudnn-cu12==9.3.0.75" in found.cuda_wheels
    assert all("==" in text for text in found.cuda_wheels)
    assert "libcudart.so.12" in found.libraries
    assert "9.0" in found.cubins


def test_a_release_before_the_wheels_borrows_a_set_that_it_can_load() -> None:
    assert environment(tensorflow="2.10.1", flavor="gpu").cuda == "11.8"
    refused = rejection(tensorflow="2.4.1", flavor="gpu")
    assert refused.findings[0].code is Code.CUDA_MISMATCH
    assert "libcusolver.so.10" in refused.sentence


def test_another_cudnn_is_tried_before_rejecting() -> None:
    rows = tuple(
        msgspec.structs.replace(
            row,
            cuda_wheels=tuple(re.sub(r"^(nvidia-cudnn-cu12)==.*", r"\1==9.11.0.98", text) for text in row.cuda_wheels),
        )
        for row in CATALOG.tensorflow
    )
    newer = msgspec.structs.replace(CATALOG, tensorflow=rows)
    volta = Targets(drivers=("580.65.06",), gpus=("V100",))
    wish = Combination(tensorflow="2.18.1", flavor="gpu")
    turing = resolve(wish, newer, Targets(drivers=("580.65.06",), gpus=("T4",)))
    older = resolve(wish, newer, volta)
    assert isinstance(turing, Environment)
    assert isinstance(older, Environment)
    assert turing.cudnn == "9.11.0.98"
    assert older.cudnn is not None
    assert older.cudnn.startswith("9.10.")
    assert isinstance(resolve(msgspec.structs.replace(wish, cudnn="9.11"), newer, volta), Rejection)


def test_targets_reject_what_they_cannot_run() -> None:
    """Managed images hold no forward-compatibility package to lift it."""
    refused = rejection(Targets(drivers=("470.57.02",), gpus=("A100",)), tensorflow="2.18.1", flavor="gpu")
    assert [finding.code for finding in refused.findings if finding.severity is Severity.ERROR] == [Code.DRIVER_TOO_OLD]


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        ({"tensorflow": "2.18.1", "flavor": "gpu", "cudnn": "9.1"}, Code.CUDNN_MISMATCH),
        ({"tensorflow": "2.15.1", "packages": ("numpy==2.0.0",)}, Code.NUMPY_ABI),
        ({"tensorflow": "2.4.1", "flavor": "gpu", "cuda": "11.2"}, Code.CUDA_MISMATCH),
    ],
)
def test_a_reported_mismatch_is_built_and_kept_as_a_finding(wish, code) -> None:
    assert code in {finding.code for finding in rejection(**wish).findings}
    for found in (environment(as_reported=True, **wish), environment(controls=("on-purpose",), **wish)):
        assert code in {finding.code for finding in found.findings if finding.severity is Severity.ERROR}


def test_what_cannot_be_installed_is_rejected_even_as_reported() -> None:
    assert isinstance(resolve(Combination(tensorflow="2.20.0", python="3.7"), CATALOG, as_reported=True), Rejection)
    assert isinstance(resolve(Combination(tensorflow="9.9.9"), CATALOG, as_reported=True), Rejection)


def test_a_plan_names_the_nearest_and_each_environment_once() -> None:
    matrix = Matrix(
        name="m",
        axes=Axes(tensorflow=("2.20.0",), python=("3.8", "3.11"), os=()),
        include=(Include(tensorflow="2.20", python="3.11"),),
    )
    found = plan(matrix, up_to())
    assert [row.id for row in found.environments] == ["tf2.20.0-py311-cpu-bookworm"]
    (refused,) = found.rejections
    assert "no wheel for Python 3.8" in refused.sentence
    assert refused.nearest is not None
    (change,) = refused.changes
    assert (change.field, change.old, change.new) == ("python", "3.8", refused.nearest.python)
    assert change_text(change).startswith("python 3.8 → 3.")
    assert refused.predicate == "buildable"


@pytest.mark.parametrize(("variant", "is_accepted"), [("devel", True), ("runtime", False)])
def test_the_form_runtime_is_refused_below_python_3_7(variant: Variant, *, is_accepted: bool) -> None:
    """What derives it runs in the image, from 3.7 on: an older one is a rejection, not a build that fails."""
    wish = Combination(tensorflow="2.6.2", python="3.6", variant=variant)
    found = resolve(wish, CATALOG, Targets())
    assert isinstance(found, Environment) is is_accepted, found
    if isinstance(found, Rejection):
        assert found.findings[0].code is Code.PYTHON_UNSUPPORTED
        assert "variant runtime" in found.sentence
    newer = resolve(Combination(tensorflow="2.6.2", python="3.7", variant=variant), CATALOG, Targets())
    assert isinstance(newer, Environment), newer
