"""Layers packed and unpacked piece by piece: the same bytes, within bounds, and nothing but whole ones."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
from collections.abc import Callable, Iterator
from typing import BinaryIO

import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st

from envbuilder.errors import UsageError
from envbuilder.publish import packing
from envbuilder.publish.zstd_form import Repacker
from envbuilder.support import decoding

MIXED = b"".join(b"%d and more, " % number for number in range(300_000)) + bytes(5 << 20)


def in_zstd(data: bytes, level: int = 3) -> bytes:
    made = io.BytesIO()
    packing.pack(iter((data[: len(data) // 2], data[len(data) // 2 :])), level, made)
    return made.getvalue()


def opened(how: Callable[[BinaryIO], Iterator[bytes]], packed: bytes, most: int = 1 << 30) -> bytes:
    tally = packing.Tally(most)
    data = b"".join(tally.of(how(io.BytesIO(packed))))
    assert (tally.size, tally.digest) == (len(data), f"sha256:{hashlib.sha256(data).hexdigest()}")
    return data


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=5_000), st.integers(min_value=1, max_value=400))
def test_what_is_packed_unpacks_to_the_same(data: bytes, times: int) -> None:
    """Whatever a layer holds, and however well it packs: each way back gives its very bytes."""
    data *= times
    assert opened(packing.unpacked, in_zstd(data)) == data
    assert opened(packing.gunzipped, gzip.compress(data)) == data


def test_other_readers_read_it() -> None:
    """The library of zstd itself reads a frame of ours in one go, and finds the checksum in it right."""
    assert zstd.decompress(in_zstd(MIXED)) == MIXED


def test_the_same_bytes_are_packed_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of processors changes nothing of what comes out; the level does."""
    first = in_zstd(MIXED, 9)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(3)))
    assert in_zstd(MIXED, 9) == first
    assert in_zstd(MIXED, 1) != first


def test_gzip_of_several_members_is_one_layer() -> None:
    """Members that follow each other are one layer, as every reader of gzip has it."""
    assert opened(packing.gunzipped, gzip.compress(b"one ") + gzip.compress(b"") + gzip.compress(MIXED)) == (
        b"one " + MIXED
    )


@pytest.mark.parametrize(
    ("how", "packed"), [(packing.gunzipped, gzip.compress(MIXED)), (packing.unpacked, in_zstd(MIXED))]
)
def test_what_is_cut_or_followed_by_something_is_damaged(how, packed: bytes) -> None:
    """Cut anywhere, empty, with a byte behind or one changed: an error of ours, never a shorter layer."""
    cuts = [packed[:cut] for cut in (0, 1, 5, len(packed) // 2, len(packed) - 1)]
    changed = packed[: len(packed) // 2] + bytes((packed[len(packed) // 2] ^ 255,)) + packed[len(packed) // 2 + 1 :]
    for one in (*cuts, changed, packed + b"x", b"no layer at all"):
        with pytest.raises(decoding.DamagedError):
            opened(how, one)


def test_a_second_frame_is_not_read_over() -> None:
    """Two frames of zstd are two layers to some readers and one to others: ours takes neither."""
    with pytest.raises(decoding.DamagedError, match="something follows"):
        opened(packing.unpacked, in_zstd(b"one") + in_zstd(b"two"))


@pytest.mark.parametrize(("how", "pack"), [(packing.gunzipped, gzip.compress), (packing.unpacked, in_zstd)])
def test_a_bomb_is_stopped_at_its_bound(how, pack) -> None:
    """What unpacks to more than a layer may have ends there, a piece behind the bound at most."""
    bomb = pack(bytes(64 << 20))
    assert len(bomb) < 1 << 17
    pieces: list[bytes] = []
    with pytest.raises(decoding.DamagedError, match="more than 3,000,000 bytes"):
        pieces.extend(packing.Tally(3_000_000).of(how(io.BytesIO(bomb))))
    assert sum(map(len, pieces)) <= 3_000_000
    assert max(map(len, pieces)) <= packing.PIECE


def test_a_frame_that_wants_much_memory_is_refused() -> None:
    """A window of 128 MB is more than any level of ours asks for: it is not unpacked."""
    options = {int(zstd.CompressionParameter.window_log): 27, int(zstd.CompressionParameter.content_size_flag): 0}
    packer = zstd.ZstdCompressor(options=options)
    with pytest.raises(decoding.DamagedError):
        opened(packing.unpacked, packer.compress(MIXED) + packer.flush())


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is pushed, and with the extra's name."""
    monkeypatch.setattr(packing, "zstd", None)
    with pytest.raises(UsageError) as caught:
        Repacker()
    assert "envbuilder[zstd]" in caught.value.hint


@pytest.mark.parametrize("level", [0, -1, 20, 22])
def test_no_other_level_is_taken(level: int) -> None:
    """Levels whose windows readers refuse, or that pack nothing, are refused at once."""
    with pytest.raises(UsageError, match="no level"):
        Repacker(level)
