"""The progress of real builds and validations: on a terminal and in a pipe."""

import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from table_rows import beside
from terminals import Terminal, follow

from envbuilder.engine.docker import connect

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.full]

MATRIX = beside(__file__)["matrix"]
REPOSITORY = "envbuilder/progress"
RUN = ["-m", "envbuilder", "run", "four.yaml", "--repository", REPOSITORY, "--fresh"]


@pytest.fixture(autouse=True)
def _images_are_removed() -> Iterator[None]:
    yield
    engine = connect()
    for tag in engine.names(REPOSITORY):
        engine.remove(tag)


def test_terminal_of_a_run_of_four_environments_is_never_silent(tmp_path: Path) -> None:
    (tmp_path / "four.yaml").write_text(MATRIX)
    shown = Terminal(80, RUN, tmp_path)
    follow([shown])
    assert shown.longest_rest() < 2
    last = "\n".join(shown.changes[-1][1])
    assert all(word in last for word in ("PASSED", "slowest step", "next: docker run"))
    lines = [line for _, screen in shown.changes for line in screen]
    assert any("3/4 finished" in line for line in lines)
    assert any("/4 finished" in line and " left" in line for line in lines)


def test_pipe_of_a_run_is_never_silent(tmp_path: Path) -> None:
    (tmp_path / "four.yaml").write_text(MATRIX)
    with subprocess.Popen(
        [sys.executable, *RUN, "-s", "tensorflow=2.20.0"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        times = [time.monotonic(), *(time.monotonic() for _ in process.stderr), time.monotonic()]
    assert process.returncode == 0
    assert len(times) > 6
    assert max(after - before for before, after in pairwise(times)) <= 30
