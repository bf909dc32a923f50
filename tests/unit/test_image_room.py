"""A build that cannot end for want of room says so before it begins."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from factories import environment
from fake_engine import FakeEngine

from envbuilder.engine.port import EngineInfo
from envbuilder.errors import InfrastructureError
from envbuilder.image.bases import NEEDED, ask_for_room

ENVIRONMENT = environment(flavor="cpu")


class Usage(NamedTuple):
    """What a disk says."""

    free: int


class Rooted(FakeEngine):
    """An engine whose folders are here."""

    root: str = ""

    def info(self) -> EngineInfo:
        """Say where they are."""
        return replace(super().info(), root=self.root)


def asked(monkeypatch: pytest.MonkeyPatch, folder: Path | None, free: int) -> InfrastructureError | None:
    """Ask with so much room."""
    engine = Rooted()
    engine.root = str(folder) if folder else ""
    if folder is not None and folder.exists():
        monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(free))
    try:
        ask_for_room(ENVIRONMENT, engine)
    except InfrastructureError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("free", "end"), [(NEEDED["cpu"], ""), (NEEDED["cpu"] - 1, "warning"), (NEEDED["cpu"] // 8 - 1, "error")]
)
def test_room_is_asked_for_before(
    free: int, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Enough is silent, less warns with what to do, next to nothing is the machine's trouble (5)."""
    error = asked(monkeypatch, tmp_path, free)
    said = capsys.readouterr().err
    assert (error is not None) == (end == "error")
    assert ("GB free" in said) == (end == "warning")
    for text in filter(None, (said, str(error or ""))):
        assert "needs about 4 GB" in text
        assert "envbuilder clean --cache" in text


@pytest.mark.parametrize("folder", [None, Path("/nonexistent/docker")])
def test_nothing_is_claimed_of_a_disk_elsewhere(
    folder: Path | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An engine on another host, or one that does not say where it keeps images, is let build."""
    assert asked(monkeypatch, folder, 0) is None
    assert capsys.readouterr().err == ""
