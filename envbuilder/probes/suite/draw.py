"""Numbers, bytes and pictures drawn from a run's nonce: host and image draw the same ones and compute apart."""

from __future__ import annotations

import hashlib
import struct
import zlib

ROWS = 32
"""Rows of a large product that are compared whole; the rest by its product with a drawn vector."""

LARGE = ((1024, 1024, 1024), (1031, 517, 263))
"""Shapes of the products: a square that users have, and one that no blocking divides."""


class Draw:
    """What one run's nonce gives, by name: the same name gives the same values."""

    def __init__(self, nonce: str) -> None:
        self._nonce = nonce.encode()

    def octets(self, name: str, count: int) -> bytes:
        """Return ``count`` bytes."""
        return hashlib.shake_128(self._nonce + b":" + name.encode()).digest(count)

    def nibbles(self, name: str, count: int) -> bytes:
        """Return ``count`` numbers from 0 to 15, a byte each: products of 1024 of them are exact in float32."""
        return self.octets(name, count).translate(bytes(value & 15 for value in range(256)))

    def integers(self, name: str, count: int, low: int = -8, high: int = 7) -> list[int]:
        """Return ``count`` integers from ``low`` to ``high``."""
        return [low + value % (high - low + 1) for value in self.octets(name, count)]

    def order(self, name: str, count: int) -> list[int]:
        """Return the numbers below ``count`` (256 at most) in a drawn order."""
        keys = self.octets(name, 4 * count)
        return sorted(range(count), key=lambda index: (keys[4 * index : 4 * index + 4], index))

    def word(self, name: str, count: int = 12) -> str:
        """Return ``count`` small letters."""
        return "".join(chr(97 + value % 26) for value in self.octets(name, count))


def png(width: int, height: int, pixels: bytes) -> bytes:
    """Write a PNG of 8-bit grey pixels, row by row (RFC 2083)."""
    rows = b"".join(b"\0" + pixels[row * width : (row + 1) * width] for row in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    )
