"""Reproducing without an engine: the prediction, the recipe, the comparison, the way out, the reply."""

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
from envbuilder.jobs.reproduction import with_deviations
from envbuilder.reproduce.analysis import analyse, with_command
from envbuilder.reproduce.compare import RunObservation, compare, proof, repeated_messages
from envbuilder.reproduce.document import NearestRun, ReproduceDocument, Run, as_markdown, as_text
from envbuilder.reproduce.messages.catalog import find
from envbuilder.verdict import Word
from envbuilder.workspace import Workspace

CORPUS = Path(__file__).parents[1] / "corpus"
TEXTS = {path.stem: path.read_bytes().decode() for path in sorted(CORPUS.glob("*.txt"))}


def answer(name: str) -> ReproduceDocument:
    """Answer a report of the corpus without building anything, on a host without a driver."""
    return analyse(TEXTS[name], load()).document


def judged(reported: str, seen: str) -> bool | None:
    """Compare two texts on a host with a simulated driver and no GPU."""
    return compare(find(reported), find(seen), (), (), with_gpu=False, with_driver=True).reproduced


def test_compare_uses_messages_and_values() -> None:
    missing = "Could not load dynamic library '{0}'; dlerror: {0}: cannot open shared object file\n"
    cudart, cudnn = missing.format("libcudart.so.11.0"), missing.format("libcudnn.so.8")
    assert judged(cudart, "2026-01-01 W x.cc:64] " + cudart) is True
    assert judged(cudart, "all is well") is False
    assert judged(cudart, cudnn) is False
    assert judged(cudart + cudnn, cudart) is None
    assert judged("Could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED", "") is None
    assert judged("my model is slow", cudart) is None
    assert repeated_messages(find(cudart), find(cudart)) != ()
    assert repeated_messages(find(cudart), find("[]")) == ()


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
    refuted = msgspec.structs.replace(document.nearest, proof=NearestRun(proven=False))
    assert exit_codes.of(msgspec.structs.replace(document, run=Run(reproduced=True), nearest=refuted)) == 1
    assert exit_codes.of(answer("53-nothing-said")) == 8


def seen(word: Word, text: str = "", *codes: Code) -> RunObservation:
    """Make what was seen in a nearest environment: what it printed, the suite's verdict and its errors."""
    found = tuple(Finding(code=code, severity=Severity.ERROR, subject="it", message="m") for code in codes)
    judged = factories.verdict(verdict=word, findings=found, reasons=("keras failed",))
    return RunObservation("sha256:0", find(text), text, judged, simulated=False)


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
def test_corpus_report_renders_as_text_and_reply(name: str) -> None:
    document = answer(name)
    assert as_text(document)
    reply, confidence = as_markdown(document), document.diagnosis.confidence
    assert reply.startswith(f"**Cause ({'not sure' if confidence == 'unsure' else confidence}")
    assert reply.count("compatible environment: ") == (document.nearest is not None), "it stands once"
    assert ("**Fix:** " in reply) == bool(document.diagnosis.fix or document.nearest)
    assert not re.search(r"(?m)^(?:#+ .*|\*\*[^*]+\*\*)\n*(?:\Z|\n#+ |\n\*\*)", reply), "a heading over nothing"
    assert ("The output of this" in reply) == (confidence == "unsure")
    if confidence == "certain":
        quoted = [row.known for row in document.symptoms if row.line == document.diagnosis.line]
        assert any(row.code in document.diagnosis.codes[:1] or row.layer == "code" for row in quoted)


def test_reply_contains_cause_evidence_fix_and_proof() -> None:
    document = answer("29-tf-2.4.1-rtx-3090")
    run = Run(
        image="envbuilder/reproduced:0", reproduced=True, simulated=True, proof=(("a", "the line that was seen"),)
    )
    reply = as_markdown(msgspec.structs.replace(document, run=run))
    for part in ("**Cause (likely):**", "CUDA `11.2` (line 7)", "`cuda 11.2 → 11.0`", "**Fix:** ", "cuda-11.0/lib64",
                 "Reproduced: **yes**", "simulated host", "the line that was seen"):  # fmt: skip
        assert part in reply, part


def test_reply_names_no_file_or_command_of_envbuilder(tmp_path: Path) -> None:
    document = with_command(answer("59-driver-470"), Workspace(tmp_path))
    reply = as_markdown(document)
    assert all(change in reply for change in document.nearest.changes)
    assert "pip install tensorflow==" in reply
    assert not re.search(r"envbuilder|out/reproduce|nearest\.yaml", reply)


def test_dry_run_contains_the_matrix_that_a_real_run_writes(tmp_path: Path) -> None:
    dry = with_command(answer("59-driver-470"))
    lines = as_text(dry).splitlines()
    assert "  $ envbuilder run nearest.yaml" in lines
    start = lines.index("  nearest.yaml:") + 1
    saved = tmp_path / "nearest.yaml"
    saved.write_text("\n".join(lines[start:]))
    assert [row.tensorflow for row in read_matrix(saved).include] == ["2.14.1"]
    real = with_command(answer("59-driver-470"), Workspace(tmp_path))
    left = tmp_path / real.nearest.commands[0].split()[2]
    assert left.read_text() == real.nearest.matrix == (dry.nearest.matrix if dry.nearest else None)


def test_reply_contains_no_mention_or_link_of_the_report() -> None:
    error = "ImportError: libcudart.so.9.0: cannot open shared object file"
    text = f"tensorflow 2.15.1\n{error} @maintainer [x](http://e) | `y` #1\n"
    document = analyse(text, load()).document
    for line in re.sub(r"(?s)```text\n.*?\n```", "", as_markdown(document)).splitlines():
        outside = "".join(part for index, part in enumerate(line.split("`")) if index % 2 == 0)
        assert "@maintainer" not in outside
        assert "](http://e" not in outside


def test_lock_with_deviations_has_no_hashes_of_replaced_versions() -> None:
    wrapt = factories.pin("wrapt", "1.0")
    text = with_deviations(factories.pin("numpy", "1.26.4") + wrapt, ("numpy==2.0.0", "torch==2.4.1"))
    assert sorted(text.replace(wrapt, "").split()) == ["numpy==2.0.0", "torch==2.4.1"]
    assert wrapt in text


def test_command_reads_file_or_stdin_and_exits_by_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report = tmp_path / "report.txt"
    report.write_text(TEXTS["40-numpy-2"])
    from_file = CliRunner().invoke(command, [str(report), "--dry-run", "--format", "json"])
    from_stdin = CliRunner().invoke(command, ["-", "--dry-run", "--format", "json"], input=TEXTS["40-numpy-2"])
    assert from_file.exit_code == from_stdin.exit_code == 0
    assert json.loads(from_file.stdout) == json.loads(from_stdin.stdout)
    silent = CliRunner().invoke(command, ["-", "--dry-run"], input=TEXTS["53-nothing-said"])
    assert silent.exit_code == 8


@pytest.mark.parametrize("text", ["", " \n\t", "\n" * 100])
def test_empty_report_is_an_input_error(text: str) -> None:
    with pytest.raises(InputError):
        analyse(text, load())
