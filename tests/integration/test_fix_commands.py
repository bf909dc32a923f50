"""Commands of replies and pages: an installer resolves them, and those for a container run in a good image.

The latter are in blocks ``sh cpu`` and ``sh gpu`` of the pages about messages.
"""

import re
import shlex
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import threads

from envbuilder.catalog.store import load
from envbuilder.controls.control import Base
from envbuilder.controls.run import Controller
from envbuilder.reproduce.analysis import analyse

pytestmark = [pytest.mark.network, pytest.mark.timeout(900)]

UV = Path(__file__).parents[2] / ".venv" / "bin" / "uv"
CORPUS = Path(__file__).parents[1] / "corpus"
PAGES = sorted((Path(__file__).parents[2] / "docs" / "how-to" / "messages").glob("*.md"))
Commands = dict[tuple[str, ...], str]


def proposed(step: int = 1) -> Commands:
    """List what the pip commands of one answer in ``step`` install, each with the Python that it is for."""
    catalog = load()
    texts = [thread.report for thread in threads.load().values()]
    texts += [path.read_bytes().decode() for path in sorted(CORPUS.glob("*.txt"))]
    found: Commands = {}
    for text in texts[::step]:
        near = analyse(text, catalog).document.nearest
        for command in near.commands if near is not None else ():
            words = shlex.split(command)
            if words[:2] == ["pip", "install"]:
                found[tuple(words[2:])] = near.environment.python or "3.10"
    return found


def shown() -> Commands:
    """List what the commands on the pages about messages install, which are for Python 3.11."""
    text = "".join(path.read_text() for path in PAGES)
    return {tuple(shlex.split(line)): "3.11" for line in re.findall(r"^pip install (.+)$", text, re.MULTILINE)}


def refused(commands: Commands, folder: Path) -> dict[str, str]:
    """Return uv's words for each requirement list that has no set of wheels; archives are built for metadata alone."""

    def resolve(number: int, wanted: tuple[str, ...], python: str) -> str:
        listed = folder / f"{number}.in"
        listed.write_text("".join(f"{text}\n" for text in wanted))
        made = subprocess.run(
            [UV, "pip", "compile", "--quiet", "--python-version", python, "--python-platform",
             "x86_64-manylinux_2_28", listed],
            capture_output=True, text=True, check=False, cwd=folder,
        )  # fmt: skip
        return made.stderr.strip()[-400:] if made.returncode != 0 else ""

    with ThreadPoolExecutor(4) as pool:  # each waits for the index most of the time
        answers = pool.map(resolve, range(len(commands)), commands.keys(), commands.values())
    return {" ".join(wanted): answer for wanted, answer in zip(commands, answers, strict=True) if answer}


@pytest.mark.parametrize(
    ("listed", "least"),
    [
        pytest.param(partial(proposed, 20), 2, id="some of replies"),
        pytest.param(shown, 7, id="of pages"),
        pytest.param(proposed, 10, id="of replies", marks=pytest.mark.full),
    ],
)
def test_commands_are_resolved(listed: Callable[[], Commands], least: int, tmp_path: Path) -> None:
    commands = listed()
    assert len(commands) >= least
    assert not refused(commands, tmp_path)


BLOCKS = [
    pytest.param(base, commands, id=f"{page.stem}-{base}")
    for page in PAGES
    for base, commands in re.findall(r"^```sh (cpu|gpu)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
]


def test_most_pages_have_commands_that_run_here() -> None:
    assert len(BLOCKS) >= 7


@pytest.mark.engine
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
