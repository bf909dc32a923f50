"""Keep the beginning and the end of what each check prints, in bounded memory."""

from __future__ import annotations

import re

HEAD = 8 * 1024
TAIL = 24 * 1024
LONGEST_MARKER = 512


class BoundedLog:
    """Bytes, of which the first and the last are kept; ``total`` counts all."""

    def __init__(self) -> None:
        self.head = b""
        self.tail = b""
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        space = HEAD - len(self.head)
        self.head += data[:space]
        if len(data) > space:
            self.tail = (self.tail + data[space:][-TAIL:])[-TAIL:]

    def text(self) -> str:
        """Return what was kept, with the count of the bytes that are missing in the middle."""
        missing = self.total - len(self.head) - len(self.tail)
        middle = "\n[... {0} bytes left out ...]\n".format(missing).encode() if missing else b""
        return (self.head + middle + self.tail).decode("utf-8", "replace")


class LogByCheck:
    """A worker's log, divided by its markers; ``ended`` has the checks whose end marker was read."""

    def __init__(self, token: str) -> None:
        self.pattern = re.compile(("\x1e" + re.escape(token) + r":(begin|end):([^\x1e]{1,120})\x1e").encode())
        self.parts: dict[str, BoundedLog] = {}
        self.ended: set[str] = set()
        self.current = ""
        self.incomplete = b""

    def feed(self, data: bytes) -> None:
        data = self.incomplete + data
        start = 0
        for marker in self.pattern.finditer(data):
            self._add(data[start : marker.start()])
            name = marker.group(2).decode()
            if marker.group(1) == b"begin":
                self.current = name
            else:
                self.ended.add(name)
                self.current = ""
            start = marker.end()
        rest = data[start:]
        cut = rest.rfind(b"\x1e", max(0, len(rest) - LONGEST_MARKER))
        self.incomplete = rest[cut:] if cut >= 0 else b""
        self._add(rest[:cut] if cut >= 0 else rest)

    def close(self) -> None:
        """Take the bytes that were held back in case that they are the start of a marker."""
        self._add(self.incomplete)
        self.incomplete = b""

    def text(self, name: str) -> str:
        """Return what the check of this name printed; with an empty name, what no check printed."""
        return self.parts[name].text() if name in self.parts else ""

    def total(self, name: str) -> int:
        """Return how many bytes the check of this name printed."""
        return self.parts[name].total if name in self.parts else 0

    def _add(self, data: bytes) -> None:
        if data:
            self.parts.setdefault(self.current, BoundedLog()).add(data)
