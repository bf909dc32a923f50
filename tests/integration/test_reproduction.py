"""From a report to the same message in a container that is the reported environment, and to the way out: for real."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from envbuilder.catalog.store import load
from envbuilder.cli import exit_codes
from envbuilder.engine.docker import connect
from envbuilder.engine.port import Engine
from envbuilder.finding import Code
from envbuilder.reproduce.document import ReproduceDocument
from envbuilder.reproduce.run import ReproduceTools, reproduce
from envbuilder.workspace import Workspace

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests" / "corpus"
pytestmark = [pytest.mark.engine, pytest.mark.network]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return connect()


def answer(name: str, engine: Engine, *, prove: bool) -> ReproduceDocument:
    """Take a report of the corpus all the way; its images stay in the engine's cache."""
    tools = ReproduceTools(load(), Workspace(ROOT), engine, print)
    return reproduce((CORPUS / f"{name}.txt").read_bytes().decode(), tools, prove=prove)


@dataclass(frozen=True)
class Case:
    report: str
    code: Code
    message: str
    change: str


NUMPY_2 = Case(
    "40-numpy-2",
    Code.NUMPY_ABI,
    "A module that was compiled using NumPy 1.x cannot be run in",
    "numpy 2.0.0 → <2.0.0,>=1.23.5",
)
PLAIN = "install plain → pinned CUDA wheels"
ON_A_GPU = Case("60-plain-2.20", Code.MISSING_LIBRARY, "Cannot dlopen some GPU libraries", PLAIN)
LARGE = (
    Case(
        "59-driver-470",
        Code.DRIVER_TOO_OLD,
        "CUDA driver version is insufficient for CUDA runtime version",
        "tensorflow 2.20.0 → 2.14.1",
    ),
    Case("41-tf-2.5-libraries", Code.MISSING_LIBRARY, "Could not load dynamic library 'libcudart.so.11.0'", PLAIN),
)


def assert_reproduced(document: ReproduceDocument, case: Case) -> None:
    """Demand that the cause was predicted, the real TensorFlow said the same, and a change is named."""
    assert case.code in {row.code for row in document.predicted}
    assert document.run is not None
    assert document.run.reproduced is True, document.run
    assert any(case.message in said and case.message in seen for said, seen in document.run.proof)
    assert document.nearest is not None
    assert case.change in document.nearest.changes
    assert exit_codes.of(document) == 0


def assert_mended(document: ReproduceDocument) -> None:
    """Demand that the nearest environment was built, and nothing of what was reported came again in it."""
    assert document.nearest is not None
    assert document.nearest.proof is not None
    assert document.nearest.proof.proven is True, document.nearest.proof


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(NUMPY_2, id=NUMPY_2.report),
        pytest.param(ON_A_GPU, id=ON_A_GPU.report, marks=pytest.mark.full),
    ],
)
def test_reported_message_appears_and_is_absent_in_the_closest_environment(case: Case, engine: Engine) -> None:
    document = answer(case.report, engine, prove=True)
    assert_reproduced(document, case)
    assert_mended(document)
    if case is not NUMPY_2:
        assert document.run is not None
        assert document.run.simulated


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(LARGE[0], id=LARGE[0].report),
        *(pytest.param(one, id=one.report, marks=pytest.mark.full) for one in LARGE[1:]),
    ],
)
def test_reproduced(case: Case, engine: Engine) -> None:
    assert_reproduced(answer(case.report, engine, prove=False), case)


@pytest.mark.parametrize("name", ["29-tf-2.4.1-rtx-3090", "21-three-minutes", "54-protobuf"])
def test_answer_without_base_image_claims_nothing(name: str, engine: Engine) -> None:
    document = answer(name, engine, prove=False)
    assert document.recipe.kind in {"image", "wheels"}
    assert document.run is not None
    if document.run.reproduced is None:
        assert "is not available on this machine" in document.run.needs
        assert exit_codes.of(document) == 8


def test_windows_report_is_explained_but_not_rebuilt(engine: Engine) -> None:
    document = answer("30-windows-log", engine, prove=True)
    assert document.run is not None
    assert document.run.reproduced is None
    assert "Windows host" in document.run.needs
    assert exit_codes.of(document) == 8
