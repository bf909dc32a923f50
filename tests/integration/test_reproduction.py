"""From a report to the same message in a container that is the reported environment, and to the way out: for real."""

from pathlib import Path

import pytest

from envbuilder.catalog.store import load
from envbuilder.cli import exit_codes
from envbuilder.engine.port import Engine
from envbuilder.finding import Code
from envbuilder.jobs.reproduction import ReproduceTools, reproduce
from envbuilder.reproduce.document import ReproduceDocument
from envbuilder.workspace import Workspace

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests" / "corpus"
GOOD_BUT_FOR_PROTOBUF = """\
Debian 12 without a GPU, Python 3.11.9, tensorflow-cpu 2.20.0 from pip, protobuf 4.25.8.

ImportError: cannot import name 'runtime_version' from 'google.protobuf'
"""
"""A report whose environment has the layers of the good CPU image."""

pytestmark = [pytest.mark.engine, pytest.mark.network]


def answer(name: str, engine: Engine, *, prove: bool) -> ReproduceDocument:
    """Take a report, of the corpus unless it has no name, all the way; its images stay in the engine's cache."""
    tools = ReproduceTools(load(), Workspace(ROOT), engine, print)
    text = (CORPUS / f"{name}.txt").read_bytes().decode() if name else GOOD_BUT_FOR_PROTOBUF
    return reproduce(text, tools, prove=prove)


PROTOBUF = (
    Code.PROTOBUF_ABI, "cannot import name 'runtime_version' from 'google.protobuf'", "protobuf 4.25.8 → >=5.28.0",
)  # fmt: skip
NUMPY_2 = (
    Code.NUMPY_ABI, "A module that was compiled using NumPy 1.x cannot be run in", "numpy 2.0.0 → <2.0.0,>=1.23.5",
)  # fmt: skip
PLAIN = (
    Code.MISSING_LIBRARY, "Cannot dlopen some GPU libraries", "install plain → pinned CUDA wheels",
)  # fmt: skip
LIBRARIES = (PLAIN[0], "Could not load dynamic library 'libcudart.so.11.0'", PLAIN[2])
DRIVER = (
    Code.DRIVER_TOO_OLD, "CUDA driver version is insufficient for CUDA runtime version", "tensorflow 2.20.0 → 2.14.1",
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "shown", "prove", "simulated"),
    [
        pytest.param("", PROTOBUF, True, False, id="protobuf", marks=pytest.mark.full),
        pytest.param("40-numpy-2", NUMPY_2, True, False, id="numpy", marks=pytest.mark.full),
        pytest.param("59-driver-470", DRIVER, False, False, id="driver"),
        pytest.param("60-plain-2.20", PLAIN, True, True, id="plain", marks=pytest.mark.full),
        pytest.param("41-tf-2.5-libraries", LIBRARIES, False, False, id="libraries", marks=pytest.mark.full),
    ],
)
def test_reported_message_appears_and_is_absent_in_the_closest_environment(
    name: str, shown: tuple[Code, str, str], engine: Engine, *, prove: bool, simulated: bool
) -> None:
    """The cause was predicted, the real TensorFlow said the same, and the named change removes it."""
    document = answer(name, engine, prove=prove)
    run, near, (code, message, change) = document.run, document.nearest, shown
    assert code in {row.code for row in document.predicted}
    assert run.reproduced is True, run
    assert run.simulated or not simulated
    assert any(message in said and message in seen for said, seen in run.proof)
    assert change in near.changes
    assert exit_codes.of(document) == 0
    assert not prove or (near.proof is not None and near.proof.proven is True), near.proof


@pytest.mark.parametrize(
    "name", ["29-tf-2.4.1-rtx-3090", "21-three-minutes", pytest.param("54-protobuf", marks=pytest.mark.full)]
)
def test_answer_without_base_image_claims_nothing(name: str, engine: Engine) -> None:
    document = answer(name, engine, prove=False)
    assert document.recipe.kind in {"image", "wheels"}
    if document.run.reproduced is None:
        assert "is not available on this machine" in document.run.needs
        assert exit_codes.of(document) == 8
