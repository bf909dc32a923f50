"""Unpack a file as it goes by: gzip, xz, bzip2 and zip, git's loose objects and packs; bounded, and nothing is kept."""

from __future__ import annotations

import bz2
import lzma
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping

from envbuilder.support import decoding

_PIECE = 1 << 20
_GZIP, _ZLIB, _RAW = 31, 15, -15
_MEMORY = 96 << 20
"""Bytes that unpacking xz may take: its highest level asks for 65 MiB."""

_GIT_OBJECT = re.compile(r"/objects/[0-9a-f]{2}/[0-9a-f]{38,62}\Z")
_GIT_PACK = re.compile(r"/objects/pack/[^/]+\.pack\Z")
_OFS_DELTA, _REF_DELTA, _ID = 6, 7, 20

_ENTRY = struct.Struct("<4sHHHHHIIIHH")
"""The header before each entry of a zip (APPNOTE 4.3.7)."""

_IS_ENTRY, _DEFLATED, _ENCRYPTED, _SIZES_FOLLOW = b"PK\x03\x04", 8, 1, 8

Walk = Iterator[bytes | None]
"""What a walk through a packed file yields: bytes that came out, or None where it needs further ones."""


class Packed:
    """Takes a packed file's pieces in order; ``inside`` names the entry that comes out ('' where it has no name)."""

    def __init__(self, walk: Callable[[Packed], Walk]) -> None:
        self.buffer = bytearray()
        self.inside = ""
        self._walk = walk(self)

    def take(self, piece: bytes | bytearray) -> Iterator[bytes]:
        """Yield what a further piece unpacks to, a piece at a time; nothing from where it is damaged, or ends."""
        self.buffer += piece
        while True:
            try:
                out = next(self._walk, None)
            except (decoding.DamagedError, lzma.LZMAError, OSError):
                return
            if out is None:
                return
            yield out

    def first(self, count: int) -> bytes:
        """Take bytes off what is there."""
        out = bytes(self.buffer[:count])
        del self.buffer[:count]
        return out

    def until(self, count: int) -> Walk:
        """Ask for more until so many bytes are there."""
        while len(self.buffer) < count:
            yield None


def unpacker(path: str, head: bytes | bytearray) -> Packed | None:
    """Choose how to unpack a file by its first bytes, and by its place in a repository of git's; None for no such."""
    walks = [walk for magic, place, walk in _BY_PLACE if head.startswith(magic) and place.search(path)]
    walks += [walk for magic, walk in _BY_HEAD.items() if head.startswith(magic)]
    return Packed(walks[0]) if walks else None


def _members(packed: Packed, one: Callable[[], Walk]) -> Walk:
    """Go through streams that stand one behind the other, as two packed files that were joined do."""
    while True:
        yield from one()
        yield from packed.until(1)


def _inflated(packed: Packed, form: int) -> Walk:
    stream = zlib.decompressobj(form)
    while not stream.eof:
        yield from packed.until(1)
        with decoding.damaged("packed bytes"):
            out = stream.decompress(packed.first(_PIECE), _PIECE)
        packed.buffer[:0] = stream.unconsumed_tail or stream.unused_data
        yield out


def _expanded(packed: Packed, stream: bz2.BZ2Decompressor | lzma.LZMADecompressor) -> Walk:
    while not stream.eof:
        if stream.needs_input:
            yield from packed.until(1)
        with decoding.damaged("packed bytes"):
            out = stream.decompress(packed.first(_PIECE) if stream.needs_input else b"", _PIECE)
        yield out
    packed.buffer[:0] = stream.unused_data


def _entries(packed: Packed) -> Walk:
    """Go through a zip's entries by the headers before them: its directory comes last, when all has gone by."""
    while True:
        yield from packed.until(_ENTRY.size)
        if not packed.buffer.startswith(_IS_ENTRY):
            yield from _next_entry(packed)
            continue
        with decoding.damaged("a zip's entry"):
            _, _, flags, method, _, _, _, size, _, name, extra = _ENTRY.unpack(packed.first(_ENTRY.size))
        yield from packed.until(name + extra)
        packed.inside = decoding.lossy(packed.first(name + extra)[:name])
        if method == _DEFLATED and not flags & _ENCRYPTED:
            yield from _inflated(packed, _RAW)
        while size and method != _DEFLATED and not flags & _SIZES_FOLLOW:
            yield from packed.until(1)
            out = packed.first(min(size, _PIECE))
            size -= len(out)
            yield out


def _next_entry(packed: Packed) -> Walk:
    """Pass over what follows an entry, up to the next one: its sizes, or its content where those are not known."""
    at = packed.buffer.find(_IS_ENTRY)
    out = packed.first(at if at >= 0 else len(packed.buffer) - len(_IS_ENTRY) + 1)
    yield out


def _objects(packed: Packed) -> Walk:
    """Go through a pack's objects (gitformat-pack): a head of some bytes, what a delta is of, and a stream."""
    yield from packed.until(12)
    packed.first(12)
    while True:
        yield from packed.until(_ID + 1)
        kind = packed.buffer[0] >> 4 & 7
        yield from _number(packed)
        if kind == _OFS_DELTA:
            yield from _number(packed)
        elif kind == _REF_DELTA:
            yield from packed.until(_ID)
            packed.first(_ID)
        yield from _inflated(packed, _ZLIB)


def _number(packed: Packed) -> Walk:
    yield from packed.until(1)
    while packed.first(1)[0] & 0x80:
        yield from packed.until(1)


def _object(packed: Packed) -> Walk:
    return _inflated(packed, _ZLIB)


def _xz() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(memlimit=_MEMORY)


_BY_HEAD: Mapping[bytes, Callable[[Packed], Walk]] = {
    b"\x1f\x8b": lambda packed: _members(packed, lambda: _inflated(packed, _GZIP)),
    b"\xfd7zXZ\0": lambda packed: _members(packed, lambda: _expanded(packed, _xz())),
    b"BZh": lambda packed: _members(packed, lambda: _expanded(packed, bz2.BZ2Decompressor())),
    _IS_ENTRY: _entries,
}
"""What a packed file begins with, wherever it lies, and how it is gone through."""

_BY_PLACE: tuple[tuple[bytes, re.Pattern[str], Callable[[Packed], Walk]], ...] = (
    (b"PACK", _GIT_PACK, _objects),
    (b"x", _GIT_OBJECT, _object),
)
"""The same of files that count as packed in a repository of git's alone."""
