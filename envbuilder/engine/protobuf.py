"""Read protobuf's wire format: just what the builder's progress messages need, without a schema compiler."""

from __future__ import annotations

from collections.abc import Iterator

_LAST_SHIFT = 63


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, value) in order: integers for varints and fixed widths, bytes for everything else.

    Raises ValueError on a message that is cut short or uses a wire type that was never in proto3.
    Source of the format: https://protobuf.dev/programming-guides/encoding/
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        match wire:
            case 0:
                value, at = _varint(data, at)
                yield number, value
            case 2:
                size, at = _varint(data, at)
                yield number, _slice(data, at, size)
                at += size
            case 1 | 5:
                size = 8 if wire == 1 else 4
                yield number, int.from_bytes(_slice(data, at, size), "little")
                at += size
            case _:
                raise ValueError(f"wire type {wire} at byte {at}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift <= _LAST_SHIFT:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            return value, at
        shift += 7
    raise ValueError(f"a varint that does not end by byte {at}")


def _slice(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise ValueError(f"{size} bytes announced at byte {at}, {len(data) - at} there")
    return data[at : at + size]
