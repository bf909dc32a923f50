"""The command line for tests: every command by its words, and a run of one, in this process or in its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from envbuilder.cli import COMMANDS, main, root


def commands() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command and every command of a group, with its words."""
    for name, *_ in COMMANDS:
        command = root.get_command(click.Context(root), name)
        assert command is not None
        children = command.commands.items() if isinstance(command, click.Group) else ()
        yield from (((name, child), one) for child, one in children)
        if not isinstance(command, click.Group):
            yield (name,), command


WITH_JSON = [
    words
    for words, command in commands()
    if any("--format" in one.opts and "json" in getattr(one.type, "choices", ()) for one in command.params)
]
WITHOUT = [words for words, _ in commands() if words not in WITH_JSON]


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(list(words))
    printed = capsys.readouterr()
    return int(str(left.value.code)), printed.out, printed.err


def envbuilder(folder: Path, *words: str, check: bool = False, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **variables}
    command = [sys.executable, "-m", "envbuilder", *words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1200, check=check
    )
