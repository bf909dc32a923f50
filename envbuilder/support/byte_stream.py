"""Pieces of bytes as a file that can be read once, forwards."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator


class ByteStream(io.RawIOBase):
    """A file over an iterator. ``read`` may return fewer bytes than requested; b'' only at the end."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces: Iterator[bytes] = iter(pieces)
        self._rest = memoryview(b"")

    def read(self, size: int = -1) -> bytes:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._rest = memoryview(piece)
        size = len(self._rest) if size < 0 else size
        taken, self._rest = self._rest[:size], self._rest[size:]
        return bytes(taken)
