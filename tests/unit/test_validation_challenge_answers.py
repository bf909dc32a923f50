"""The challenge: what the host computes by itself, and how an image's answers are held to it."""

from __future__ import annotations

import math
import zlib
from typing import Any

import pytest

from envbuilder.finding import Code
from envbuilder.probes.suite import challenge
from envbuilder.probes.suite.draw import LARGE, Draw, png
from envbuilder.validation.challenge_answers import ANSWERS, check_answers, right_answers
from envbuilder.verdict import CheckResult

RIGHT = right_answers("a nonce")
SAID = CheckResult(name="challenge", level="cpu", outcome="passed", observed="50 answers")


def held(data: object, outcome: Any = "passed") -> CheckResult:
    """Hold answers to the right ones."""
    return check_answers(CheckResult(name="challenge", level="cpu", outcome=outcome), data, RIGHT)


def test_image_and_host_have_the_same_tasks() -> None:
    """Every task that the image answers has an answer on the host, and there is no other."""
    assert set(ANSWERS) == set(challenge.TASKS)
    assert set(RIGHT) == {*ANSWERS, *(challenge.product_name(shape) for shape in LARGE)}
    assert all(RIGHT.values())


def test_right_answers_pass() -> None:
    """What the host computed itself is right, also as the JSON of floats that an image sends."""
    sent = {name: [float(one) if isinstance(one, int) else one for one in answer] for name, answer in RIGHT.items()}
    assert held(sent).outcome == "passed"
    assert held(RIGHT).findings == ()


@pytest.mark.parametrize("name", sorted(RIGHT))
def test_each_task_alone_can_turn_it_red(name: str) -> None:
    """One value that is half as large again, or no answer, is WRONG_NUMBERS under that task's name alone."""
    answer = list(RIGHT[name])
    place = next(index for index, value in enumerate(answer) if value)
    answer[place] = "other" if isinstance(answer[place], str) else answer[place] * 1.5 + 1
    for wrong in (answer, answer[1:], None, [{"error": "x"}], {"error": "raised"}):
        found = held({**RIGHT, name: wrong})
        assert found.outcome == "failed"
        assert [(one.code, one.subject) for one in found.findings] == [(Code.WRONG_NUMBERS, name)]


@pytest.mark.parametrize("data", [None, [], "passed", {}, {"max_pool": 7}, {"max_pool": [math.nan]}])
def test_a_pass_without_answers_is_none(data: object) -> None:
    """An image that says passed and answers nothing, or nonsense, failed."""
    assert held(data).outcome == "failed"
    assert held(data).findings


def test_a_check_that_did_not_pass_stays_so() -> None:
    """A crash or a skip is not made anything else by the answers that came with it."""
    assert held(RIGHT, "error").outcome == "error"
    assert held(RIGHT, "skipped").outcome == "skipped"


def test_another_run_has_other_answers() -> None:
    """Answers kept from one run are wrong in the next: everything that is drawn differs with the nonce."""
    other = right_answers("another nonce")
    fixed = {name for name, answer in other.items() if answer == RIGHT[name]}
    assert not fixed


def test_the_draw_keeps_its_bounds() -> None:
    """Integers stay within what was asked for, an order holds each number once, nibbles are exact in a product."""
    drawn = Draw("n")
    assert set(drawn.integers("x", 4000, -3, 5)) == set(range(-3, 6))
    assert sorted(drawn.order("y", 50)) == list(range(50))
    assert max(drawn.nibbles("z", 5000)) == 15
    assert max(shape[1] for shape in LARGE) * 15 * 15 < 1 << 24


def test_a_picture_is_a_png() -> None:
    """The picture that is decoded holds the drawn pixels, row by row behind a filter byte, and right checksums."""
    written = png(3, 2, bytes(range(6)))
    assert written[:8] == b"\x89PNG\r\n\x1a\n"
    start = written.index(b"IDAT")
    length = int.from_bytes(written[start - 4 : start], "big")
    data = written[start + 4 : start + 4 + length]
    assert zlib.decompress(data) == b"\0\0\1\2\0\3\4\5"
    assert zlib.crc32(b"IDAT" + data) == int.from_bytes(written[start + 4 + length : start + 8 + length], "big")
