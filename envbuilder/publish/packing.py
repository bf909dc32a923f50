"""Pack and unpack a layer piece by piece: within bounds, held to its digest, never whole in memory."""

from __future__ import annotations

import hashlib
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

from envbuilder.errors import UsageError
from envbuilder.support import decoding

try:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
except ImportError:  # the extra `zstd`
    zstd = None  # type: ignore[assignment]

LEVELS = (1, 19)
"""The least and the most that a layer is packed: from 20 on whoever unpacks it needs 32 MB and more ("ultra")."""

PIECE = 1 << 20
"""Bytes that are in memory at once, packed and unpacked each."""

_WORKERS = 4
"""Threads that pack, at most: each holds some windows of its level. Their number does not change what comes out."""

_LARGEST_WINDOW = 25
"""The logarithm of the most memory, in bytes, that what is unpacked may ask for; our highest level asks for 23."""


def check_installed() -> None:
    """Raise UsageError where the library is lacking."""
    if zstd is None:
        raise UsageError("layers in zstd need the package backports.zstd", hint="pip install 'envbuilder[zstd]'")


def packer_name(level: int) -> str:
    """Name what packs: the same name and bytes give the same packed bytes."""
    return f"zstd {zstd.zstd_version} level {level}"


class Tally:
    """Counts and hashes what passes by, and lets no more pass than ``most`` bytes; ``seen`` hears how many did."""

    def __init__(self, most: int, seen: Callable[[int], None] = lambda _: None) -> None:
        self.size, self._most, self._seen, self._hashed = 0, most, seen, hashlib.sha256()

    @property
    def digest(self) -> str:
        """Return the digest of all that has passed."""
        return f"sha256:{self._hashed.hexdigest()}"

    def of(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Pass pieces on. Raises DamagedError for one byte too many."""
        for piece in pieces:
            self.size += len(piece)
            if self.size > self._most:
                raise decoding.DamagedError(f"it unpacks to more than {self._most:,} bytes")
            self._hashed.update(piece)
            self._seen(self.size)
            yield piece


def gunzipped(file: BinaryIO) -> Iterator[bytes]:
    """Unpack gzip of one or more members. Raises DamagedError for anything else, and where it ends before its time."""
    opened, made = zlib.decompressobj(wbits=31), b""
    while packed := file.read(PIECE):
        while packed or len(made) == PIECE:
            if opened.eof:
                opened = zlib.decompressobj(wbits=31)
            with decoding.damaged("not gzip"):
                made = opened.decompress(packed, PIECE)
            yield made
            packed = opened.unused_data if opened.eof else opened.unconsumed_tail
            made = b"" if opened.eof else made
    if not opened.eof:
        raise decoding.DamagedError("not gzip: it ends before its time")


def unpacked(file: BinaryIO) -> Iterator[bytes]:
    """Unpack one frame of zstd. Raises DamagedError for anything else, and where bytes are lacking or follow."""
    opened = zstd.ZstdDecompressor(options={int(zstd.DecompressionParameter.window_log_max): _LARGEST_WINDOW})
    while not opened.eof:
        packed = file.read(PIECE) if opened.needs_input else b""
        if opened.needs_input and not packed:
            raise decoding.DamagedError("not zstd: it ends before its time")
        try:
            with decoding.damaged("not zstd"):
                made = opened.decompress(packed, PIECE)
        except zstd.ZstdError as error:
            raise decoding.DamagedError(f"not zstd: {error}") from error
        yield made
    if opened.unused_data or file.read(1):
        raise decoding.DamagedError("not one frame of zstd: something follows it")


def pack(pieces: Iterator[bytes], level: int, into: BinaryIO) -> None:
    """Write pieces into a file as one frame of zstd, which holds a checksum of its own."""
    parameter = zstd.CompressionParameter
    workers = min(len(os.sched_getaffinity(0)), _WORKERS, parameter.nb_workers.bounds()[1])
    options = {
        int(parameter.compression_level): level,
        int(parameter.checksum_flag): 1,
        int(parameter.nb_workers): workers,
    }
    packer = zstd.ZstdCompressor(options=options)
    into.writelines(map(packer.compress, pieces))
    into.write(packer.flush())
