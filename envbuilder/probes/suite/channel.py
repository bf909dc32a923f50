"""Messages that nobody can make without the key: a line each, with its number and a code over number and text."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any

MARK = b"envbuilder/1 "
LONGEST = 4 * 1024 * 1024
"""Bytes of one line; a longer one is none of ours."""

_KEPT = 40
_SHOWN = 300
_CODE = 64
_DIGITS = 18
"""Of a message's number: no run has more, and Python reads no number of thousands of digits."""


def sealed(key: bytes, number: int, payload: bytes) -> bytes:
    """Return a message's line: mark, code, number, payload. The payload holds no line's end."""
    text = b"%d " % number + payload
    return MARK + hmac.new(key, text, hashlib.sha256).hexdigest().encode() + b" " + text + b"\n"


class Writer:
    """Sends documents on a descriptor, numbered from 0; may be shared by threads."""

    def __init__(self, descriptor: int, key: str) -> None:
        self._descriptor = descriptor
        self._key = key.encode()
        self._number = 0
        self._lock = threading.Lock()

    def send(self, document: Mapping[str, Any]) -> None:
        """Send one document."""
        payload = json.dumps(document, default=str).encode()
        with self._lock:
            line = sealed(self._key, self._number, payload)
            self._number += 1
            while line:
                line = line[os.write(self._descriptor, line) :]


class Reader:
    """Takes bytes in any pieces and gives the payloads of the messages among them, in bounded memory.

    ``strange`` are the first lines that are no message, ``strange_bytes`` counts all of theirs; they are a log and
    nothing more. ``wrong`` says what is amiss with the messages themselves: one that came twice, or was left out.
    """

    def __init__(self, key: str) -> None:
        self._key = key.encode()
        self._due = 0
        self._line = bytearray()
        self._too_long = False
        self.strange: list[str] = []
        self.strange_bytes = 0
        self.wrong: list[str] = []

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take more; give the payload of every message that is now whole. Linear in what comes."""
        start = 0
        while True:
            end = data.find(b"\n", start)
            piece = data[start:] if end < 0 else data[start:end]
            if len(self._line) + len(piece) > LONGEST:
                self._too_long = True
            if self._too_long:
                self.strange_bytes += len(piece)
                piece = piece[: max(0, _SHOWN - len(self._line))]
                del self._line[_SHOWN:]
            self._line += piece
            if end < 0:
                return
            payload = self._taken(bytes(self._line), whole=not self._too_long)
            self._line.clear()
            self._too_long = False
            start = end + 1
            if payload is not None:
                yield payload

    def _taken(self, line: bytes, *, whole: bool) -> bytes | None:
        number, payload = self._opened(line) if whole else (-1, b"")
        if number < 0:
            if whole:
                self.strange_bytes += len(line) + 1
            if len(self.strange) < _KEPT:
                self.strange.append(line[:_SHOWN].decode("utf-8", "replace"))
            return None
        if number == self._due:
            self._due += 1
            return payload
        self._amiss("message {0} came where {1} was due".format(number, self._due))
        if number < self._due:
            return None
        self._due = number + 1
        return payload

    def _opened(self, line: bytes) -> tuple[int, bytes]:
        """Return a message's number and payload; (-1, b'') for what is none, or bears a code that is not ours."""
        if not line.startswith(MARK):
            return -1, b""
        code, _, text = line[len(MARK) :].partition(b" ")
        right = hmac.new(self._key, text, hashlib.sha256).hexdigest().encode()
        number, _, payload = text.partition(b" ")
        if len(code) != _CODE or not hmac.compare_digest(code, right) or not number.isdigit() or len(number) > _DIGITS:
            return -1, b""
        return int(number), payload

    def _amiss(self, text: str) -> None:
        if len(self.wrong) < _KEPT:
            self.wrong.append(text)
