"""Pages that show commands with their output: run each command again, and write the page that is true now.

Run: ``python tests/support/console_pages.py docs/traps.md``
"""

import re
import shlex
import sys
from collections.abc import Iterator
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


def commands(page: str) -> Iterator[Shown]:
    """Yield each command of a page's blocks, which may have several, with the output below it."""
    for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, output = part.partition("\n")
            yield Shown(line, output)


def fits(shown: str, printed: str) -> bool:
    """Compare an output with the page's: ``…`` is any text of a line, and a line of its own any lines or none."""
    texts = (".*?".join(map(re.escape, line.split("…"))) for line in shown.strip("\n").splitlines())
    patterns = (r"(?:.*\n)*?" if re.fullmatch(r"(\\ )*\.\*\?", text) else rf"{text}\n" for text in texts)
    return re.fullmatch("".join(patterns) or r"\n", printed.strip("\n") + "\n") is not None


def rerun(page: str) -> str:
    """Return a page with the output that its commands have now."""
    return _BLOCK.sub(lambda found: f"```console\n$ {found['command']}\n{output_of(found['command'])}```", page)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(rerun(path.read_text()))
