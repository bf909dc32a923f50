"""Hypothesis strategies: honest inputs with a few edits that break documents, archives and binary formats."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st
from target import LARGEST

TOKENS = (
    b"\x00", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r\n", b"\x1b[2J", b"%s", b"{}", b"[]", b"null", b"-1",
    b"1e999", b"NaN", b"9" * 400, b"../../../etc/passwd", b"\\u0000", b"\\ud800", b"*a", b"&a", b"!!binary", b"!!timestamp x",
    b"<<: *a", b"::error::", b"'", b'"', b"0001-01-01T00:00:00+14:00", b"2026-02-30", b"sha256:" + b"f" * 64,
)  # fmt: skip
NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 62, (1 << 64) - 1)
VALUES: tuple[object, ...] = (
    None, True, -1, 0, 1 << 63, -(1 << 70), 1e308, 0.5, "", "x" * 5000, "\ud800", "\x00", "../..", "\n::error::", [], {},
    [[]], {"": {}}, ["a"] * 300, {"schema": 1}, "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00",
)  # fmt: skip
DEEP = (b"[", b"{", b'{"a":', b"- ", b"<a>", b"(")

Edit = Callable[[st.DrawFn, bytes], bytes]


def overwritten(draw: st.DrawFn, data: bytes) -> bytes:
    """Write random bytes, or a boundary of an integer type, over some bytes."""
    at = draw(st.integers(0, len(data)))
    width = draw(st.sampled_from((1, 2, 4, 8)))
    number = draw(st.sampled_from(NUMBERS)) & ((1 << 8 * width) - 1)
    new = draw(st.one_of(st.binary(min_size=1, max_size=8), st.just(number.to_bytes(width, "little"))))
    return data[:at] + new + data[at + len(new) :]


def inserted(draw: st.DrawFn, data: bytes) -> bytes:
    at = draw(st.integers(0, len(data)))
    deep = st.tuples(st.sampled_from(DEEP), st.sampled_from((100, 3000, 50_000))).map(lambda one: one[0] * one[1])
    return data[:at] + draw(st.one_of(st.sampled_from(TOKENS), deep)) + data[at:]


def cut(draw: st.DrawFn, data: bytes) -> bytes:
    start, end = sorted((draw(st.integers(0, len(data))), draw(st.integers(0, len(data)))))
    return draw(st.sampled_from((data[:start], data[:start] + data[end:], data[start:end])))


def repeated(draw: st.DrawFn, data: bytes) -> bytes:
    start = draw(st.integers(0, len(data)))
    part = data[start : start + draw(st.sampled_from((1, 4, 30, 300)))]
    return data[:start] + part * draw(st.sampled_from((2, 10, 300, 5000))) + data[start:]


def revalued(draw: st.DrawFn, data: bytes) -> bytes:
    """Replace or remove one value of a JSON document."""
    try:
        document = {"": json.loads(data)}
    except (ValueError, RecursionError):
        return inserted(draw, data)
    node: Any = document
    key: Any = ""
    while isinstance(node[key], dict | list) and node[key] and draw(st.integers(0, 4)):
        node = node[key]
        key = draw(st.sampled_from(list(node) if isinstance(node, dict) else range(len(node))))
    if node is not document and draw(st.integers(0, 6)) == 0:
        del node[key]
    else:
        node[key] = draw(st.sampled_from(VALUES))
    return json.dumps(document[""]).encode("utf-8", "surrogatepass")


EDITS: tuple[Edit, ...] = (overwritten, inserted, cut, repeated, revalued, revalued)


@st.composite
def damaged(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    """Draw an honest input and edit it one to four times."""
    data = draw(st.sampled_from(seeds))
    for edit in draw(st.lists(st.sampled_from(EDITS), min_size=1, max_size=4)):
        data = edit(draw, data)[:LARGEST]
    return data
