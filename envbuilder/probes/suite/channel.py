"""Messages between the processes of a run: a line each, with the token of the run and a JSON document."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any

LONGEST = 4 * 1024 * 1024
"""Bytes of one line; a longer line is not a message."""

_STRANGE_LINES, _STRANGE_LENGTH = 40, 300


def private_output() -> int:
    """Keep standard output for messages only: other output goes to standard error, which is only a log."""
    private = os.dup(1)
    os.dup2(2, 1)
    return private


def message(token: str, document: Mapping[str, Any]) -> bytes:
    """Return the line of a message. JSON escapes line ends; a lone surrogate, which UTF-8 lacks, becomes ``?``."""
    text = json.dumps(document, default=str, ensure_ascii=False)
    return f"{token} {text}\n".lstrip(" ").encode("utf-8", "replace")


class Writer:
    """Sends documents on a descriptor; threads may share it. Without a token, each line is a JSON document."""

    def __init__(self, descriptor: int, token: str = "") -> None:
        self.descriptor = descriptor
        self._token = token
        self._lock = threading.Lock()

    def send(self, document: Mapping[str, Any]) -> None:
        line = message(self._token, document)
        with self._lock:
            while line:
                line = line[os.write(self.descriptor, line) :]


class Reader:
    """Takes bytes in pieces of any size and returns the documents of the messages among them, in bounded memory.

    ``strange`` has the first lines that are not messages, ``strange_bytes`` counts all of them. They are only a log.
    """

    def __init__(self, token: str) -> None:
        self._start = token.encode() + b" "
        self._line = bytearray()
        self._too_long = False
        self.strange: list[str] = []
        self.strange_bytes = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take more bytes; return the document of every message that is now complete. Linear in the input."""
        start = 0
        while True:
            end = data.find(b"\n", start)
            piece = data[start:] if end < 0 else data[start:end]
            self._add(piece)
            if end < 0:
                return
            document = self._document(bytes(self._line))
            self._line.clear()
            self._too_long = False
            start = end + 1
            if document is not None:
                yield document

    def _add(self, piece: bytes) -> None:
        if len(self._line) + len(piece) > LONGEST:
            self._too_long = True
        if self._too_long:
            self.strange_bytes += len(piece)
            piece = piece[: max(0, _STRANGE_LENGTH - len(self._line))]
            del self._line[_STRANGE_LENGTH:]
        self._line += piece

    def _document(self, line: bytes) -> bytes | None:
        if line.startswith(self._start) and not self._too_long:
            return line[len(self._start) :]
        if not self._too_long:
            self.strange_bytes += len(line) + 1
        if len(self.strange) < _STRANGE_LINES:
            self.strange.append(line[:_STRANGE_LENGTH].decode("utf-8", "replace"))
        return None
