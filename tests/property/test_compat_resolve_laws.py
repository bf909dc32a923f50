"""Resolving agrees with brute force, the nearest environment with trying everything; each question has one answer."""

import itertools
import json
import random
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, cast

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import examples
from real_questions import CATALOG, DRIVERS, VERSIONS, questions
from small_catalogs import FIXED, catalogs, combinations, full_combinations, targets

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import TensorflowRelease
from envbuilder.cli.schema_command import schema
from envbuilder.compat.check import CheckDocument, check, findings_of
from envbuilder.compat.nearest import AXES, MAX_IMAGES, Buildable, Installable, Near, nearest, other_images
from envbuilder.compat.question import Install, Question
from envbuilder.compat.resolve import Resolver, resolve
from envbuilder.environment import Combination, Environment, Rejection
from envbuilder.finding import Code, Severity, compatible
from envbuilder.matrix import Targets


def numbers(text: str) -> tuple[int, ...]:
    """Read a version as integers: the oracle compares in its own way."""
    return tuple(map(int, text.split(".")))


def host_works(release: TensorflowRelease, python: str | None, system: str | None, catalog: Catalog) -> bool:
    """Tell by trying every system whether one of them carries the wheel."""
    wheel = release.wheels[0]
    return any(
        system in {None, row.name}
        and python in {None, row.python}
        and row.python in wheel.pythons
        and numbers(row.glibc) >= numbers(wheel.glibc)
        for row in catalog.systems
    )


def wheel_sets(catalog: Catalog) -> Iterator[tuple[str, str]]:
    """List every CUDA and cuDNN that can be installed: the sets of some release, with any cuDNN of their line."""
    for cuda in {row.cuda for row in catalog.tensorflow if row.cuda_wheels and row.cuda}:
        line = next(row for row in FIXED.cudnn_wheels if row.package.endswith(cuda.split(".")[0]))
        yield from ((cuda, version) for version in line.versions)


def stack_works(release: TensorflowRelease, cuda: str, cudnn: str, wished: Targets) -> bool:
    """Tell from first principles whether a build runs with these libraries on every driver and GPU."""
    toolkit = next(row for row in FIXED.cuda if row.version == cuda)
    built = next(row for row in FIXED.cuda if row.version == release.cuda)
    kernels = next(row for row in FIXED.cudnn if numbers(cudnn)[:2] == numbers(row.version))
    assert kernels.first_capability is not None, "every cuDNN of the small catalogue has one"
    loads = all(name in toolkit.sonames or "cudnn" in name for name in release.libraries)
    assert release.cudnn is not None, "every release of the small catalogue has one"
    accepted = numbers(cudnn)[0] == numbers(release.cudnn)[0] and numbers(cudnn)[:2] >= numbers(release.cudnn)
    made_for = numbers(cuda)[0] in {numbers(text)[0] for text in kernels.cuda}
    gpus = [gpu for gpu in FIXED.gpus if gpu.name in wished.gpus]
    for gpu in gpus:
        cap = numbers(gpu.compute_capability)
        if cap < numbers(toolkit.first_capability) or cap < numbers(kernels.first_capability):
            return False
        native = any(numbers(code)[0] == cap[0] and numbers(code)[1] <= cap[1] for code in release.cubins)
        if not native and not any(numbers(ptx) <= cap for ptx in release.ptx):
            return False
        for driver in wished.drivers:
            dropped = numbers(driver)[0] >= 590 and cap < (8, 0)
            if dropped or numbers(driver) < numbers(gpu.minimum_driver):
                return False
            if not native and built.driver and numbers(driver) < numbers(built.driver):
                return False
    enough = all(numbers(driver) >= numbers(toolkit.minimum_driver) for driver in wished.drivers)
    return loads and accepted and made_for and enough


def satisfiable(combination: Combination, catalog: Catalog, wished: Targets) -> bool:
    """Tell by brute force over every system and every set of wheels whether a combination can work."""
    release = next((row for row in catalog.tensorflow if row.version == combination.tensorflow), None)
    if release is None or not host_works(release, combination.python, combination.os, catalog):
        return False
    if combination.flavor == "cpu":
        return True
    assert release.cuda is not None, "every release of the small catalogue has one"
    line = numbers(release.cuda)[0]
    return release.gpu and any(
        combination.cuda in {None, cuda}
        and (combination.cudnn is None or numbers(cudnn)[:2] == numbers(combination.cudnn))
        and (combination.cuda is not None or numbers(cuda)[0] == line)
        and stack_works(release, cuda, cudnn, wished)
        for cuda, cudnn in wheel_sets(catalog)
    )


@examples(133)
@given(catalogs(), combinations, targets)
def test_resolver_agrees_with_brute_force(catalog: Catalog, combination: Combination, wished: Targets) -> None:
    result = resolve(combination, catalog, wished)
    assert isinstance(result, Environment) == satisfiable(combination, catalog, wished), result
    if isinstance(result, Rejection):
        assert result.findings
        assert result.sentence.endswith(".")
        return
    axes = ("python", "os", *(("cuda", "cudnn") if combination.flavor == "gpu" else ()))
    for axis in axes:
        value, given_ = getattr(result, axis), getattr(combination, axis)
        assert given_ is None or value == given_ or value.startswith(f"{given_}."), axis
        assert (axis in result.chosen) == (given_ is None), axis


@examples(40)
@given(catalogs(), combinations, targets, st.randoms(use_true_random=False))
def test_order_of_rows_is_irrelevant(catalog: Catalog, combination: Combination, wished: Targets, random) -> None:
    other = msgspec.structs.replace(
        catalog,
        tensorflow=tuple(random.sample(catalog.tensorflow, len(catalog.tensorflow))),
        gpus=tuple(random.sample(catalog.gpus, len(catalog.gpus))),
        drivers=tuple(random.sample(catalog.drivers, len(catalog.drivers))),
    )
    assert resolve(combination, other, wished) == resolve(combination, catalog, wished)


Asked = Question | Combination
Given_up = tuple[str, frozenset[str], str | None]
"""A version, the axes that are given up for it, and the base image that is taken instead."""


def opened(asked: Asked, axes: tuple[str, ...], version: str, catalog: Catalog) -> Iterator[Asked]:
    """Give axes up for a version; a base image is replaced by another one first."""
    free: dict[str, str | tuple[str, ...] | None] = {axis: () if axis == "packages" else None for axis in axes}
    if "base_image" in axes:
        assert isinstance(asked, Question)
        for image in other_images(asked.base_image, version, catalog)[:MAX_IMAGES]:
            yield msgspec.structs.replace(asked, tensorflow=version, **{**free, "base_image": image.name})
    yield msgspec.structs.replace(asked, tensorflow=version, **free)


def tried(asked: Asked, works: Callable[[Asked], bool], catalog: Catalog) -> Given_up | None:
    """Find the nearest by trying everything in the order that is promised: the law, spelt out."""
    own = catalog.version(asked.tensorflow)
    final = [text for text in catalog.versions if versions.is_final(text)]
    here = sum(versions.key(text) < versions.key(own or asked.tensorflow) for text in final)
    places = sorted(range(len(final)), key=lambda place: (abs(place - here), -place))
    given_ = tuple(axis for axis in AXES if getattr(asked, axis, None))
    for count in range(len(given_) + 2):
        for version in (*((own,) if own else ()), *(final[place] for place in places if final[place] != own)):
            for axes in itertools.combinations(given_, count if version == own else count - 1) if count else ((),):
                if not count and version != own:
                    break
                for near in opened(asked, axes, version, catalog):
                    if works(near):
                        return version, frozenset(axes), getattr(near, "base_image", None)
    return None


def given_up(asked: Asked, near: Near[Any] | None, catalog: Catalog) -> Given_up | None:
    """Read the same from a search's answer."""
    if near is None:
        return None
    changed = {change.field for change in near.changes}
    version = catalog.version(near.combination.tensorflow)
    assert version is not None
    assert ("tensorflow" in changed) == (version != catalog.version(asked.tensorflow))
    axes = frozenset(field if field in AXES else "packages" for field in changed - {"tensorflow"})
    return version, axes, getattr(near.combination, "base_image", None)


@examples(3)
@given(questions)
def test_nearest_installable_is_that_of_trying_everything(question: Question) -> None:
    works = cache(lambda asked: compatible(findings_of(asked, CATALOG)) is True)
    near = nearest(question, Installable(CATALOG))
    assert given_up(question, near, CATALOG) == tried(question, works, CATALOG)
    if near is not None:
        assert near.predicate == "installable"
        assert works(near.combination)
        kept = ("driver", "gpus", "capabilities", "os", "arch", "avx")
        assert all(getattr(near.combination, name) == getattr(question, name) for name in kept)
        assert bool(near.changes) is not works(question)


@examples(100)
@given(catalogs(), st.one_of(combinations, full_combinations), targets)
def test_nearest_buildable_is_that_of_trying_everything(catalog: Catalog, asked: Combination, hosts: Targets) -> None:
    resolver = Resolver(catalog, hosts)
    near = nearest(asked, Buildable(resolver))
    found = tried(asked, lambda one: isinstance(resolver.resolve(cast("Combination", one)), Environment), catalog)
    assert given_up(asked, near, catalog) == found
    if near is not None:
        assert near.predicate == "buildable"
        assert all(getattr(near.combination, name) == getattr(asked, name) for name in ("os", "flavor", "arch"))
        for change in near.changes:
            assert (change.old, change.new) == (getattr(asked, change.field), getattr(near.combination, change.field))


SHARES = [0.05, pytest.param(1.0, marks=pytest.mark.full)]
"""`make test` asks a twentieth of the questions, always the same ones; `make test-full` asks all."""

VALIDATOR = jsonschema.Draft202012Validator(schema("check"))


def answers(questions: Iterable[Question], share: float = 1.0) -> Iterator[tuple[Question, CheckDocument]]:
    """Ask a share of the questions; each answer is consistent, and those of each shape follow the schema."""
    every = list(questions)
    shapes: dict[tuple[object, ...], CheckDocument] = {}
    for asked in random.Random(7).sample(every, round(len(every) * share)):  # noqa: S311 - a fixed sample
        document = check(asked, CATALOG)
        consistent(document)
        shapes.setdefault(shape(document), document)
        yield asked, document
    for document in shapes.values():
        VALIDATOR.validate(json.loads(msgspec.json.encode(document)))


def consistent(document: CheckDocument) -> None:
    """Assert that what is concluded follows from what was found."""
    wrong = any(finding.severity is Severity.ERROR for finding in document.findings)
    silent = any(
        finding.code is Code.UNKNOWN
        or (finding.code is Code.DRIVER_FORWARD_COMPAT and finding.severity is Severity.WARNING)
        for finding in document.findings
    )
    assert document.compatible is (False if wrong else None if silent else True)
    codes = {(finding.code, finding.subject) for finding in document.findings}
    for _, gpu in codes:
        assert not {(Code.PTX_JIT, gpu), (Code.NO_KERNEL_IMAGE, gpu)} <= codes, "compiles and has nothing to compile"
    kinds = {code for code, _ in codes}
    drivers = {Code.DRIVER_TOO_OLD, Code.DRIVER_FORWARD_COMPAT, Code.DRIVER_MINOR_COMPAT}
    assert len(kinds & drivers) <= 1, "a driver stands in one relation to a toolkit"


def shape(document: CheckDocument) -> tuple[object, ...]:
    """Return the properties of a document that its schema depends on."""
    environment = document.environment
    nulls = tuple(getattr(environment, name) is None for name in environment.__struct_fields__)
    return nulls, document.compatible, tuple((finding.code, finding.severity) for finding in document.findings)


@pytest.mark.parametrize("share", SHARES)
def test_every_row_branch_and_kind_of_gpu_is_answered_without_contradiction(share: float) -> None:
    """GPUs of one compute capability, brand class and first driver are judged alike, so one stands for them."""
    kinds = {(gpu.compute_capability, gpu.data_center, gpu.minimum_driver): gpu.name for gpu in CATALOG.gpus}
    questions = (
        Question(tensorflow=row.version, package=row.package, driver=driver, gpus=(gpu,))
        for row, driver, gpu in itertools.product(CATALOG.tensorflow, DRIVERS, kinds.values())
    )
    assert list(answers(questions, share))


INSTALLS: tuple[Install | None, ...] = (None, "and-cuda", "plain", "system")
SIBLINGS = """
    nvidia/cuda:11.2.2-base-ubuntu20.04 nvidia/cuda:11.8.0-runtime-ubuntu22.04
    nvidia/cuda:12.2.2-cudnn8-devel-ubuntu22.04 nvidia/cuda:12.6.3-devel-ubuntu24.04
    python:3.9-slim-bullseye python:3.12-alpine ubuntu:18.04 debian:13 nvcr.io/nvidia/tensorflow:24.03-tf2-py3
"""
"""Each other kind of image: siblings of those in the catalogue, plain systems, and one of which nothing is known."""


@pytest.mark.parametrize("share", SHARES)
def test_every_image_with_every_release_is_answered_without_contradiction(share: float) -> None:
    images = (*SIBLINGS.split(), *(image.name for image in CATALOG.images))
    questions = (
        Question(tensorflow=version, base_image=image, install=install, driver="580.65.06", gpus=("T4",))
        for version, image, install in itertools.product(VERSIONS, images, INSTALLS)
    )
    has_gpu = {row.version for row in CATALOG.tensorflow if row.gpu and row.package == "tensorflow"}
    for asked, document in answers(questions, share):
        image = asked.base_image or ""
        if image.startswith("nvcr.io") and image in SIBLINGS.split() and asked.install in {None, "system"}:
            assert document.compatible is None
        if "-base-" in image and asked.install is None and asked.tensorflow in has_gpu:
            assert any(finding.code is Code.MISSING_LIBRARY for finding in document.findings), asked
