"""Make hostile inputs of honest ones: a case is its target's name and its number, and the same on every machine."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence

LARGEST = 1 << 17
"""Bytes of a case; what is larger is bounded by its size before it is parsed, and has tests of its own."""

TOKENS = (
    b"\x00", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xe2\x80\xae", b"\r\n", b"\x1b[2J", b"\x9b31m",
    b"%s", b"{}", b"[]", b"null", b"true", b"-1", b"0", b"1e999", b"NaN", b"9" * 400, b"../../../etc/passwd", b"\\u0000",
    b"\\ud800", b"*a", b"&a", b"!!binary", b"!!timestamp x", b"<<: *a", b"- - - -", b"::error::", b"@everyone", b"'", b'"',
    b"9999-12-31T23:59:59+00:00", b"0001-01-01T00:00:00+14:00", b"2026-02-30", b"sha256:" + b"f" * 64, b"=" * 8,
)  # fmt: skip
NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 62, (1 << 64) - 1)
VALUES: tuple[object, ...] = (
    None, True, -1, 0, 1 << 63, -(1 << 70), 1e308, 0.5, "", "x" * 5000, "\ud800", "\x00", "../..", "\n::error::", [], {},
    [[]], {"": {}}, ["a"] * 300, {"schema": 1}, "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00",
)  # fmt: skip

Mutation = Callable[[random.Random, bytes], bytes]


def _flip(draw: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 8, 64))):
        if changed:
            changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed)


def _insert(draw: random.Random, data: bytes) -> bytes:
    at = draw.randint(0, len(data))
    return data[:at] + draw.choice(TOKENS) + data[at:]


def _number(draw: random.Random, data: bytes) -> bytes:
    """Write a number of a format's boundaries over some bytes."""
    width = draw.choice((1, 2, 4, 8))
    at = draw.randint(0, max(0, len(data) - width))
    value = (draw.choice(NUMBERS) & ((1 << 8 * width) - 1)).to_bytes(width, draw.choice(("little", "big")))
    return data[:at] + value + data[at + width :]


def _cut(draw: random.Random, data: bytes) -> bytes:
    start, end = sorted((draw.randint(0, len(data)), draw.randint(0, len(data))))
    return draw.choice((data[:start], data[:start] + data[end:], data[start:end]))


def _repeat(draw: random.Random, data: bytes) -> bytes:
    start = draw.randint(0, len(data))
    part = data[start : start + draw.choice((1, 4, 30, 300))]
    return data[:start] + part * draw.choice((2, 10, 300, 5000)) + data[start:]


def _nest(draw: random.Random, data: bytes) -> bytes:
    at = draw.randint(0, len(data))
    return (
        data[:at]
        + draw.choice((b"[", b"{", b'{"a":', b"- ", b"<a>", b"(")) * draw.choice((100, 3000, 50_000))
        + data[at:]
    )


def _lines(draw: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    draw.shuffle(lines)
    return b"\n".join(lines * draw.choice((1, 1, 2)))


def _json(draw: random.Random, data: bytes) -> bytes:
    """Put another value at a place of a JSON document, or take the place away."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return _insert(draw, data)
    holder, key = {"": document}, ""
    node, place = holder, key  # type: tuple[object, object]
    while draw.random() < 0.8 and isinstance(inner := node[place], (dict, list)) and inner:  # type: ignore[index]
        node, place = inner, draw.choice(list(inner) if isinstance(inner, dict) else range(len(inner)))
    if draw.random() < 0.15 and node is not holder:
        del node[place]  # type: ignore[attr-defined]
    else:
        node[place] = draw.choice(VALUES)  # type: ignore[index]
    return json.dumps(holder[""]).encode("utf-8", "surrogatepass")


MUTATIONS: tuple[Mutation, ...] = (
    _flip,
    _flip,
    _insert,
    _insert,
    _number,
    _number,
    _cut,
    _repeat,
    _nest,
    _lines,
    _json,
    _json,
)


def case(target: str, number: int, seeds: Sequence[bytes]) -> bytes:
    """Return a target's case of a number: a seed, or two spliced, mutated one to four times."""
    draw = random.Random(f"{target} {number}")  # noqa: S311 - the same on every machine
    data = draw.choice(seeds)
    if draw.random() < 0.15:
        other = draw.choice(seeds)
        data = data[: draw.randint(0, len(data))] + other[draw.randint(0, len(other)) :]
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        data = draw.choice(MUTATIONS)(draw, data)[:LARGEST]
    return data
