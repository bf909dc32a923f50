"""A stored verdict is believed where its results come to it, and where it is byte for byte the one that was kept."""

from __future__ import annotations

import json
import random
from pathlib import Path

import msgspec
import pytest
from factories import H100, check, environment, failed_verdict, gpu_verdict, verdict
from fake_engine import FakeEngine

from envbuilder.errors import InputError, UsageError
from envbuilder.validation import verdict_store as recording
from envbuilder.validation.validate import ValidationRequest
from envbuilder.validation.verdict_store import Validated, read_verdict, users_verdict, validate_and_record
from envbuilder.verdict import HostRef, Verdict, contradiction
from envbuilder.workspace import Workspace, read_document, write_document


def test_sound_verdicts_are_believed() -> None:
    """PASSED and FAILED verdicts that follow from their results contradict nothing."""
    gpu = check("matmul", level="gpu")
    for sound in (verdict(), failed_verdict(level="static"), gpu_verdict(checks=(*verdict().checks, gpu))):
        assert contradiction(sound) == ""


def test_a_host_may_give_cuda_one_of_its_gpus() -> None:
    """Judged with one GPU of two (CUDA_VISIBLE_DEVICES), it is a PASSED at level gpu, and none of several."""
    gpu = check("matmul", level="gpu")
    two = HostRef(driver="535.104.05", gpus=(H100, H100))
    one_used = gpu_verdict(checks=(*verdict().checks, gpu), host=two)
    assert contradiction(one_used) == ""
    assert contradiction(msgspec.structs.replace(one_used, level="multi-gpu")) != ""


@pytest.mark.parametrize(
    "altered",
    [
        failed_verdict(verdict="PASSED", level="cpu"),
        failed_verdict(verdict="INCONCLUSIVE"),
        verdict(level="gpu"),
        verdict(checks=()),
        verdict(simulated=True),
        gpu_verdict(checks=verdict().checks),
    ],
    ids=["a word", "a softer word", "a level", "no results", "simulated", "a level without a check"],
)
def test_a_word_that_its_results_do_not_bear_is_not_believed(
    altered: Verdict, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An altered word or level reads as no verdict, and is named; a user's own file is refused as input."""
    path = tmp_path / "verdict.json"
    write_document(path, altered)
    assert read_verdict(path) is None
    assert str(path) in capsys.readouterr().err
    with pytest.raises(InputError, match="but its own results give"):
        users_verdict(path)
    assert path.exists()


def test_a_users_file_is_never_moved(tmp_path: Path) -> None:
    """A file that is no verdict is refused and stays where it is; one that is not there is a usage error."""
    path = tmp_path / "verdict.json"
    for content in (b"\xff", b"{}", b"[" * 100_000):
        path.write_bytes(content)
        with pytest.raises(InputError, match="no verdict that can be read"):
            users_verdict(path)
        assert path.read_bytes() == content
    with pytest.raises(UsageError, match="nonsuch"):
        users_verdict(tmp_path / "nonsuch")


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Make a workspace with a verdict that was reached and kept; validating gives FAILED."""
    monkeypatch.setattr(recording, "validate", lambda *_, **__: failed_verdict())
    assert again(Workspace(tmp_path)) == ("FAILED", True)
    return Workspace(tmp_path)


def again(workspace: Workspace) -> tuple[str, bool]:
    """Validate, and return the word and whether anything was run."""
    request = ValidationRequest(image="sha256:1", environment=environment())
    found, fresh = validate_and_record(request, FakeEngine(), workspace, on_progress=lambda _: None)
    return found.verdict, fresh


def test_what_stands_is_not_run_again(kept: Workspace) -> None:
    """An unaltered verdict stands."""
    assert again(kept) == ("FAILED", False)


def test_an_altered_word_is_found_out(kept: Workspace) -> None:
    """A FAILED that was turned into PASSED on the disk is set aside, and the image is validated again."""
    path = kept.verdict(environment().id)
    path.write_text(path.read_text().replace('"verdict": "FAILED"', '"verdict": "PASSED"'))
    assert again(kept) == ("FAILED", True)
    assert path.with_name("verdict.json.damaged").exists()


def test_results_that_were_altered_with_the_word_are_found_out(kept: Workspace) -> None:
    """A verdict that is sound in itself and is not the one that was kept does not stand."""
    write_document(kept.verdict(environment().id), verdict())
    assert again(kept) == ("FAILED", True)


@pytest.mark.parametrize("name", ["verdict.json", "validated.json"])
def test_no_damaged_byte_changes_the_answer(name: str, kept: Workspace) -> None:
    """Any byte of what is kept may change: the answer stays FAILED, never a traceback and never another word."""
    path = kept.results(environment().id) / name
    whole = path.read_bytes()
    chance = random.Random(7)  # noqa: S311 - the same damage in every run
    for _ in range(25):
        data = bytearray(whole)
        data[chance.randrange(len(data))] ^= chance.randrange(1, 256)
        path.write_bytes(data)
        assert again(kept)[0] == "FAILED"
        whole = path.read_bytes()


def test_a_record_of_an_earlier_version_is_not_enough(kept: Workspace) -> None:
    """Without the digest of its verdict a key proves nothing: the image is validated again, once."""
    path = kept.results(environment().id) / "validated.json"
    found = read_document(path, Validated)
    assert found is not None
    path.write_text(json.dumps({"schema": found.schema, "key": found.key}))
    assert again(kept) == ("FAILED", True)
    assert again(kept) == ("FAILED", False)
    assert msgspec.json.decode(path.read_bytes(), type=Validated).verdict.startswith("sha256:")
