"""Terminals with a program in each, as people see them."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pyte


class Terminal:
    """A terminal of one width with a program in it. ``changes`` are the screens with their times."""

    def __init__(self, width: int, words: Sequence[str], folder: Path | None = None) -> None:
        self.screen = pyte.Screen(width, 24)
        self.stream = pyte.ByteStream(self.screen)
        self.changes: list[tuple[float, list[str]]] = []
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "", "LINES": ""}
        self.process = subprocess.Popen(
            [sys.executable, *words], stdin=slave, stdout=slave, stderr=slave, env=env, cwd=folder
        )
        os.close(slave)

    def feed(self) -> bool:
        """Take output; return False after its end."""
        try:
            data = os.read(self.master, 1 << 16)
        except OSError:  # the program has closed its terminal
            return False
        self.stream.feed(data)
        shown = [line.rstrip() for line in self.screen.display]
        if not self.changes or shown != self.changes[-1][1]:
            self.changes.append((time.monotonic(), shown))
        return True

    def longest_rest(self) -> float:
        """Return the seconds for which the screen was unchanged at most, from the first output on."""
        return max(after - before for before, after in pairwise(at for at, _ in self.changes))


def follow(terminals: Sequence[Terminal]) -> None:
    """Take the output of all programs until they end, with exit code 0."""
    left = {one.master: one for one in terminals}
    while left:
        for ready in select.select(list(left), [], [], 60)[0]:
            if not left[ready].feed():
                os.close(ready)
                assert left.pop(ready).process.wait(30) == 0
