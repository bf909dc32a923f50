"""The user's words: one strict grammar a field, and a message that says how to write it."""

from __future__ import annotations

import pytest

from envbuilder.compat.question import QuestionOptions, question
from envbuilder.errors import UsageError


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"tensorflow": "latest"}, "--tensorflow"),
        ({"tensorflow": "2.20.0; rm -rf /"}, "--tensorflow"),
        ({"tensorflow": "2.20.0\n"}, "--tensorflow"),
        ({"tensorflow": "2.20.0", "python": "3"}, "--python"),
        ({"tensorflow": "2.20.0", "driver": "12.2"}, "looks like a CUDA version"),
        ({"tensorflow": "2.20.0", "driver": "R12.2"}, "looks like a CUDA version"),
        ({"tensorflow": "2.20.0", "driver": "RR535"}, "--driver"),
        ({"tensorflow": "2.20.0", "cuda": "535.104.05"}, "looks like a driver"),
        ({"tensorflow": "2.20.0", "cudnn": "8907"}, "write --cudnn 8.9.7"),
        ({"tensorflow": "2.20.0", "cudnn": "90300"}, "write --cudnn 9.3.0"),
        ({"tensorflow": "2.20.0", "gpus": ("H100", "$(id)")}, "--gpu"),
        ({"tensorflow": "2.20.0", "capabilities": ("90",)}, "--compute-capability"),
        ({"tensorflow": "2.20.0", "packages": ("numpy>=2",)}, "--with"),
        ({"tensorflow": "2.20.0", "as_of": "2026-02-30"}, "not a valid date"),
        ({"tensorflow": "2.20.0", "base_image": "-it"}, "--base-image"),
    ],
)
def test_what_is_not_what_it_should_be_is_refused_with_a_way_out(words, says) -> None:
    """Bad words raise our error, which names the option and what to do next."""
    with pytest.raises(UsageError) as caught:
        question(QuestionOptions(**words))
    assert says in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("written", "meant"),
    [("535", "535"), ("R535", "535"), ("r535.104.05", "535.104.05"), ("535.104.05", "535.104.05")],
)
def test_a_driver_may_be_a_branch_and_bear_the_vendor_s_letter(written: str, meant: str) -> None:
    """The letter of a branch is no part of its number, with or without a release behind it."""
    assert question(QuestionOptions(tensorflow="2.20.0", driver=written)).driver == meant


def test_numpy_and_protobuf_are_pins_like_any_other() -> None:
    """The short options end up beside what --with gives, and a Python's patch is left out."""
    asked = question(
        QuestionOptions(tensorflow="2.20.0", python="3.11.4", numpy="2.0.0", protobuf="5.0", packages=("keras==3.0.0",))
    )
    assert asked.packages == ("keras==3.0.0", "numpy==2.0.0", "protobuf==5.0")
    assert asked.python == "3.11"
