"""Read single files out of a zip archive of which only ranges can be had."""

from __future__ import annotations

import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterator

from envbuilder.pypi.package_index import Member

Read = Callable[[int, int], bytes]
"""Gives the bytes from one offset up to (not including) another."""

_END = struct.Struct("<4s4H2LH")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_64 = struct.Struct("<4sLQL")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")

_TAIL = 128 * 1024
_LARGE = 0xFFFFFFFF
MAX_DIRECTORY = 64 << 20
"""Bytes of an archive's directory: a TensorFlow wheel's has 2 MB."""
_PIECE = 1 << 20
_STORED, _DEFLATED = 0, 8


def directory(read: Read, size: int) -> tuple[Member, ...]:
    """List an archive's files from its tail: one read, or two where the directory is longer than 128 KiB.

    ``size`` is the archive's own. Raises ValueError, or what struct raises, where it is no zip archive.
    """
    start = max(0, size - _TAIL)
    tail = read(start, size)
    offset, length = _locate(tail, start)
    if length > MAX_DIRECTORY or offset + length > size:
        raise ValueError(f"a directory of {length} bytes at {offset}, in an archive of {size}")
    listing = tail[offset - start : offset - start + length] if offset >= start else read(offset, offset + length)
    return tuple(_entries(listing))


def _locate(tail: bytes, start: int) -> tuple[int, int]:
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or at + _END.size > len(tail):
        raise ValueError("not a zip archive")
    end = _END.unpack_from(tail, at)
    length, offset = end[5], end[6]
    marker = at - _LOCATOR_64.size
    if _LARGE in (length, offset) and marker >= 0 and tail[marker : marker + 4] == b"PK\x06\x07":
        where = _LOCATOR_64.unpack_from(tail, marker)[2] - start
        if where < 0:
            raise ValueError("the archive's end record lies outside of what was read")
        large = _END_64.unpack_from(tail, where)
        length, offset = large[8], large[9]
    return offset, length


def _entries(listing: bytes) -> Iterator[Member]:
    at = 0
    while at + _ENTRY.size <= len(listing) and listing[at : at + 4] == b"PK\x01\x02":
        entry = _ENTRY.unpack_from(listing, at)
        method, packed, size, name_length, extra_length, comment_length = (entry[i] for i in (4, 8, 9, 10, 11, 12))
        offset = entry[16]
        name_at = at + _ENTRY.size
        name = listing[name_at : name_at + name_length].decode("utf-8", "replace")
        extra = listing[name_at + name_length : name_at + name_length + extra_length]
        if _LARGE in (packed, size, offset):
            packed, size, offset = _large(extra, packed, size, offset)
        yield Member(name=name, packed=packed, size=size, offset=offset, method=method)
        at = name_at + name_length + extra_length + comment_length


def _large(extra: bytes, packed: int, size: int, offset: int) -> tuple[int, int, int]:
    """Take the 64-bit values from an entry's extra field, in the order in which the format lists what is missing.

    Raises ValueError where the field has fewer of them than the entry says.
    """
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            values = deque(struct.unpack_from(f"<{length // 8}Q", extra, at + 4))
            if len(values) < (size, packed, offset).count(_LARGE):
                raise ValueError("an entry of the archive's directory lacks a size of 64 bits that it speaks of")
            size = values.popleft() if size == _LARGE else size
            packed = values.popleft() if packed == _LARGE else packed
            offset = values.popleft() if offset == _LARGE else offset
        at += 4 + length
    return packed, size, offset


def content_at(read: Read, member: Member) -> int:
    """Return where a member's packed bytes begin, behind its own header."""
    header = _LOCAL.unpack(read(member.offset, member.offset + _LOCAL.size))
    if header[0] != b"PK\x03\x04":
        raise ValueError(f"{member.name}: no file header where the directory says")
    return int(member.offset + _LOCAL.size + header[9] + header[10])


def unpack(member: Member, packed: Iterator[bytes]) -> Iterator[bytes]:
    """Yield a member's real bytes from its packed ones, in pieces of at most 1 MiB.

    Raises ValueError for a method other than store and deflate, and for more bytes than the directory states; what
    zlib raises for damaged ones.
    """
    given = 0
    for piece in _inflated(member, packed):
        given += len(piece)
        if given > member.size:
            raise ValueError(f"{member.name}: unpacks to more than the {member.size} bytes that it states")
        yield piece
    if given < member.size:
        raise ValueError(f"{member.name}: unpacks to {given} of the {member.size} bytes that it states")


def _inflated(member: Member, packed: Iterator[bytes]) -> Iterator[bytes]:
    if member.method == _STORED:
        yield from packed
        return
    if member.method != _DEFLATED:
        raise ValueError(f"{member.name}: packed by method {member.method}")
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    for piece in packed:
        rest = piece
        while rest and not inflate.eof:
            yield inflate.decompress(rest, _PIECE)
            rest = inflate.unconsumed_tail
    yield inflate.flush()
