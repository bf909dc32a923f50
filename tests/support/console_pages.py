"""Pages that show commands with their output: run each command again, and write the page that is true now.

Run: ``python tests/support/console_pages.py docs/traps.md``
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from envbuilder.cli import root

_BLOCK = re.compile(r"^```console\n\$ (?P<command>envbuilder [^\n]*)\n(?P<output>.*?)^```$", re.MULTILINE | re.DOTALL)


class Shown(NamedTuple):
    """One command of a page, and what the page says that it prints."""

    command: str
    output: str


def shown(page: str) -> tuple[Shown, ...]:
    return tuple(Shown(found["command"], found["output"]) for found in _BLOCK.finditer(page))


def output_of(command: str) -> str:
    _, *words = shlex.split(command)
    return CliRunner().invoke(root, words).stdout.rstrip("\n") + "\n"


def rerun(page: str) -> str:
    """Return a page with the output that its commands have now."""
    return _BLOCK.sub(lambda found: f"```console\n$ {found['command']}\n{output_of(found['command'])}```", page)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(rerun(path.read_text()))
