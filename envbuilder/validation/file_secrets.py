"""Search a file for credentials as it goes by: text as text, other files for known shapes, packed ones inside."""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Callable, Iterable

from envbuilder.errors import decode
from envbuilder.validation.secret_search import Secret, in_text, shaped_in

_OVERLAP = 4096
_HEAD = 8192
"""A file with no zero byte among its first ones is text."""

_GZIP, _ZLIB = 31, 15
_GIT_OBJECT = re.compile(r"/objects/[0-9a-f]{2}/[0-9a-f]{38,62}\Z")
_MOST_UNPACKED, _MOST_BINARY = 64 << 20, 256 << 20
"""Bytes of a packed file, and of another that is no text, that are looked at; a longer one is looked at so far."""

Find = Callable[[str, bytes], Iterable[Secret]]


class FileSecrets:
    """Takes a file's pieces in order; ``found`` is what looks like a credential in it, each once."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._find: Find | None = None
        self._rest = b""
        self._unpack: zlib._Decompress | None = None
        self._left = 0
        self.found: list[Secret] = []

    def begin(self, piece: bytes | bytearray) -> None:
        """Choose how to search by the first piece."""
        if piece.startswith(b"\x1f\x8b"):
            self._unpack = zlib.decompressobj(_GZIP)
        elif piece[:1] == b"x" and _GIT_OBJECT.search(self._path):
            self._unpack = zlib.decompressobj(_ZLIB)
        is_text = b"\0" not in piece[:_HEAD]
        self._find = in_text if is_text or self._unpack is not None else shaped_in
        self._left = _MOST_UNPACKED if self._unpack is not None else sys.maxsize if is_text else _MOST_BINARY

    def take(self, piece: bytes | bytearray) -> None:
        """Search a further piece."""
        if self._find is None:
            self.begin(piece)
        if self._left <= 0:
            return
        if self._unpack is not None:
            self._search(self._unpacked(piece))
            return
        self._left -= len(piece)
        self._search(piece)

    def _unpacked(self, piece: bytes | bytearray) -> bytes:
        """Unpack a piece, no further than what is left; what is damaged ends the search."""
        assert self._unpack is not None  # noqa: S101 - asked by the only caller
        try:
            with decode.damaged(self._path):
                content = self._unpack.decompress(piece, self._left)
        except decode.DamagedError:
            self._left = 0
            return b""
        self._left -= len(content)
        return content

    def _search(self, piece: bytes | bytearray) -> None:
        assert self._find is not None  # noqa: S101 - asked by the only caller
        content = self._rest + piece
        self.found += [one for one in self._find(self._path, content) if one not in self.found]
        self._rest = content[-_OVERLAP:]
