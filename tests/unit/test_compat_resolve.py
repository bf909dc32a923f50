"""Resolve: what is chosen, what is kept as reported, and how things are named; bases that bring CUDA."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from factories import resolved
from table_rows import rows

from envbuilder.catalog.store import load
from envbuilder.choice import choose
from envbuilder.compat.binding import bind
from envbuilder.compat.fleet import FleetHost, findings_on
from envbuilder.compat.question import Question
from envbuilder.compat.resolve import resolve
from envbuilder.compat.rules import evaluate
from envbuilder.environment import Combination, Environment, Rejection
from envbuilder.finding import Code, Severity
from envbuilder.image.lockfile import parse
from envbuilder.workspace import Workspace

CATALOG = load()


@rows
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


@rows
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


ROOT = Path(__file__).parents[2]
CUDA_11_0 = "nvidia/cuda:11.0.3-cudnn8-runtime-ubuntu20.04"


CLASSIC = choose("classic", (), Workspace(ROOT), CATALOG).environments
"""The matrix of releases before the CUDA wheels."""


def test_every_classic_release_is_an_environment() -> None:
    assert [(one.tensorflow, one.cuda) for one in CLASSIC] == [
        *(("1.15.5", "10.0"), ("2.1.4", "10.1"), ("2.2.3", "10.1"), ("2.3.4", "10.1"), ("2.4.4", "11.0"))
    ]
    for one in CLASSIC:
        assert (one.flavor, one.cuda_wheels) == ("gpu", ())
        assert one.on_registry_base.brings_cuda
        lock = (ROOT / "images" / one.id / "requirements.lock").read_text()
        pinned = {package.name: package.version for package in parse(lock)}
        assert pinned[one.package] == one.tensorflow
        assert not [name for name in pinned if name.startswith("nvidia-")]
        assert all(package.hashes for package in parse(lock))


HOSTS = [
    *(("410.129", "V100"), ("418.39", "T4"), ("450.51.06", "V100"), ("450.80.02", "A100"), ("470.57.02", "P100")),
    *(("535.104.05", "H100"), ("570.124.06", "A100"), ("384.81", "P100")),
]


@pytest.mark.parametrize(("driver", "gpu"), HOSTS)
def test_plan_and_check_agree_on_a_base_that_brings_cuda(driver: str, gpu: str) -> None:
    host = FleetHost(name="host", driver=driver, gpus=(gpu,))
    for one in CLASSIC:
        asked = Question(tensorflow=one.tensorflow, python=one.python, base_image=one.os, install="system")
        asked = msgspec.structs.replace(asked, driver=driver, gpus=host.gpus)
        candidate = bind(asked, CATALOG).candidate
        assert candidate is not None
        said = [(row.severity, row.code, row.message) for row in evaluate(candidate, CATALOG, ("cuda",))]
        ours = [(row.severity, row.code, row.message) for row in findings_on(one, host, CATALOG)]
        assert ours == said, (one.id, driver, gpu)


def test_image_of_another_registry_is_not_taken_for_the_published_one() -> None:
    assert CATALOG.system(CUDA_11_0) is not None
    assert CATALOG.system(f"registry.example.org/{CUDA_11_0}") is None


def test_cpu_environment_on_such_a_base_does_not_claim_its_cuda() -> None:
    found = resolved(tensorflow="2.4.4", os=CUDA_11_0)
    assert (found.cuda, found.libraries) == (None, ())
    assert not found.on_registry_base.brings_cuda


@rows
def test_distribution_s_cuda_is_judged_as_a_base_s(os: str, version: str, cuda: str, cudnn: str, line: str) -> None:
    found = resolved(tensorflow=version, os=os, flavor="gpu")
    assert (found.cuda, found.cudnn, found.cuda_wheels, found.loader_folders) == (cuda, cudnn, (), ())
    assert found.packaged_cuda.cudnn == f"{line}=={cudnn}"
    assert found.base_system == os.removesuffix("-cuda")
    assert found.on_registry_base is None
    assert Code.XLA_TOOLS_MISSING in {row.code for row in found.findings}


def test_no_cuda_but_that_of_the_packages_is_chosen_unasked() -> None:
    assert resolved(tensorflow="2.13.1", os=None, flavor="gpu").packaged_cuda is None
