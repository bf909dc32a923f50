"""The progress of real builds and validations on a terminal; for pipes see tests/unit/test_support_console.py."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from terminals import Terminal, follow

from envbuilder.engine.docker import connect

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.full]

MATRIX = """\
name: two
axes:
  tensorflow: ["2.16.2", "2.20.0"]
  os: [debian-bookworm]
  flavor: [cpu]
  form: [runtime]
packages: [tqdm]
"""
REPOSITORY = "envbuilder/progress"
RUN = ["-m", "envbuilder", "run", "two.yaml", "--repository", REPOSITORY, "--fresh"]


@pytest.fixture(autouse=True)
def _images_are_removed() -> Iterator[None]:
    yield
    engine = connect()
    for tag in engine.names(REPOSITORY):
        engine.remove(tag)


def test_terminal_of_a_run_of_two_environments_is_never_silent(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(MATRIX)
    shown = Terminal(80, RUN, tmp_path)
    follow([shown])
    assert shown.longest_rest() < 2
    last = "\n".join(shown.changes[-1][1])
    assert all(word in last for word in ("PASSED", "slowest step", "next: docker run"))
    assert any("1/2 finished" in line and " left" in line for _, lines in shown.changes for line in lines)
