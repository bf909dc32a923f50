"""The ``.target`` and ``.version`` of a PTX payload, packed or not: the GPUs and drivers that can compile it.

The text decides, not the entry's header: the header's architecture number is 90 for ``sm_90`` and for ``sm_90a``.
``fatbinary`` packs a payload as a bare LZ4 block (https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md) or, from
CUDA 13 on, as a zstd frame (RFC 8878); the entry's flags say which. Only the first few hundred bytes are unpacked.
"""

import re
import struct
import sys
from contextlib import suppress

from envbuilder.catalog.rows import Ptx
from envbuilder.probes.suite.fatbin import Entry
from envbuilder.support import decoding

try:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
except ImportError:  # the extra `refresh`: no release so far has such an entry; without it one would be unknown
    zstd = None  # type: ignore[assignment]

LZ4, ZSTD = 0x2000, 0x8000
"""The flags of an entry whose payload is packed."""

_FIELDS = struct.Struct("<HHIQIIHHIIIQQQ")
_HEADS = (512, 16 * 1024)
"""The bytes of the text that are read; more if the directives follow a long comment."""

_LARGEST_WINDOW = 24
"""The logarithm of the most memory, in bytes, that a zstd frame may ask for."""

_VERSION = re.compile(rb"^[ \t]*\.version[ \t]+(\d{1,2}\.\d{1,2})\b", re.MULTILINE)
_TARGET = re.compile(rb"^[ \t]*\.target[ \t][^\n]{0,64}?\b(sm_\d{2,3}[af]?)\b", re.MULTILINE)


def read(entry: Entry) -> Ptx:
    """Read an entry of PTX; without directives in its text, the ISA is the one in the entry's header."""
    if len(entry.header) < _FIELDS.size:
        return Ptx(None, "")
    with decoding.damaged("no entry"):  # its length was looked at
        _, _, _, stored, packed, _, minor, major, _, _, _, flags, *_ = _FIELDS.unpack_from(entry.header)
    payload = entry.payload[: packed or stored]
    for length in _HEADS:
        text = _text(payload, flags, length)
        version = _VERSION.search(text)
        target = _TARGET.search(text, version.end()) if version else None
        if version and target and target.end() < length:  # a name at the edge may be cut
            return Ptx(decoding.lossy(target[1]), decoding.lossy(version[1]))
    return Ptx(None, f"{major}.{minor}")


def _text(payload: bytes, flags: int, length: int) -> bytes:
    if flags & LZ4:
        return lz4_head(payload, length)
    return zstd_head(payload, length) if flags & ZSTD else payload[:length]


def zstd_head(packed: bytes, limit: int) -> bytes:
    """Unpack the first ``limit`` bytes of a zstd frame; nothing if it is damaged or too large, or without zstd."""
    if zstd is None:
        return b""
    options = {int(zstd.DecompressionParameter.window_log_max): _LARGEST_WINDOW}
    with suppress(zstd.ZstdError, decoding.DamagedError), decoding.damaged("no zstd frame"):
        return zstd.ZstdDecompressor(options=options).decompress(packed, limit)
    return b""


def lz4_head(packed: bytes, limit: int) -> bytes:
    """Unpack the first ``limit`` bytes of an LZ4 block; of a damaged one, the part before the damage."""
    out = bytearray()
    at = 0
    try:
        while len(out) < limit and at < len(packed):
            token = packed[at]
            length, at = _length(packed, at + 1, token >> 4)
            out += packed[at : at + min(length, limit)]
            at += length
            distance = packed[at] | packed[at + 1] << 8
            length, at = _length(packed, at + 2, token & 15)
            if not 0 < distance <= len(out):
                break
            _repeat(out, distance, min(length + _SHORTEST_MATCH, limit))
    except IndexError:  # the last sequence has no match; a cut block ends anywhere
        pass
    return bytes(out[:limit])


_SHORTEST_MATCH = 4


def _length(packed: bytes, at: int, nibble: int) -> tuple[int, int]:
    """Read a length: four bits, continued in bytes as long as they are 255."""
    length = nibble
    if nibble == 15:  # noqa: PLR2004 - all four bits
        while packed[at] == 255:  # noqa: PLR2004 - a full byte
            length, at = length + 255, at + 1
        length, at = length + packed[at], at + 1
    return length, at


def _repeat(out: bytearray, distance: int, length: int) -> None:
    """Append the bytes ``distance`` back; source and target may overlap."""
    start = len(out) - distance
    seen = bytes(out[start : start + length])
    out += (seen * (length // len(seen) + 1))[:length]
