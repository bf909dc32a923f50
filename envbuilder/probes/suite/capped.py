"""Keep what a process prints without being drowned by it: the beginning and the end of each check's part."""

from __future__ import annotations

import re

HEAD = 8 * 1024
TAIL = 24 * 1024
CARRY = 512


class Capped:
    """Bytes of which only the first and the last are kept; ``total`` counts all."""

    def __init__(self, head: int = HEAD, tail: int = TAIL) -> None:
        self.head_limit = head
        self.tail_limit = tail
        self.head = b""
        self.tail = b""
        self.total = 0

    def add(self, data: bytes) -> None:
        """Take more bytes, keeping no more than the limits."""
        self.total += len(data)
        room = self.head_limit - len(self.head)
        if room > 0:
            self.head += data[:room]
            data = data[room:]
        if data:
            self.tail = (self.tail + data[-self.tail_limit :])[-self.tail_limit :]

    def text(self) -> str:
        """Return what was kept, saying how much is missing between."""
        missing = self.total - len(self.head) - len(self.tail)
        middle = "\n[... {0} bytes left out ...]\n".format(missing).encode() if missing else b""
        return (self.head + middle + self.tail).decode("utf-8", "replace")


class Split:
    """A log split by the worker's markers, each part capped; ``ended`` holds the checks whose end was seen."""

    def __init__(self, token: str) -> None:
        self.pattern = re.compile(("\x1e" + re.escape(token) + r":(begin|end):([^\x1e]{1,120})\x1e").encode())
        self.parts: dict[str, Capped] = {}
        self.ended: set[str] = set()
        self.current = ""
        self.carry = b""

    def feed(self, data: bytes) -> None:
        """Take what was read from the log, in order."""
        data = self.carry + data
        start = 0
        for mark in self.pattern.finditer(data):
            self._add(data[start : mark.start()])
            name = mark.group(2).decode()
            if mark.group(1) == b"begin":
                self.current = name
            else:
                self.ended.add(name)
                self.current = ""
            start = mark.end()
        rest = data[start:]
        cut = rest.rfind(b"\x1e", max(0, len(rest) - CARRY))
        self.carry = rest[cut:] if cut >= 0 else b""
        self._add(rest[:cut] if cut >= 0 else rest)

    def close(self) -> None:
        """Take what was held back for a marker that never came whole."""
        self._add(self.carry)
        self.carry = b""

    def text(self, name: str) -> str:
        """Return what the check of this name printed; the part outside every check where ``name`` is empty."""
        return self.parts[name].text() if name in self.parts else ""

    def total(self, name: str) -> int:
        """Count the bytes that the check of this name printed."""
        return self.parts[name].total if name in self.parts else 0

    def _add(self, data: bytes) -> None:
        if data:
            self.parts.setdefault(self.current, Capped()).add(data)
