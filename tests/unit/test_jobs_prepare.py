"""Locking anew says what changed: the environment's lock, and those of its system beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envbuilder.catalog.store import load
from envbuilder.choice import choose
from envbuilder.console import Console
from envbuilder.image import context, system_lock
from envbuilder.jobs.prepare import Relocked, relock
from envbuilder.workspace import Workspace

LOCK = "tensorflow-cpu==2.20.0 \\\n    --hash=sha256:" + "0" * 64 + "\n"


def test_a_newer_package_of_the_system_is_a_changed_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first lock is new, an equal one unchanged, and another version of a system's package changed."""
    (tmp_path / "m.yaml").write_text(
        json.dumps(
            {
                "name": "ours",
                "system_packages": ["git"],
                "include": [{"tensorflow": "2.20.0", "os": "debian-bookworm"}],
            }
        )
    )
    workspace, version = Workspace(tmp_path), ["1"]
    monkeypatch.setattr(context, "lock", lambda *_: LOCK)
    monkeypatch.setattr(system_lock, "resolve", lambda *_: f"{'0' * 64}  git_{version[0]}_amd64.deb\n")
    choices = (choose(str(tmp_path / "m.yaml"), (), workspace, load()),)
    said = [relock(choices, workspace, Console()), relock(choices, workspace, Console())]
    version[0] = "2"
    said.append(relock(choices, workspace, Console()))
    assert said == [Relocked(1, 0), Relocked(0, 1), Relocked(1, 0)]
    folder = workspace.context(choices[0].environments[0].id)
    assert "git=2 &&" in (folder / "Dockerfile").read_text()
