"""README's examples of an upgrade, as they are written, to their end: on a machine without registry, base and cache."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import bare_machine
import msgspec
import pytest
from upgrades import USERS_TESTS

from envbuilder.engine.docker import connect
from envbuilder.upgrade.document import UpgradeDocument

ROOT = Path(__file__).parents[2]
WRITTEN = [
    shlex.split(line)[1:]
    for line in dict.fromkeys(
        re.findall(r"(?:`|^\$ )(envbuilder upgrade [0-9][^`\n]*)", (ROOT / "README.md").read_text(), re.MULTILINE)
    )
]
"""The words of every comparison in README."""
EXITS = {"ADOPT": 0, "ADOPT_WITH_NOTES": 0, "REJECT": 1, "UNDECIDED": 8}


def test_readme_compares_one_pair() -> None:
    assert [words[:3] for words in WRITTEN] == [["upgrade", "2.15.1", "2.16.2"]]


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Path]:
    """Give an empty folder, and take the images that are made from it out of the engine again."""
    yield tmp_path
    engine = connect()
    for name in ("tensorflow", "base"):
        for tag in engine.names(f"{bare_machine.PREFIX}/{name}"):
            engine.remove(tag)


@pytest.mark.engine
@pytest.mark.network
@pytest.mark.full
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("words", WRITTEN, ids=lambda words: f"{words[1]} to {words[2]}")
def test_an_example_runs_as_written(words: list[str], empty: Path) -> None:
    folder = empty / "work"
    folder.mkdir()
    if "--suite" in words:
        users = folder / words[words.index("--suite") + 1]
        users.mkdir()
        (users / "test_users.py").write_text(USERS_TESTS)
    done = subprocess.run(
        [sys.executable, bare_machine.__file__, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(empty / "cache")},
        capture_output=True,
        text=True,
        timeout=5000,
        check=False,
    )
    old, new = words[1:3]
    (path,) = folder.glob("out/upgrades/*/upgrade.json")
    document = msgspec.json.decode(path.read_bytes(), type=UpgradeDocument)
    assert done.returncode == EXITS[document.decision], done.stderr[-2000:]
    assert (document.old.tensorflow, document.new.tensorflow) == (old, new)
    assert document.old.verdict == document.new.verdict == "PASSED"
    assert document.row == "Python 3.11 on debian-bookworm"
    head = done.stdout.splitlines()[:6]
    assert any(document.decision in line for line in head)
    assert any(document.row in line and document.new.environment.id in line for line in head)
    assert document.gaps == ()
    assert len(document.differences.timings or ()) >= 9
    assert json.loads(path.read_bytes())["rounds"] == 15
    assert {one.name for one in folder.iterdir()} <= {"out", "our_tests"}, "nothing is written beside out/"
    if "--suite" in words:
        assert document.decision == "REJECT"
        assert "1 of 2 tests, 1 of 2 pass on both" in done.stdout
        assert "no attribute 'estimator'" in done.stdout
