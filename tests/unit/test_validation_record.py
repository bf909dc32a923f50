"""Which verdict of before stands for a validation of now: one of the same image, suite, driver and GPUs, unaltered."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from factories import environment, verdict
from fake_engine import FakeEngine

from envbuilder.matrix import Budgets
from envbuilder.validation import suite_plan, verdict_store
from envbuilder.validation.validate import ValidationRequest
from envbuilder.validation.verdict_store import History, validate_and_record
from envbuilder.verdict import Verdict
from envbuilder.workspace import Workspace


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
