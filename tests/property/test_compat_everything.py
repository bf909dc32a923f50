"""Every row of the catalogue with every driver branch and GPU: `check` always answers, and never contradicts itself."""

import itertools
import json
import random
from collections.abc import Iterable, Iterator

import jsonschema
import msgspec
import pytest
from real_questions import CATALOG, DRIVERS, VERSIONS

from envbuilder.cli.schema_command import schema
from envbuilder.compat.check import CheckDocument, check
from envbuilder.compat.question import Install, Question
from envbuilder.finding import Code, Severity

SHARES = [0.1, pytest.param(1.0, marks=pytest.mark.full)]
"""`make test` asks a tenth of the questions, always the same ones; `make test-full` asks all."""

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
SIBLINGS = (
    "nvidia/cuda:11.2.2-base-ubuntu20.04",
    "nvidia/cuda:11.8.0-runtime-ubuntu22.04",
    "nvidia/cuda:12.2.2-cudnn8-devel-ubuntu22.04",
    "nvidia/cuda:12.6.3-devel-ubuntu24.04",
    "python:3.9-slim-bullseye",
    "python:3.12-alpine",
    "ubuntu:18.04",
    "debian:13",
    "nvcr.io/nvidia/tensorflow:24.03-tf2-py3",
)
"""Each other kind of image: siblings of those in the catalogue, plain systems, and one of which nothing is known."""


@pytest.mark.parametrize("share", SHARES)
def test_every_image_with_every_release_is_answered_without_contradiction(share: float) -> None:
    images = (*SIBLINGS, *(image.name for image in CATALOG.images))
    questions = (
        Question(tensorflow=version, base_image=image, install=install, driver="580.65.06", gpus=("T4",))
        for version, image, install in itertools.product(VERSIONS, images, INSTALLS)
    )
    has_gpu = {row.version for row in CATALOG.tensorflow if row.gpu and row.package == "tensorflow"}
    for asked, document in answers(questions, share):
        image = asked.base_image or ""
        if image.startswith("nvcr.io") and image in SIBLINGS and asked.install in {None, "system"}:
            assert document.compatible is None
        if "-base-" in image and asked.install is None and asked.tensorflow in has_gpu:
            assert any(finding.code is Code.MISSING_LIBRARY for finding in document.findings), asked
