"""Differences between two images: packages, interfaces, outcomes, numerics, hosts, layers."""

import base64
import re
import zlib
from array import array
from typing import Any
from unittest.mock import MagicMock

import msgspec
import pytest
from factories import check
from msgspec.structs import replace
from table_rows import rows
from upgrades import side

from envbuilder.catalog import store
from envbuilder.compat.fleet import FleetHost
from envbuilder.probes.upgrade import numerics as probe
from envbuilder.upgrade import compare, surface
from envbuilder.upgrade.document import (
    Inventory,
    Numerics,
    Observations,
    Operation,
    Package,
    Parameter,
    Precision,
    PublicName,
    SignatureChange,
    SizedLayer,
    Surface,
    UserTest,
    WarningLines,
)
from envbuilder.workspace import packaged_yaml


def test_packages_are_listed_as_added_removed_or_changed() -> None:
    same, numpy = Package(name="six", version="1.16", licence="MIT"), Package(name="numpy", version="1.26.4")
    relicensed = Package(name="x", version="1", licence="MIT")
    old = Inventory(packages=(same, numpy, Package(name="gone", version="1"), relicensed))
    new = Inventory(
        packages=(
            *(same, replace(numpy, version="2.1.0"), Package(name="rich", version="2")),
            replace(relicensed, licence="GPL-3.0"),
        )
    )
    found = {row.name: row for row in compare.packages(old, new)}
    assert {name: (row.change, row.old, row.new) for name, row in found.items()} == {
        "gone": ("removed", "1", None),
        "numpy": ("changed", "1.26.4", "2.1.0"),
        "rich": ("added", None, "2"),
        "x": ("changed", "1", "1"),
    }
    assert (found["x"].old_licence, found["x"].new_licence) == ("MIT", "GPL-3.0")


def test_platform_contains_cuda_and_minimum_driver() -> None:
    old, new = (
        Inventory(build={"cuda_version": cuda}, packages=(Package(name="nvidia-nccl-cu12", version=nccl),))
        for cuda, nccl in (("12.2", "2.16.5"), ("12.5.1", "2.23.4"))
    )
    both = (("2.15.1", old), ("2.18.1", new))
    one, other = (compare.ImageEvidence(side(name, flavor="gpu"), Observations(inventory=has)) for name, has in both)
    found = compare.platform(one, other)
    rows = {row.name: (row.old, row.new) for row in found}
    assert rows["CUDA built with"] == ("12.2", "12.5.1")
    assert rows["NCCL"] == ("2.16.5", "2.23.4")
    assert rows["minimum driver"][0] is not None
    assert "Keras" not in rows, "a fact that neither image has is left out"


def test_layers_are_matched_by_instruction() -> None:
    before = (("RUN a", 10), ("RUN b", 5), ("RUN a", 7)), (("RUN a", 12), ("COPY c", 1), ("RUN a", 8))
    layers = [tuple(SizedLayer(created_by=name, size=size) for name, size in each) for each in before]
    old, new = (side("2.15.1", layers=each) for each in layers)
    found = {(row.created_by, row.old, row.new) for row in compare.layers(old, new)}
    assert found == {("RUN a", 10, 12), ("RUN a", 7, 8), ("COPY c", None, 1), ("RUN b", 5, None)}


def parameters(text: str) -> tuple[Parameter, ...]:
    """Write parameters as ``kind:name=default``, apart by spaces."""
    found = [re.fullmatch(r"(\w):(\w+)(?:=(.*))?", word) for word in text.split()]
    return msgspec.convert([one.groups() for one in found if one is not None], tuple[Parameter, ...])


def names(**paths: str) -> Surface:
    """Write a surface as path=kind or path=signature; ``__`` stands for a dot."""
    found = {}
    for path, text in paths.items():
        kind = text if text in ("module", "class", "value") else "function"
        found[path.replace("__", ".")] = PublicName(kind, None if kind != "function" else parameters(text))
    return Surface(names=found)


def test_removed_module_is_listed_once() -> None:
    old = names(keep="module", estimator="module", estimator__Run="class", estimator__Run__go="a:self", keep__f="a:x")
    found = surface.compare_surfaces(old, names(keep="module"))
    assert found.removed == ("estimator", "keep.f")
    assert not found.removed_members


def test_newly_deprecated_names_are_listed() -> None:
    plain, marked = PublicName("function", None), PublicName("function", None, deprecated=True)
    old = Surface(names={"f": plain, "g": marked, "h": marked})
    new = Surface(names={"f": marked, "g": marked, "h": plain, "i": marked})
    assert surface.compare_surfaces(old, new).newly_deprecated == ("f",)


def test_removed_members_are_grouped_by_name() -> None:
    old = names(A="class", B="class", A__updates="a:self", B__updates="a:self", A__x="a:self")
    found = surface.compare_surfaces(old, names(A="class", B="class", A__x="a:self"))
    (group,) = found.removed_members
    assert (group.member, group.count, group.classes) == ("updates", 2, ("A", "B"))
    assert not found.removed


@rows
def test_signature_change_that_breaks_calls_is_distinguished_from_additions(old: str, new: str, breaks: str) -> None:
    found = surface.compare_surfaces(names(f=old), names(f=new))
    assert [change.breaks for change in found.signatures] == [breaks]


def test_parameters_are_formatted_like_python() -> None:
    assert surface.written(parameters("a:x k:axis=None w:more")) == "(x, *, axis=None, **more)"
    assert surface.written(parameters("v:rest k:y")) == "(*rest, y)"


def test_check_that_failed_before_is_not_newly_failed() -> None:
    old = (check("both", "failed"), check("passed", "passed"), check("skipped", "skipped"))
    new = (*(check(name, "failed", observed="so") for name in ("both", "passed", "skipped")), check("new", "error"))
    failed = [change for change in compare.checks(old, new) if compare.newly_failed(change)]
    assert [change.name for change in failed] == ["passed", "skipped", "new"]
    assert failed[0].message == "so"


def test_missing_test_counts_as_failed() -> None:
    old = (UserTest(name="t", outcome="passed"), UserTest(name="r", outcome="failed", message="was broken"))
    changes = compare.compare_tests(old, (UserTest(name="r", outcome="passed"),))
    assert {change.name for change in changes} == {"t", "r"}
    assert [change.name for change in changes if compare.newly_failed(change)] == ["t"]


def runs(outcomes: str) -> tuple[tuple[UserTest, ...], ...]:
    return tuple((UserTest(name="t", outcome=outcome),) for outcome in outcomes.split())  # type: ignore[arg-type]


@rows
def test_test_is_flaky_unless_each_image_has_one_outcome(
    first: str, old_again: str, new_again: str, *, flaky: bool
) -> None:
    old, new = runs(first)
    (change,) = compare.compare_tests(old, new, runs(old_again), runs(new_again))
    assert compare.to_run_again(old, new) == {"t"}
    assert change.flaky is flaky
    newly_fails = first == "passed failed"
    assert compare.newly_failed(change) is (newly_fails and not flaky)
    assert bool(compare.count_tests(old, new, [change]).failed_before) is (not newly_fails and not flaky)
    again = new_again.split()
    if newly_fails and again:
        bad = sum(outcome != "passed" for outcome in again) + 1
        assert change.again.startswith(f"failed {bad} of {len(again) + 1} ")


@pytest.mark.parametrize(("name", "outcome"), [("test_a.py", "timeout"), (compare.THE_RUN, "error")])
def test_further_run_that_was_cut_short_excuses_no_test(name: str, outcome: Any) -> None:
    old, new = runs("passed failed")
    (change,) = compare.compare_tests(old, new, ((UserTest(name=name, outcome=outcome),),), runs("failed"))
    assert compare.newly_failed(change)
    assert change.again == "failed 2 of 2 runs on the new image, 0 of 1 on the old"


def test_tests_are_counted_by_image() -> None:
    old = (UserTest(name="a", outcome="passed"), UserTest(name="b", outcome="failed", message="no"))
    new = (UserTest(name="a", outcome="passed"), UserTest(name="(the run)", outcome="error"))
    found = compare.count_tests(old, new)
    assert (found.total, found.passed_both, found.passed_old, found.ended) == (2, 1, 1, False)
    assert found.failed_before == ("b: failed on the old image: no",)


def results_of(name: str, values: list[float], outputs_: str) -> Operation:
    """Make an operation with results, as the probe packs them."""
    kind = "d" if name.endswith("float64") else "f"
    packed = base64.b64encode(zlib.compress(array(kind, values).tobytes())).decode()
    return Operation(
        name=name,
        precision=msgspec.convert(name.rpartition(".")[2], Precision),
        error=1e-8,
        inputs="i",
        outputs=outputs_,
        values=packed,
    )


def test_difference_is_outside_if_correct_implementations_cannot_have_it() -> None:
    """From 2.19 on `gelu` of doubles differs by 2.8e-9: another constant is rounded to single precision."""
    drifts = {"gelu.float32": 1e-3, "gelu.float64": 2.8e-9, "exp.float64": 2.8e-9, "sin.float32": 1e-6}
    values, same = [0.5, -1.0, 0.25], results_of("same.float32", [1.0], "old")
    new = [results_of(name, [value * (1 + drift) for value in values], "new") for name, drift in drifts.items()]
    rows, compared = compare.compare_outputs(
        Numerics(operations=(same, *(results_of(name, values, "old") for name in drifts))),
        Numerics(operations=(same, *new)),
    )
    assert compared == 5
    assert {row.operation for row in rows if row.outside} == {"gelu.float32", "exp.float64"}
    assert [row.drift for row in rows] == pytest.approx(list(drifts.values()), rel=0.1)


def test_every_operation_of_the_probe_has_a_tolerance_above_its_roundings() -> None:
    names = [name for name, *_ in probe.operations(MagicMock())]
    rows = packaged_yaml("upgrade/numerics.yaml", dict[str, compare.ToleranceRow]).values()
    assert sorted(names) == sorted(name for row in rows for name in row.operations)
    units = {"float64": 2**-53, "float32": 2**-24, "float16": 2**-11, "bfloat16": 2**-8}
    assert all(unit * 16 <= row.tolerance[precision] < 0.2 for row in rows for precision, unit in units.items())  # type: ignore[index]


def test_incomparable_results_are_outside() -> None:
    assert compare.drift_of(array("f", [1]), array("f", [1, 2])) is None
    assert compare.drift_of(array("f", [1]), array("f", [float("nan")])) is None
    one = Numerics(operations=(results_of("x.float32", [1.0], "a"),))
    other = Numerics(operations=(replace(one.operations[0], inputs="j", outputs="b"),))
    assert compare.compare_outputs(one, other) == ((), 0)


def test_changed_random_generators_are_named() -> None:
    old, new = Numerics(streams={"a": "1", "b": "2", "c": "3"}), Numerics(streams={"a": "1", "b": "9", "c": ""})
    assert compare.streams(old, new) == ("b", "c")
    assert compare.streams(old, Numerics()) is None


def test_aliases_of_one_function_are_one_change() -> None:
    changed = [
        SignatureChange(name=name, old="(x, name)", new="(x)", breaks="name is gone")
        for name in ("nn.relu", "compat.v1.nn.relu", "raw_ops.Relu", "raw_ops.Abc", "raw_ops.Def", "keras.f")
    ]
    changed.append(SignatureChange(name="added", old="(x)", new="(x, y=1)", breaks=""))
    assert [change.name for change in surface.without_aliases(changed)] == [
        "nn.relu (and compat.v1.nn.relu, raw_ops.Relu)",
        "keras.f",
        "raw_ops.Abc (and 1 more of raw_ops: Def)",
    ]


def operations(**errors: float | None) -> Numerics:
    return Numerics(
        operations=tuple(
            Operation(name=f"{name}.float32", precision="float32", error=error, inputs="i")
            for name, error in errors.items()
        )
    )


def test_error_changes_are_classified_by_tolerance() -> None:
    old = operations(same=1e-7, worse=1e-7, wrong=1e-7, raises=1e-7, fixed=None)
    new = operations(same=1.1e-7, worse=1e-6, wrong=1e-3, raises=None, fixed=1e-7)
    changes = compare.numerics(old, new)
    assert [change.operation for change in changes] == [f"{n}.float32" for n in ("worse", "wrong", "raises", "fixed")]
    outside = [change.operation for change in changes if compare.newly_outside(change)]
    assert outside == ["wrong.float32", "raises.float32"]


def test_errors_on_different_inputs_are_not_compared() -> None:
    new = Numerics(operations=(Operation(name="x.float32", precision="float32", error=1e-7, inputs="other"),))
    (change,) = compare.numerics(operations(x=1e-7), new)
    assert change.outside
    assert "not comparable" in change.message


def test_warnings_of_both_images_are_not_new() -> None:
    old, new = WarningLines(imported=("a",), used=("b",)), WarningLines(used=("a", "c"))
    assert compare.warnings(old, new) == ("c",)


def test_hosts_change_to_ptx_or_are_lost() -> None:
    old, new = side("2.14.1", flavor="gpu").environment, side("2.20.0", flavor="gpu").environment
    fleet = (
        FleetHost(name="fine", driver="580.65.06", gpus=("NVIDIA H100 80GB HBM3",)),
        FleetHost(name="ancient", driver="450.80.02", gpus=("Tesla T4",)),
    )
    rows = {row.host: row for row in compare.compare_hosts(old, new, fleet, store.load())}
    assert rows["fine"].new == "native"
    assert rows["ancient"].new == "lost"
    assert rows["ancient"].findings


def test_requirements_are_compared_in_any_order() -> None:
    old = Inventory(requires=("numpy<2.1.0,>=1.26.0", "keras>=3.5.0", "wheel", 'x==1; extra == "and-cuda"'))
    new = Inventory(requires=("numpy>=1.26.0,<2.2.0", "keras>=3.5.0", 'x==2; extra == "and-cuda"'))
    found = {row.name: (row.old, row.new) for row in compare.requirements(old, new)}
    assert found == {
        "numpy": ("<2.1.0,>=1.26.0", "<2.2.0,>=1.26.0"),
        "wheel": ("any", None),
        'x (extra == "and-cuda")': ("==1", "==2"),
    }


@rows
def test_licence_spellings_are_equal(one: str, other: str, *, same: bool) -> None:
    assert (compare.spdx(one) == compare.spdx(other)) is same
