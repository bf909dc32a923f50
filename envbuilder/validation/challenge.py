"""Compare the image's product of matrices that are drawn for a run with the host's own product."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Mapping
from typing import Any

import msgspec

from envbuilder.finding import Code, Finding, Severity
from envbuilder.probes.suite.drawn_product import ROWS, SHAPE, nibbles
from envbuilder.verdict import CheckResult


def product(nonce: str) -> dict[str, Any]:
    """Compute what `probes/suite/drawn_product.py` returns, in plain Python.

    A row of the product is one sum of large integers: each number has 32 bits in them, and no sum needs more.
    """
    rows, inner, columns = SHAPE
    left, right = nibbles(nonce, "left", rows * inner), nibbles(nonce, "right", inner * columns)
    vector = nibbles(nonce, "vector", columns)
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
    sums = [sum(map(operator.mul, left[row * inner : (row + 1) * inner], inside)) for row in range(rows)]
    return {"rows": digest.hexdigest(), "sums": sums}


def check_product(result: CheckResult, data: object, expected: Mapping[str, Any]) -> CheckResult:
    """Compare the data of a check that passed with the host's product."""
    if result.outcome != "passed":
        return result
    given = data if isinstance(data, dict) else {}
    wrong = [name for name in expected if given.get(name) != expected[name]]
    if not wrong:
        return msgspec.structs.replace(result, observed="the host's product")
    text = f"matmul {SHAPE[0]}x{SHAPE[1]}x{SHAPE[2]}: not the host's product ({' and '.join(wrong)} differ)"
    finding = Finding(
        code=Code.WRONG_NUMBERS,
        severity=Severity.ERROR,
        subject="matmul",
        message=text,
        requires="the product that the host computes",
        fix="compare with TF_ENABLE_ONEDNN_OPTS=0 and on another host; report the build",
    )
    return msgspec.structs.replace(result, outcome="failed", observed=text, findings=(finding,))
