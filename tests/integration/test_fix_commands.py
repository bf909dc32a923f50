"""Commands that replies propose: an installer resolves every one of them, on the Python that they are for."""

import re
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import threads

from envbuilder.catalog.store import load
from envbuilder.reproduce.analysis import analyse

pytestmark = [pytest.mark.network, pytest.mark.timeout(900)]

UV = Path(__file__).parents[2] / ".venv" / "bin" / "uv"
CORPUS = Path(__file__).parents[1] / "corpus"
PAGES = Path(__file__).parents[2] / "docs" / "how-to" / "messages"


def proposed(step: int = 1) -> dict[tuple[str, ...], str]:
    """List what the pip commands of one answer in ``step`` install, each with the Python that it is for."""
    catalog = load()
    texts = [thread.report for thread in threads.load().values()]
    texts += [path.read_bytes().decode() for path in sorted(CORPUS.glob("*.txt"))]
    found: dict[tuple[str, ...], str] = {}
    for text in texts[::step]:
        near = analyse(text, catalog).document.nearest
        for command in near.commands if near is not None else ():
            words = shlex.split(command)
            if words[:2] == ["pip", "install"]:
                found[tuple(words[2:])] = near.environment.python or "3.10"
    return found


def shown() -> dict[tuple[str, ...], str]:
    """List what the commands on the pages about messages install, which are for Python 3.11."""
    text = "".join(path.read_text() for path in sorted(PAGES.glob("*.md")))
    return {tuple(shlex.split(line)): "3.11" for line in re.findall(r"^pip install (.+)$", text, re.MULTILINE)}


def refused(commands: dict[tuple[str, ...], str], folder: Path) -> dict[str, str]:
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


def test_some_proposed_commands_are_resolved(tmp_path: Path) -> None:
    commands = proposed(20)
    assert len(commands) >= 2
    assert not refused(commands, tmp_path)


def test_commands_of_pages_are_resolved(tmp_path: Path) -> None:
    commands = shown()
    assert len(commands) >= 7
    assert not refused(commands, tmp_path)


@pytest.mark.full
def test_every_proposed_command_is_resolved(tmp_path: Path) -> None:
    commands = proposed()
    assert len(commands) >= 10
    assert not refused(commands, tmp_path)
