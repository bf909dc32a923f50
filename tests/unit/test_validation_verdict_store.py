"""Stored verdicts: reuse of the newest one, reading of files, and the history."""

from __future__ import annotations

import json
import multiprocessing
import random
import sqlite3
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from factories import H100, check, digest, environment, failed_verdict, gpu_verdict, inconclusive_verdict, verdict
from fake_engine import FakeEngine
from hypothesis import given
from hypothesis import strategies as st

from envbuilder.errors import InfrastructureError, InputError, UsageError
from envbuilder.matrix import Budgets
from envbuilder.validation import suite_plan, verdict_store
from envbuilder.validation import verdict_store as recording
from envbuilder.validation.validate import ValidationRequest
from envbuilder.validation.verdict_store import (
    History,
    Validated,
    moment,
    read_verdict,
    users_verdict,
    validate_and_record,
)
from envbuilder.verdict import HostRef, Verdict, contradiction
from envbuilder.workspace import Workspace, read_document, write_document


@dataclass
class Host:
    """A host with a driver and GPUs as its kernel names them, and a suite that counts its runs."""

    folder: Path
    asked: list[str] = field(default_factory=list)

    def has(self, driver: str, *models: str) -> None:
        """Put in a driver and GPUs."""
        (self.folder / "version").write_text(driver)
        for old in self.folder.glob("gpus/*/information"):
            old.unlink()
        for number, model in enumerate(models):
            path = self.folder / "gpus" / f"0000:0{number}:00.0" / "information"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"Model: \t\t {model}\nIRQ:   \t\t {len(self.asked) + 40}\nGPU UUID: \t GPU-{number}\n")

    def validate(self, *, image: str = "sha256:1", fresh: bool = False, **given: object) -> bool:
        """Validate; tell whether anything was run for it."""
        request = ValidationRequest(image, environment=environment(), **given)  # type: ignore[arg-type]
        workspace = Workspace(self.folder)
        return validate_and_record(request, FakeEngine(), workspace, on_progress=lambda _: None, fresh=fresh)[1]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host(tmp_path)
    monkeypatch.setattr(verdict_store, "DRIVER_VERSION", tmp_path / "version")
    monkeypatch.setattr(verdict_store, "GPUS", tmp_path / "gpus")

    def counted(engine: object, request: ValidationRequest, **more: object) -> Verdict:
        made.asked.append(request.image)
        return verdict()

    monkeypatch.setattr(verdict_store, "validate", counted)
    made.has("535.104.05", "NVIDIA H100", "NVIDIA A100")
    assert made.validate()
    return made


def test_the_same_is_not_run_again(host: Host) -> None:
    """A verdict stands until something that it depends on changes; where a GPU's interrupt lies is no such thing."""
    assert not host.validate()
    host.has("535.104.05", "NVIDIA H100", "NVIDIA A100")
    assert not host.validate()
    assert len(host.asked) == 1


@pytest.mark.parametrize(
    ("driver", "models"),
    [
        ("550.54.15", ("NVIDIA H100", "NVIDIA A100")),
        ("535.104.05", ("NVIDIA H100", "NVIDIA H100")),
        ("535.104.05", ("NVIDIA H100",)),
        ("535.104.05", ()),
    ],
    ids=["driver", "another GPU", "one GPU less", "no GPU"],
)
def test_another_kind_of_host_is_another_run(host: Host, driver: str, models: tuple[str, ...]) -> None:
    """What was found on another driver or on other GPUs is nothing about these."""
    host.has(driver, *models)
    assert host.validate()
    assert not host.validate()


def test_another_question_is_another_run(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Image, budgets, profile, GPUs that are handed over, and the suite itself: each has a verdict of its own."""
    changes: tuple[dict[str, object], ...] = (
        {"image": "sha256:2"},
        {"budgets": Budgets(import_s=1.0)},
        {"profile": "full"},
        {"gpus": "none"},
        {"lock": "numpy==2"},
    )
    assert [host.validate(**change) for change in changes] == [True] * len(changes)  # type: ignore[arg-type]
    monkeypatch.setattr(suite_plan, "digest", lambda: "sha256:another")
    assert host.validate(lock="numpy==2")
    assert host.validate(lock="numpy==2", fresh=True)


def test_what_is_interrupted_before_it_is_in_the_history_does_not_stand(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verdict stands once everything was done for it: one that stood before would never come into the history."""

    def stopped(history: object, verdicts: object) -> None:
        raise KeyboardInterrupt

    before = History(Workspace(host.folder).history).count()
    monkeypatch.setattr(verdict_store, "validate", lambda *_, **__: verdict(finished="2026-11-22T10:00:00+00:00"))
    assert host.validate(image="sha256:2")
    assert History(Workspace(host.folder).history).count() == before + 1
    with monkeypatch.context() as patch:
        patch.setattr(History, "add", stopped)
        with pytest.raises(KeyboardInterrupt):
            host.validate(image="sha256:3")
    assert host.validate(image="sha256:3"), "it was interrupted before it was kept for good"


def test_a_verdict_that_was_altered_stands_for_nothing(host: Host) -> None:
    """One byte more in the file, and the suite runs again."""
    path = Workspace(host.folder).results(environment().id) / "verdict.json"
    path.write_bytes(path.read_bytes() + b" ")
    assert host.validate()


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
        with pytest.raises(InputError, match="not a verdict"):
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


ALL = (verdict(), failed_verdict(finished="2026-11-20T11:00:00+02:00"), gpu_verdict(), inconclusive_verdict())


def test_what_is_added_comes_back_whole_and_in_order(tmp_path) -> None:
    """Every verdict comes back as it was, by the time at which it ended, whatever zone wrote it."""
    history = History(tmp_path / "sub" / "history.sqlite3")
    assert history.since() == ()
    assert history.add(ALL) == len(ALL)
    found = history.since()
    assert all(one in found for one in ALL)
    assert len(found) == len(ALL)
    assert found[0].finished == "2026-11-20T11:00:00+02:00"


def test_adding_again_changes_nothing(tmp_path) -> None:
    """A verdict is kept once, however often it is handed in."""
    history = History(tmp_path / "h")
    assert [history.add(ALL), history.add(ALL), history.add(())] == [len(ALL), 0, 0]
    assert len(history.since()) == len(ALL)


def test_since_is_a_bound_that_counts_itself(tmp_path) -> None:
    """A verdict that ended at the very time asked for is in the answer."""
    history = History(tmp_path / "h")
    history.add([verdict()])
    at = datetime(2026, 11, 20, 10, 3, tzinfo=UTC)
    assert len(history.since(at)) == 1
    assert history.since(at + timedelta(seconds=1)) == ()


@pytest.mark.parametrize("statement", ["DELETE FROM verdicts", "UPDATE verdicts SET verdict = 'PASSED'"])
def test_the_file_itself_refuses_changes(tmp_path, statement) -> None:
    """Not even another program can delete or change a row without first dropping the triggers."""
    path = tmp_path / "h"
    History(path).add([failed_verdict()])
    with sqlite3.connect(path) as connection, pytest.raises(sqlite3.Error, match="append-only"):
        connection.execute(statement)
    assert History(path).since() == (failed_verdict(),)


def _write(path: Path, writer: int) -> None:
    for number in range(20):
        History(path).add([verdict(suite=digest(f"{writer}/{number}"))])


def test_several_processes_write_at_once(tmp_path) -> None:
    """Four processes that begin on a file that is not there yet lose nothing."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_write, args=(tmp_path / "h", writer)) for writer in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    assert len(History(tmp_path / "h").since()) == 80


def test_a_foreign_or_newer_file_is_refused(tmp_path) -> None:
    """What is no history of ours is left alone and named."""
    (tmp_path / "text").write_text("not a database, but long enough to look at" * 10)
    with pytest.raises(InfrastructureError, match="text"):
        History(tmp_path / "text").since()
    with sqlite3.connect(tmp_path / "newer") as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(UsageError, match="newer"):
        History(tmp_path / "newer").since()


def test_a_verdict_of_another_version_is_counted_not_shown(tmp_path) -> None:
    """A document that this version cannot read breaks nothing, stays in the file, and is counted."""
    history = History(tmp_path / "h")
    history.add([verdict()])
    with sqlite3.connect(history.path) as connection:
        row = (
            "key",
            "env",
            "",
            "MAYBE",
            "cpu",
            0,
            "2027-01-01T00:00:00.000000Z",
            b'{"schema": "envbuilder/verdict/v9"}',
        )
        connection.execute("INSERT INTO verdicts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    assert history.since() == (verdict(),)
    assert history.count() == 2
    assert history.count(datetime(2026, 12, 1, tzinfo=UTC)) == 1
    assert History(tmp_path / "none").count() == 0


@given(st.text(max_size=20))
def test_any_text_is_a_time_or_a_usage_error(text) -> None:
    """`--since` never fails in another way, and never gives a time without a zone."""
    try:
        assert moment(text, datetime(2026, 11, 20, tzinfo=UTC)).tzinfo is not None
    except UsageError:
        return


def test_since_reads_dates_and_ages() -> None:
    """A date is its midnight in UTC, an age is counted back from now."""
    now = datetime(2026, 11, 20, 12, tzinfo=UTC)
    assert moment("2026-11-01", now) == datetime(2026, 11, 1, tzinfo=UTC)
    assert moment("30d", now) == now - timedelta(days=30)
