"""Search a file for credentials as it goes by: text as text, other files for known shapes, packed ones inside."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

import msgspec

from envbuilder.validation.credential_files import in_text, is_store
from envbuilder.validation.packed_files import Packed, unpacker
from envbuilder.validation.secret_search import Secret, shaped_in

_OVERLAP = 4096
_HEAD = 8192
"""A file with no zero byte among its first ones is text."""

_WIDE = (b"\xff\xfe", b"\xfe\xff")
"""What a text of two bytes a letter begins with, as PowerShell and Notepad write it."""

_MOST_UNPACKED, _MOST_BINARY = 64 << 20, 256 << 20
"""Bytes of a packed file, and of another that is no text, that are looked at; a longer one is looked at so far."""

Find = Callable[[str, bytes], Iterable[Secret]]


class FileSecrets:
    """Takes a file's pieces in order; ``found`` is what looks like a credential in it, each once."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._find: Find | None = None
        self._rest = b""
        self._packed: Packed | None = None
        self._is_wide = False
        self._left = 0
        self.found: list[Secret] = []

    def begin(self, piece: bytes | bytearray) -> None:
        """Choose how to search by the first piece."""
        self._packed = unpacker(self._path, piece)
        self._is_wide = piece.startswith(_WIDE)
        is_text = self._is_wide or b"\0" not in piece[:_HEAD]
        self._find = in_text if is_text or self._packed is not None else shaped_in
        self._left = _MOST_UNPACKED if self._packed is not None else sys.maxsize if is_text else _MOST_BINARY
        if not is_text and is_store(self._path, piece):
            self.found.append(Secret(self._path, "a store of keys"))

    def take(self, piece: bytes | bytearray) -> None:
        """Search a further piece."""
        if self._find is None:
            self.begin(piece)
        for content in self._packed.take(piece) if self._packed is not None and self._left > 0 else (piece,):
            if self._left <= 0:
                return
            self._left -= len(content)
            self._search(content.replace(b"\0", b"") if self._is_wide else content)

    def _search(self, piece: bytes | bytearray) -> None:
        assert self._find is not None  # noqa: S101 - asked by the only caller
        inside = self._packed.inside if self._packed is not None else ""
        content = self._rest + piece
        found = self._find(f"{self._path}/{inside}" if inside else self._path, content)
        told = [msgspec.structs.replace(one, path=self._path) for one in found] if inside else found
        self.found += [one for one in told if one not in self.found]
        self._rest = content[-_OVERLAP:]
