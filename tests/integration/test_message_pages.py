"""Commands of the pages about messages: those for a container run in a good image (``sh cpu`` and ``sh gpu``)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from envbuilder.controls.control import Base
    from envbuilder.controls.run import Controller

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.timeout(900)]

PAGES = sorted((Path(__file__).parents[2] / "docs" / "how-to" / "messages").glob("*.md"))
BLOCKS = [
    pytest.param(base, commands, id=f"{page.stem}-{base}")
    for page in PAGES
    for base, commands in re.findall(r"^```sh (cpu|gpu)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
]


def test_most_pages_have_commands_that_run_here() -> None:
    assert len(BLOCKS) >= 7


@pytest.mark.parametrize(("base", "commands"), BLOCKS)
def test_commands_run_in_an_image(controller: Controller, base: Base, commands: str) -> None:
    image = controller.good(base).record.image
    done = subprocess.run(
        ["docker", "run", "--rm", "--network", "none", image, "bash", "-o", "pipefail", "-c", commands],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()
