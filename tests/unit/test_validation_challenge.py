"""The drawn product: only the host's own product of this run's numbers passes."""

from __future__ import annotations

from typing import Any

import pytest

from envbuilder.finding import Code
from envbuilder.probes.suite.drawn_product import SHAPE, nibbles
from envbuilder.validation.challenge import check_product, product
from envbuilder.verdict import CheckResult

EXPECTED = product("a nonce")


def checked(data: object, outcome: Any = "passed") -> CheckResult:
    return check_product(CheckResult(name="challenge", level="cpu", outcome=outcome), data, EXPECTED)


def test_host_s_product_passes_also_as_floats() -> None:
    assert checked(EXPECTED).outcome == "passed"
    assert checked(EXPECTED | {"sums": [float(one) for one in EXPECTED["sums"]]}).findings == ()


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "passed",
        {},
        {"rows": EXPECTED["rows"]},
        EXPECTED | {"rows": "0" * 64},
        EXPECTED | {"sums": [*EXPECTED["sums"][:-1], 0]},
        product("another nonce"),
    ],
)
def test_anything_else_is_wrong_numbers(data: object) -> None:
    result = checked(data)
    assert result.outcome == "failed"
    assert [found.code for found in result.findings] == [Code.WRONG_NUMBERS]


@pytest.mark.parametrize("outcome", ["error", "skipped"])
def test_check_that_did_not_pass_does_not_change(outcome: str) -> None:
    assert checked(EXPECTED, outcome).outcome == outcome


def test_product_is_exact_in_float32() -> None:
    assert max(nibbles("n", "z", 5000)) == 15
    assert SHAPE[1] * 15 * 15 < 1 << 24
