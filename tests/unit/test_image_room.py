"""A build that cannot end for want of room says so before it begins."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from factories import environment
from fake_engine import FakeEngine

from envbuilder.engine.port import EngineInfo
from envbuilder.errors import InfrastructureError
from envbuilder.image.bases import NEEDED, ask_for_room


class Rooted(FakeEngine):
    root: str = ""

    def info(self) -> EngineInfo:
        return replace(super().info(), root=self.root)


def asked(root: Path | None) -> str:
    """Ask an engine with its folders there; return its refusal."""
    engine = Rooted()
    engine.root = str(root) if root else ""
    try:
        ask_for_room(environment(flavor="cpu"), engine)
    except InfrastructureError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("free", "end"), [(NEEDED["cpu"], ""), (NEEDED["cpu"] - 1, "warning"), (NEEDED["cpu"] // 8 - 1, "error")]
)
def test_less_room_warns_and_almost_none_is_an_error(
    free: int, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    texts = {"error": asked(tmp_path), "warning": capsys.readouterr().err}
    assert [kind for kind, text in texts.items() if text] == [end] * bool(end)
    for text in filter(None, texts.values()):
        assert "needs about 4 GB" in text
        assert "envbuilder clean --cache" in text


@pytest.mark.parametrize("root", [None, Path("/nonexistent/docker")])
def test_nothing_is_claimed_of_a_disk_elsewhere(root: Path | None, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(root) == capsys.readouterr().err == ""
