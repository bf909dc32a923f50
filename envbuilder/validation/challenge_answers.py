"""What a run's challenge comes to, computed on the host in plain Python from the same draw, and compared.

Integers below 2^24 are exact in float32 in any order of summation, so such answers must be equal. Functions are held to
`TOLERANCE`: 32 units in the last place of float32 (2^-24 of the value, and of 1 near zero), some four times what
vectorised implementations state. Linear algebra adds what conditioning costs: these matrices' condition numbers are
below 10, their squares below 100. A JPEG of one grey is held to two of its 256 steps.
"""

from __future__ import annotations

import base64
import cmath
import hashlib
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from envbuilder.finding import Code, Finding, Severity
from envbuilder.probes.suite.challenge import product_name
from envbuilder.probes.suite.draw import LARGE, ROWS, Draw
from envbuilder.support import terminal_text
from envbuilder.verdict import CheckResult

TOLERANCE = 32 * 2.0**-24
TOLERANCES = {"jpeg": 2.0, **dict.fromkeys(("cholesky", "solve", "det", "svd", "fft"), 100 * 2.0**-20)}
_SHOWN = 5

Numbers = list[Any]
Table = list[list[int]]


def right_answers(nonce: str) -> dict[str, Numbers]:
    """Compute every task's answer; half a second on a quiet host, most of it for the large products."""
    drawn = Draw(nonce)
    large = {product_name(shape): _product(drawn, shape) for shape in LARGE}
    return large | {name: answer(drawn) for name, answer in ANSWERS.items()}


def check_answers(result: CheckResult, data: object, right: Mapping[str, Numbers]) -> CheckResult:
    """Hold a challenge's result to the host's own answers; only a result that says passed is looked at."""
    if result.outcome != "passed":
        return result
    given = data if isinstance(data, dict) else {}
    said = {name: _differs(given.get(name), answer, TOLERANCES.get(name, TOLERANCE)) for name, answer in right.items()}
    wrong = [(name, text) for name, text in said.items() if text]
    findings = tuple(
        Finding(
            code=Code.WRONG_NUMBERS,
            severity=Severity.ERROR,
            subject=name,
            message=f"{name}: {text}",
            requires="what the host computes",
            found=text,
            fix="compare with TF_ENABLE_ONEDNN_OPTS=0 and on another host; report the build",
        )
        for name, text in wrong
    )
    count = len(right)
    return msgspec.structs.replace(
        result,
        outcome="failed" if wrong else "passed",
        expected=f"{count} answers as the host computes them",
        observed=f"{len(wrong)} of {count} are wrong: " + ", ".join(name for name, _ in wrong[:_SHOWN])
        if wrong
        else f"{count} answers are right",
        findings=findings,
    )


def _differs(given: object, expected: Numbers, tolerance: float) -> str:
    if isinstance(given, dict):
        return terminal_text.line(f"no answer: {given.get('error')}")
    if not isinstance(given, list):
        return "no answer"
    if len(given) != len(expected):
        return f"{len(given)} values where there are {len(expected)}"
    for index, (one, other) in enumerate(zip(given, expected, strict=True)):
        if not _same(one, other, tolerance):
            return terminal_text.line(f"value {index} is {str(one)[:60]}, where {str(other)[:60]} is right")
    return ""


def _same(one: object, other: object, tolerance: float) -> bool:
    if isinstance(other, str) or not isinstance(one, int | float):
        return one == other
    if isinstance(other, int):
        return one == other
    assert isinstance(other, float)  # noqa: S101 - numbers and texts are all there is
    return abs(one - other) <= tolerance * max(1.0, abs(other) if tolerance < 1 else 1.0)


def _product(drawn: Draw, shape: Sequence[int]) -> Numbers:
    """Return the digest of drawn rows of a product, and the whole product times a drawn vector.

    A row of it is one sum of large integers: each number has 32 bits of them to itself, and no sum needs more.
    """
    rows, inner, columns = shape
    name = product_name(shape)
    left, right = drawn.nibbles(name + " left", rows * inner), drawn.nibbles(name + " right", inner * columns)
    vector = drawn.nibbles(name + " vector", columns)
    across = [right[row * columns : (row + 1) * columns] for row in range(inner)]
    packed = []
    for row in across:
        wide = bytearray(4 * columns)
        wide[::4] = row
        packed.append(int.from_bytes(wide, "little"))
    digest = hashlib.sha256()
    for start in (number * rows // ROWS * inner for number in range(ROWS)):
        total = sum(map(operator.mul, left[start : start + inner], packed))
        digest.update(total.to_bytes(4 * columns, "little"))
    inside = [sum(map(operator.mul, row, vector)) for row in across]
    whole = [sum(map(operator.mul, left[row * inner : (row + 1) * inner], inside)) for row in range(rows)]
    return [digest.hexdigest(), *whole]


def _table(drawn: Draw, name: str, height: int, width: int, span: tuple[int, int] = (-8, 7)) -> Table:
    flat = drawn.integers(name, height * width, *span)
    return [flat[row * width : (row + 1) * width] for row in range(height)]


def _flat(table: Sequence[Sequence[Any]]) -> Numbers:
    return [value for row in table for value in row]


def _image(drawn: Draw) -> Callable[[int, int, int], int]:
    """Return the drawn picture of 8 by 8 with two channels, by row, column and channel."""
    flat = drawn.integers("image", 128)
    return lambda row, column, channel: flat[(row * 8 + column) * 2 + channel]


def _pooled(drawn: Draw, pool: Callable[[list[int]], float]) -> Numbers:
    at = _image(drawn)
    return [
        pool([at(2 * row + down, 2 * column + right, channel) for down in (0, 1) for right in (0, 1)])
        for row in range(4)
        for column in range(4)
        for channel in (0, 1)
    ]


def _convolved(drawn: Draw) -> Numbers:
    at, kernel = _image(drawn), drawn.integers("kernel", 54)
    return [
        sum(
            at(2 * row + down, 2 * column + right, channel) * kernel[((down * 3 + right) * 2 + channel) * 3 + out]
            for down in range(3)
            for right in range(3)
            for channel in (0, 1)
        )
        for row in range(3)
        for column in range(3)
        for out in range(3)
    ]


def _depthwise(drawn: Draw) -> Numbers:
    at, kernel = _image(drawn), drawn.integers("depthwise", 36)
    return [
        sum(
            at(row + down, column + right, channel) * kernel[((down * 3 + right) * 2 + channel) * 2 + out]
            for down in range(3)
            for right in range(3)
        )
        for row in range(6)
        for column in range(6)
        for channel in (0, 1)
        for out in (0, 1)
    ]


def _resized(drawn: Draw, weigh: Callable[[int], Sequence[tuple[int, float]]]) -> Numbers:
    """Double the picture; ``weigh`` gives, for a place in the new one, the old places and their weights."""
    at = _image(drawn)
    return [
        float(sum(one * other * at(y, x, channel) for y, one in weigh(row) for x, other in weigh(column)))
        for row in range(16)
        for column in range(16)
        for channel in (0, 1)
    ]


def _between(place: int) -> Sequence[tuple[int, float]]:
    """Weigh for bilinear doubling with pixel centres at halves: a quarter to the one side, three to the other."""
    centre = (place + 0.5) / 2 - 0.5
    below = math.floor(centre)
    share = centre - below
    return (max(0, below), 1 - share), (min(7, below + 1), share)


def _matrix(one: Table, other: Table) -> Numbers:
    return [sum(map(operator.mul, row, column)) for row in one for column in zip(*other, strict=True)]


def _lower(drawn: Draw) -> Table:
    full = _table(drawn, "lower", 5, 5, (1, 4))
    return [
        [value + 12 * (column == row) if column <= row else 0 for column, value in enumerate(line)]
        for row, line in enumerate(full)
    ]


def _solved(drawn: Draw) -> Numbers:
    lower, right = _lower(drawn), drawn.integers("right", 5)
    found: list[float] = []
    for row in range(5):
        found.append((right[row] - sum(map(operator.mul, lower[row], found))) / lower[row][row])
    return found


def _softmax(row: Sequence[int]) -> list[float]:
    parts = [math.exp(value - max(row)) for value in row]
    return [part / sum(parts) for part in parts]


def _entropies(drawn: Draw) -> Numbers:
    labels = drawn.integers("labels", 6, 0, 4)
    return [-math.log(_softmax(row)[label]) for row, label in zip(_small(drawn), labels, strict=True)]


def _small(drawn: Draw) -> Table:
    return _table(drawn, "table", 6, 5)


def _picked(drawn: Draw) -> Numbers:
    table = _small(drawn)
    return _flat([table[row] for row in drawn.integers("rows", 9, 0, 5)])


def _running(rows: Table) -> Numbers:
    total = [0] * len(rows[0])
    found: Numbers = []
    for row in rows:
        total = list(map(operator.add, total, row))
        found += total
    return found


def _sums(drawn: Draw, name: str, places: Sequence[int], size: int) -> Numbers:
    found: list[float] = [0] * size
    for place, value in zip(places, drawn.integers(name, len(places)), strict=True):
        found[place] += value
    return found


def _transformed(drawn: Draw) -> Numbers:
    signal = list(map(complex, drawn.integers("signal", 8), drawn.integers("signal 2", 8)))
    found = [
        sum(value * cmath.exp(-2j * cmath.pi * index * place / 8) for place, value in enumerate(signal))
        for index in range(8)
    ]
    return [one.real for one in found] + [one.imag for one in found]


def _texts(drawn: Draw) -> Numbers:
    text, long = drawn.word("text"), drawn.word("text", 40)
    return [
        text.upper(),
        f"{text}-{drawn.word('text 2')}",
        re.sub("[aeiou]", "_", long),
        text[3:8],
        *long.split("e"),
        33,
        drawn.integers("number", 1)[0],
        base64.urlsafe_b64encode(drawn.word("text", 20).encode()).decode().rstrip("="),
    ]


def _piped(drawn: Draw) -> Numbers:
    values = drawn.integers("data", 40, 0, 99)
    return [value * 3 + 1 for value in values if (value * 3 + 1) % 2 == 0] + sorted(values)


def _looped(drawn: Draw) -> Numbers:
    values = drawn.integers("loop", 12)
    return [sum(value if value > 0 else -1 for value in values), *(value * value for value in values)]


def _ragged(drawn: Draw) -> Numbers:
    long = drawn.integers("long", 30)
    return [sum(long[:10]), 0, sum(long[10:15]), sum(long[15:])]


_FUNCTIONS: tuple[Callable[[float], float], ...] = (
    math.erf,
    math.tan,
    math.exp,
    math.sin,
    math.tanh,
    lambda x: 1 / (1 + math.exp(-x)),
    lambda x: math.log1p(math.exp(x)),
)
_OF_POSITIVE: tuple[Callable[[float], float], ...] = (
    math.sqrt,
    lambda x: 1 / math.sqrt(x),
    math.log,
    math.log1p,
    math.lgamma,
)

ANSWERS: dict[str, Callable[[Draw], Numbers]] = {
    "max_pool": lambda d: _pooled(d, max),
    "avg_pool": lambda d: _pooled(d, lambda four: sum(four) / 4),
    "conv2d": _convolved,
    "depthwise_conv2d": _depthwise,
    "gather": _picked,
    "gather_nd": lambda d: [_small(d)[row][column] for row, column in _table(d, "places", 7, 2, (0, 4))],
    "cumsum": lambda d: _running(_small(d)),
    "cumsum_backwards": lambda d: [sum(row[place + 1 :]) for row in _small(d) for place in range(5)],
    "reverse": lambda d: _flat([row[::-1] for row in _small(d)]),
    "roll": lambda d: _flat(_small(d)[-2:] + _small(d)[:-2]),
    "transpose": lambda d: _flat(list(zip(*_small(d), strict=True))),
    "concat": lambda d: _flat(list(map(operator.add, _small(d), _table(d, "more", 6, 2)))),
    "pad": lambda d: [0] * 7 + _flat([[*row, 0, 0] for row in _small(d)]),
    "tile": lambda d: _flat([row * 3 for row in _table(d, "more", 6, 2)]),
    "one_hot": lambda d: [int(place == row) for row in d.integers("rows", 9, 0, 5) for place in range(6)],
    "where": lambda d: [value if value > 0 else -1 for value in _flat(_small(d))],
    "boolean_mask": lambda d: [value for value in _flat(_small(d)) if value > 2],  # noqa: PLR2004 - the task's own
    "segment_sum": lambda d: _flat(
        [[sum(column) for column in zip(*_small(d)[low:high], strict=True)] for low, high in ((0, 2), (2, 5), (5, 6))]
    ),
    "unsorted_segment_sum": lambda d: _sums(d, "long", d.integers("segments", 30, 0, 6), 7),
    "sort": lambda d: sorted(d.integers("long", 30), reverse=True),
    "argsort": lambda d: sorted(range(50), key=d.order("shuffled", 50).__getitem__),
    "top_k": lambda d: sorted(range(50), key=d.order("shuffled", 50).__getitem__)[:-8:-1],
    "unique": lambda d: list(dict.fromkeys(d.integers("long", 30))),
    "reductions": lambda d: [
        reduce(row) for reduce in (sum, math.prod, max, min, lambda row: row.index(max(row))) for row in _small(d)
    ],
    "scatter_nd": lambda d: _sums(d, "updates", d.integers("rows", 9, 0, 5), 6),
    "einsum": lambda d: _matrix(_small(d), [list(row) for row in zip(*_table(d, "other", 4, 5), strict=True)]),
    "functions": lambda d: [function(value / 7) for function in _FUNCTIONS for value in d.integers("small", 16)],
    "positive_functions": lambda d: [
        function(value / 7) for function in _OF_POSITIVE for value in d.integers("small", 16, 1, 16)
    ],
    "softmax": lambda d: _flat([_softmax(row) for row in _small(d)]),
    "cross_entropy": _entropies,
    "cholesky": lambda d: [float(value) for value in _flat(_lower(d))],
    "solve": _solved,
    "det": lambda d: [float(math.prod(_lower(d)[index][index] for index in range(5)))],
    "svd": lambda d: [float(value) for value in sorted(d.integers("values", 5, 1, 9), reverse=True)],
    "fft": _transformed,
    "strings": _texts,
    "decode_png": lambda d: list(d.octets("picture", 63)),
    "png_again": lambda d: list(d.octets("picture", 63)),
    "jpeg": lambda d: [40.0 + d.integers("grey", 1, 0, 150)[0]],
    "resize_nearest": lambda d: _resized(d, lambda place: ((place // 2, 1.0),)),
    "resize_bilinear": lambda d: _resized(d, _between),
    "flip": lambda d: [
        _image(d)(row, 7 - column, channel) for row in range(8) for column in range(8) for channel in (0, 1)
    ],
    "files": lambda d: [d.word("file", 200), *re.findall("." * 40, d.word("file", 200))],
    "data": _piped,
    "loops": _looped,
    "embedding": _picked,
    "ragged": _ragged,
    "sparse_matmul": lambda d: _matrix(
        [[max(0, value) for value in row] for row in _small(d)], _table(d, "dense", 5, 3)
    ),
}
"""The right answer to every task of ``probes/suite/challenge.py``, by its name."""
