"""Reproducing without an engine: the prediction, the recipe, the comparison, the way out, the reply."""

from __future__ import annotations

import json
import re
from pathlib import Path

import factories
import msgspec
import pytest
from click.testing import CliRunner

from envbuilder.catalog.store import load
from envbuilder.choice import read_matrix
from envbuilder.cli import exit_codes
from envbuilder.cli.reproduce_command import command
from envbuilder.errors import InputError
from envbuilder.finding import Code, Finding, Severity
from envbuilder.reproduce.analysis import analyse, with_command
from envbuilder.reproduce.compare import compare, repeated_messages
from envbuilder.reproduce.document import Proof, ReproduceDocument, Run
from envbuilder.reproduce.messages.catalog import match
from envbuilder.reproduce.question_from_report import release_of
from envbuilder.reproduce.render import as_markdown, as_text
from envbuilder.reproduce.reproduce import proof, with_deviations
from envbuilder.reproduce.reproduction_run import RunObservation
from envbuilder.verdict import Word
from envbuilder.workspace import Workspace

CORPUS = Path(__file__).parents[1] / "corpus"
TEXTS = {path.stem: path.read_bytes().decode() for path in sorted(CORPUS.glob("*.txt"))}


def answer(name: str) -> ReproduceDocument:
    """Answer a report of the corpus without building anything, on a host without a driver."""
    return analyse(TEXTS[name], load()).document


def codes(document: ReproduceDocument) -> set[Code]:
    """Name what is predicted as an error or a warning."""
    return {row.code for row in document.predicted if row.severity is not Severity.INFO}


@pytest.mark.parametrize(
    ("name", "code", "change"),
    [
        ("29-tf-2.4.1-rtx-3090", Code.CUDA_MISMATCH, "cuda 11.2 → 11.0"),
        ("28-prose-slashes", Code.CUDA_MISMATCH, "cuda 11.2 → 11.0"),
        ("24-cudnn-mismatch", Code.CUDNN_MISMATCH, "cudnn 9.1.0 → 9.3"),
        ("40-numpy-2", Code.NUMPY_ABI, "numpy 2.0.0 → <2.0.0,>=1.23.5"),
        ("41-tf-2.5-libraries", Code.MISSING_LIBRARY, "install plain → pinned CUDA wheels"),
        ("54-protobuf", Code.PROTOBUF_ABI, "protobuf 4.21.1 → <3.21"),
        ("59-driver-470", Code.DRIVER_TOO_OLD, "tensorflow 2.20.0 → 2.14.1"),
        ("60-plain-2.20", Code.MISSING_LIBRARY, "install plain → pinned CUDA wheels"),
    ],
)
def test_report_has_its_cause_and_fix(name: str, code: Code, change: str) -> None:
    document = answer(name)
    assert code in codes(document)
    assert document.nearest is not None
    assert change in document.nearest.changes
    assert document.nearest.environment.gpus == () or document.nearest.environment.gpus[0].compute_capability
    assert exit_codes.of(document) == 0


def test_three_minutes_after_libcudart_10_1() -> None:
    """A three-minute start on an RTX 3090 is PTX for CUDA 10.1, fixed by a TensorFlow of CUDA 11."""
    document = answer("21-three-minutes")
    assert {Code.PTX_JIT, Code.GPU_UNSUPPORTED_BY_CUDA, Code.SLOW_PHASE} <= codes(document)
    assert any("186 s" in row.message for row in document.predicted)
    assert any(row.subject == "kernel cache" for row in document.predicted)
    assert document.nearest is not None
    assert document.nearest.changes[0].startswith("tensorflow 2.3.1 → 2.4")
    assert "cuda 10.1 → 11.0" in document.nearest.changes


def test_pause_is_explained_without_a_stated_release() -> None:
    text = TEXTS["21-three-minutes"].replace("That is tf 2.3.1 and it", "It")
    document = analyse(text, load()).document
    assert document.reported.tensorflow is None
    assert Code.PTX_JIT in codes(document)
    assert document.recipe.kind == "none"


def test_several_gpus_and_missing_memory_growth_are_causes() -> None:
    subjects = {row.subject for row in answer("49-growth-and-many-gpus").predicted}
    assert "8 GPUs" in subjects
    line = "tf 2.3.0\nCould not create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR\n"
    grown = analyse(line + "export TF_FORCE_GPU_ALLOW_GROWTH=true\n", load()).document
    assert "GPU memory growth" in {row.subject for row in analyse(line, load()).document.predicted}
    assert "GPU memory growth" not in {row.subject for row in grown.predicted}


def test_log_after_import_disproves_import_failures() -> None:
    text = "tensorflow==2.15.1\nnumpy==2.0.0\n"
    log = "I tensorflow/core/gpu_device.cc:1733] Found device 0 with properties: name: Tesla T4 major: 7\n"
    assert Code.NUMPY_ABI in codes(analyse(text, load()).document)
    assert Code.NUMPY_ABI not in codes(analyse(text + log, load()).document)


def test_report_from_macos_or_windows_has_no_gpu_build_and_no_recipe() -> None:
    mac = answer("32-macos")
    windows = analyse("TensorFlow 2.12.0 on Windows 11, RTX 3060, no GPU found", load()).document
    for document in (mac, windows):
        assert Code.NOT_A_GPU_BUILD in codes(document)
        assert document.recipe.kind == "none"
        assert "host" in document.recipe.why_not


def test_cpu_build_with_a_gpu_is_the_cause() -> None:
    assert Code.NOT_A_GPU_BUILD in codes(answer("33-cpu-build"))


@pytest.mark.parametrize(
    ("name", "kind", "base", "deviations"),
    [
        ("40-numpy-2", "wheels", "tf2.15.1-py311-cpu-bookworm-tensorflow", ("numpy==2.0.0",)),
        ("41-tf-2.5-libraries", "wheels", "tf2.5.3-py39-cpu-bullseye-tensorflow", ()),
        ("59-driver-470", "wheels", "tf2.20.0-py311-cu12.5-cudnn9.3-bookworm", ()),
        ("29-tf-2.4.1-rtx-3090", "image", "nvidia/cuda:11.2.2-cudnn8-runtime-ubuntu20.04", ()),
        ("26-docker-run", "image", "tensorflow/tensorflow:2.4.1-gpu-jupyter", ()),
        ("21-three-minutes", "image", "nvidia/cuda:10.1-cudnn7-runtime-ubuntu18.04", ()),
    ],
)
def test_report_gets_the_recipe_of_its_environment(
    name: str, kind: str, base: str, deviations: tuple[str, ...]
) -> None:
    recipe = answer(name).recipe
    assert (recipe.kind, recipe.environment or recipe.base, recipe.deviations) == (kind, base, deviations)
    if kind == "image":
        assert f"FROM {base}\n" in recipe.dockerfile


def test_reported_older_cudnn_is_installed_on_top() -> None:
    recipe = answer("24-cudnn-mismatch").recipe
    assert [pin.split("==")[0] for pin in recipe.deviations] == ["nvidia-cudnn-cu12"]
    assert "nvidia-cudnn-cu12==9.1.0" in recipe.dockerfile


def test_reporters_host_is_simulated_unless_this_host_has_its_driver() -> None:
    assert answer("59-driver-470").recipe.host == "driver=470.57.02,gpu=GeForce RTX 3090"
    assert analyse(TEXTS["59-driver-470"], load(), "470.57.02").document.recipe.host == ""
    assert analyse(TEXTS["59-driver-470"], load(), "535.104.05").document.recipe.host != ""


def test_python_without_a_wheel_is_explained_and_not_built() -> None:
    document = analyse("pip install tensorflow==2.20.0 fails on Python 3.8, Ubuntu 20.04", load()).document
    assert Code.PYTHON_UNSUPPORTED in codes(document)
    assert "nothing to install" in document.recipe.why_not


REPORTED = match("Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open x\n")
GPU_ONLY = match("Could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED\n")


def judged(reported: str, seen: str) -> bool | None:
    """Compare two texts on a host with a simulated driver and no GPU."""
    return compare(match(reported), match(seen), (), (), with_gpu=False, with_driver=True).reproduced


def test_compare_uses_messages_and_values() -> None:
    missing = "Could not load dynamic library '{0}'; dlerror: {0}: cannot open shared object file\n"
    cudart, cudnn = missing.format("libcudart.so.11.0"), missing.format("libcudnn.so.8")
    assert judged(cudart, "2026-01-01 W x.cc:64] " + cudart) is True
    assert judged(cudart, "all is well") is False
    assert judged(cudart, cudnn) is False
    assert judged(cudart + cudnn, cudart) is None
    assert judged("Could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED", "") is None
    assert judged("my model is slow", cudart) is None
    assert repeated_messages(match(cudart), match(cudart)) != ()
    assert repeated_messages(match(cudart), match("[]")) == ()


def test_compare_without_messages_uses_findings() -> None:
    found = Finding(code=Code.NUMPY_ABI, severity=Severity.ERROR, subject="numpy", message="m")
    other = Finding(code=Code.KERAS_MISMATCH, severity=Severity.ERROR, subject="keras", message="m")
    for seen, expected in (((found,), True), ((other,), None), ((), None)):
        assert compare((), (), (found,), seen, with_gpu=False, with_driver=False).reproduced is expected


def test_exit_codes() -> None:
    """0 explained or reproduced, 1 not reproduced or not fixed, 8 unknown."""
    document = answer("40-numpy-2")
    for reproduced, code in ((True, 0), (False, 1), (None, 8)):
        assert exit_codes.of(msgspec.structs.replace(document, run=Run(reproduced=reproduced))) == code
    assert document.nearest is not None
    refuted = msgspec.structs.replace(document.nearest, proof=Proof(proven=False))
    assert exit_codes.of(msgspec.structs.replace(document, run=Run(reproduced=True), nearest=refuted)) == 1
    assert exit_codes.of(answer("53-nothing-said")) == 8


def test_forward_compatibility_package_is_not_a_fix() -> None:
    text = TEXTS["59-driver-470"].replace("GeForce RTX 3090", "A100-SXM4-40GB")
    document = analyse(text, load()).document
    assert document.nearest is not None
    assert "tensorflow 2.20.0 → 2.14.1" in document.nearest.changes


def test_fix_commands_list_pins_if_the_extra_cannot_be_resolved() -> None:
    assert answer("59-driver-470").nearest is not None
    by_extra_in_vain, plain = (answer(name).nearest for name in ("59-driver-470", "41-tf-2.5-libraries"))
    assert by_extra_in_vain is not None
    assert plain is not None
    assert not any("and-cuda" in line for line in by_extra_in_vain.commands)
    for near in (by_extra_in_vain, plain):
        assert any("'nvidia-cudnn-cu11==8.7.0.84'" in line for line in near.commands)
        assert any("libnvrtc.so.11.2" in line for line in near.commands)
    assert any(line.startswith("export LD_LIBRARY_PATH=") and "/*/lib" in line for line in plain.commands)


@pytest.mark.parametrize(("version", "predicted"), [("2.21.0", True), ("2.20.0", False)])
def test_listed_cuda_wheels_count_as_the_extra(version: str, *, predicted: bool) -> None:
    text = (
        f"tensorflow=={version}\nnvidia-cusolver-cu12==11.6.3.83\nnvidia-cublas-cu12==12.5.3.2\nPython 3.11.9\n"
        "W0000 00:00:1772800000.000000 412 gpu_device.cc:2342] Cannot dlopen some GPU libraries. Please make sure the "
        "missing libraries mentioned above are installed properly if you would like to use GPU.\n"
    )
    assert (Code.LIBRARY_PATH in codes(analyse(text, load()).document)) is predicted


def test_fix_commands_name_the_folder_of_the_one_missing_library() -> None:
    text = (
        "pip install tensorflow[and-cuda]==2.21.0\nPython 3.11.9\nUbuntu 22.04\n"
        "W0000 00:00:1772800000.000000 412 gpu_device.cc:2342] Cannot dlopen some GPU libraries. Please make sure the "
        "missing libraries mentioned above are installed properly if you would like to use GPU.\n"
    )
    document = analyse(text, load()).document
    found = next(one for one in document.predicted if one.code is Code.LIBRARY_PATH)
    assert found.severity is Severity.ERROR
    assert "libcusolver.so.11" in found.message
    assert document.nearest is not None
    assert document.nearest.changes == ("install and-cuda → pinned CUDA wheels",)
    assert document.recipe.untold
    assert "RUN rm /etc/ld.so.conf.d/cuda-wheels.conf && ldconfig" in document.recipe.dockerfile
    assert "tools.lock" not in document.recipe.dockerfile
    (told,) = (line for line in document.nearest.commands if line.startswith("export LD_LIBRARY_PATH="))
    assert "/cusolver/lib" in told
    assert "*" not in told


def seen(word: Word, text: str = "", *codes: Code) -> RunObservation:
    """Make what was seen in a nearest environment: what it printed, the suite's verdict and its errors."""
    found = tuple(Finding(code=code, severity=Severity.ERROR, subject="it", message="m") for code in codes)
    judged = factories.verdict(verdict=word, findings=found, reasons=("keras failed",))
    return RunObservation("sha256:0", match(text), text, judged, simulated=False)


@pytest.mark.parametrize(
    ("reproduced", "found", "proven", "needs"),
    [
        (True, seen("INCONCLUSIVE"), True, ""),
        (True, seen("FAILED"), False, "the suite fails it: keras failed"),
        (True, seen("FAILED", "", Code.LIBRARY_PATH), False, "the suite also finds LIBRARY_PATH"),
        (True, seen("INCONCLUSIVE", TEXTS["60-plain-2.20"]), False, ""),
        (True, seen("FAILED", "", Code.MISSING_LIBRARY), False, "the suite fails it: keras failed"),
        (None, seen("PASSED"), None, "the failure was not reproduced here, so its absence proves nothing"),
    ],
)
def test_proof_requires_reproduction_and_no_other_failure(
    *, reproduced: bool | None, found: RunObservation, proven: bool | None, needs: str
) -> None:
    document = msgspec.structs.replace(answer("60-plain-2.20"), run=Run(reproduced=reproduced))
    judged = proof(document, found)
    assert (judged.proven, judged.needs) == (proven, needs)


@pytest.mark.parametrize("name", TEXTS)
def test_corpus_report_renders_as_document_text_and_reply(name: str) -> None:
    document = answer(name)
    written = json.loads(msgspec.json.encode(document))
    assert written["schema"] == "envbuilder/reproduce/v1"
    keys = {"tensorflow", "python", "cuda", "cudnn", "driver", "gpus", "os", "install", "packages", "evidence"}
    assert keys <= written["reported"].keys()
    assert {"reported", "symptoms", "predicted", "run", "nearest"} <= written.keys()
    assert written["run"] is None
    assert as_text(document)
    reply = as_markdown(document)
    assert reply.startswith(
        f"**Cause ({'not sure' if document.diagnosis.confidence == 'unsure' else document.diagnosis.confidence}"
    )
    assert "nearest.yaml" not in reply
    assert not re.search(r"(?m)^(?:#+ .*|\*\*[^*]+\*\*)\n*(?:\Z|\n#+ |\n\*\*)", reply), "a heading over nothing"
    assert ("Please paste" in reply) == (document.diagnosis.confidence == "unsure")


def test_reply_contains_cause_evidence_fix_and_proof() -> None:
    document = answer("29-tf-2.4.1-rtx-3090")
    run = Run(
        image="envbuilder/reproduced:0", reproduced=True, simulated=True, proof=(("a", "the line that was seen"),)
    )
    reply = as_markdown(msgspec.structs.replace(document, run=run))
    for part in ("**Cause (likely):**", "CUDA `11.2` (line 7)", "`cuda 11.2 → 11.0`", "**Fix:** ", "$ docker run",
                 "Reproduced: **yes**", "simulated host", "the line that was seen"):  # fmt: skip
        assert part in reply, part


def test_reply_for_a_proved_cause_is_certain_and_quotes_the_line() -> None:
    line = (
        "E0000 00:00:1738697930.202924 7665 cuda_dnn.cc:522] Loaded runtime CuDNN library: 9.1.0 but source was "
        "compiled with: 9.3.0.  CuDNN library needs to have matching major version and equal or higher minor version."
    )
    document = analyse(f"tensorflow 2.18.0\n{line}\n", load()).document
    assert document.diagnosis.confidence == "certain"
    assert document.diagnosis.codes[0] is Code.CUDNN_MISMATCH
    assert " ".join(line.split()) in as_markdown(document)


def test_cause_on_the_host_proposes_no_versions() -> None:
    for text in (
        "tensorflow 2.4.1\nkernel version 450.66.0 does not match DSO version 450.142.0 -- cannot find working devices",
        "tensorflow 2.10.0\nno NVIDIA GPU device is present: /dev/nvidia0 does not exist",
        "tensorflow 2.10.0\nfailed call to cuInit: UNKNOWN ERROR (-1)",
    ):
        document = analyse(text, load()).document
        assert document.diagnosis.place == "host", text
        assert document.nearest is None
        assert "Changing versions will not help" in as_markdown(document)


def test_reply_names_no_file_or_command_of_envbuilder(tmp_path: Path) -> None:
    document = with_command(answer("59-driver-470"), Workspace(tmp_path))
    reply = as_markdown(document)
    assert document.nearest is not None
    assert all(change in reply for change in document.nearest.changes)
    assert "pip install 'tensorflow" in reply
    assert "out/reproduce" not in reply
    assert "envbuilder" not in reply


def test_dry_run_contains_the_matrix_that_a_real_run_writes(tmp_path: Path) -> None:
    dry = with_command(answer("59-driver-470"))
    lines = as_text(dry).splitlines()
    assert "  $ envbuilder run nearest.yaml" in lines
    start = lines.index("  nearest.yaml:") + 1
    saved = tmp_path / "nearest.yaml"
    saved.write_text("\n".join(lines[start:]))
    assert [row.tensorflow for row in read_matrix(saved).include] == ["2.14.1"]
    real = with_command(answer("59-driver-470"), Workspace(tmp_path))
    assert real.nearest is not None
    left = tmp_path / real.nearest.commands[0].split()[2]
    assert left.read_text() == real.nearest.matrix == (dry.nearest.matrix if dry.nearest else None)


def test_reply_contains_no_mention_or_link_of_the_report() -> None:
    error = "ImportError: libcudart.so.9.0: cannot open shared object file"
    text = f"tensorflow 2.15.1\n{error} @maintainer [x](http://e) | `y` #1\n"
    document = analyse(text, load()).document
    for line in as_markdown(document).splitlines():
        outside = "".join(part for index, part in enumerate(line.split("`")) if index % 2 == 0)
        assert "@maintainer" not in outside
        assert "](http://e" not in outside


@pytest.mark.parametrize(
    ("text", "release"),
    [("2.4.1-rc3", "2.4.1rc3"), ("v2.4.1", "2.4.1"), ("2.0-beta1", "2.0b1"), ("1.15.2+nv20.2", "1.15.2"),
     ("2.21.0-dev20250729", "2.21.0.dev20250729"), ("2.15.0.post1", "2.15.0.post1"), ("2.0.0.rc1", "2.0.0rc1")],
)  # fmt: skip
def test_release_of_normalises_releases(text: str, release: str) -> None:
    assert release_of(text) == release


def test_lock_with_deviations_has_no_hashes_of_replaced_versions() -> None:
    lock = f"numpy==1.26.4 \\\n    --hash=sha256:{'0' * 64}\nwrapt==1.0 \\\n    --hash=sha256:{'1' * 64}\n"
    text = with_deviations(lock, ("numpy==2.0.0", "torch==2.4.1"))
    assert "numpy==2.0.0\n" in text
    assert "0" * 64 not in text
    assert "1" * 64 in text
    assert text.endswith("torch==2.4.1\n")


def test_command_reads_file_or_stdin_and_exits_by_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report = tmp_path / "report.txt"
    report.write_text(TEXTS["40-numpy-2"])
    from_file = CliRunner().invoke(command, [str(report), "--dry-run", "--format", "json"])
    from_stdin = CliRunner().invoke(command, ["-", "--dry-run", "--format", "json"], input=TEXTS["40-numpy-2"])
    assert from_file.exit_code == from_stdin.exit_code == 0
    document = json.loads(from_file.stdout)
    assert document == json.loads(from_stdin.stdout)
    words = document["nearest"]["commands"][0].split()
    assert words[:2] == ["envbuilder", "run"]
    (tmp_path / words[2]).write_text(document["nearest"]["matrix"])  # as a dry run's answer says: it wrote nothing
    assert read_matrix(tmp_path / words[2]).include[0].tensorflow == "2.15.1"
    silent = CliRunner().invoke(command, ["-", "--dry-run"], input=TEXTS["53-nothing-said"])
    assert silent.exit_code == 8


@pytest.mark.parametrize("text", ["", " \n\t", "\n" * 100])
def test_empty_report_is_an_input_error(text: str) -> None:
    with pytest.raises(InputError):
        analyse(text, load())
