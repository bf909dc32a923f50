"""The tutorial, word for word: its commands run in order in one folder and print what the page shows."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial.md").read_text()

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.full]


def saved_files() -> dict[str, str]:
    return dict(re.findall(r"Save this as `([^`]+)`:\n\n```yaml\n(.*?)```", PAGE, re.DOTALL))


def commands() -> list[tuple[str, str]]:
    blocks = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    parts = [re.split(r"^\$ ", block, flags=re.MULTILINE)[1:] for block in blocks]
    return [(line, output) for block in parts for line, _, output in (part.partition("\n") for part in block)]


def test_tutorial_commands_succeed_and_print_what_the_page_shows(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "images", tmp_path / "images")
    for name, text in saved_files().items():
        (tmp_path / name).write_text(text)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ran = 0
    for command, output in commands():
        done = subprocess.run(
            shlex.split(command), cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True,
            timeout=1200, check=False,
        )  # fmt: skip
        expected = 1 if "incompatible" in output else 0
        assert done.returncode == expected, f"{command}: {done.stderr[-2000:]}"
        assert output.strip() in done.stdout, command
        ran += 1
    assert ran >= 6
    assert (tmp_path / "out" / "report" / "index.html").exists()
