"""Options of a question: one strict grammar a field, a helpful error, and a driver in any pasted text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuilder.catalog.store import load
from envbuilder.compat.question import QuestionOptions, driver_in, question
from envbuilder.errors import UsageError

CATALOG = load()
SMI = "| NVIDIA-SMI 535.183.01             Driver Version: 535.104.05   CUDA Version: 12.2     |"
KERNEL = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.57.02  Tue Jul 13 16:14:05 UTC 2021"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"tensorflow": "newest"}, "--tensorflow"),
        ({"tensorflow": ">=2.17,"}, "--tensorflow"),
        ({"tensorflow": "2.20.0; rm -rf /"}, "--tensorflow"),
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
def test_wrong_option_is_refused_with_a_hint(options, expected) -> None:
    with pytest.raises(UsageError) as caught:
        question(QuestionOptions(**options))
    assert expected in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "driver"),
    [
        ("R535", "535"),
        ("535.x", "535"),
        ("535.xx.xx", "535"),
        ("535.*", "535"),
        ("nvidia-driver-535-server", "535"),
        ("libnvidia-compute-570", "570"),
        ("535-server", "535"),
        ("535.104.05-0ubuntu1", "535.104.05"),
        ("3:525.85.12-1.el8", "525.85.12"),
        ("nvidia-driver-535=535.183.01-0ubuntu0.22.04.1", "535.183.01"),
        ("NVIDIA-Linux-x86_64-535.104.05.run", "535.104.05"),
        (SMI, "535.104.05"),
        (KERNEL, "470.57.02"),
        ("31.0.15.3742", "537.42"),
        ("32.0.15.6636", "566.36"),
        ("12.2", "12.2"),
        ("535 or 550", "535 or 550"),
        ("latest", "latest"),
        ("", ""),
    ],
)
def test_text_names_one_driver_or_stays_as_it_is(text: str, driver: str) -> None:
    assert driver_in(text) == driver


def test_every_release_of_the_catalogue_is_itself() -> None:
    for row in CATALOG.drivers:
        for release in (row.branch, *row.releases):
            assert driver_in(release) == release
            assert driver_in(f"Driver Version: {release}.") in {release, f"Driver Version: {release}."}


@given(st.text(alphabet="0123456789.Rrx*- v:", max_size=40))
def test_found_driver_is_part_of_the_text(text: str) -> None:
    found = driver_in(text)
    digits = "".join(one for one in text if one.isdigit())
    assert found in text or "".join(one for one in found if one.isdigit()) in digits
    assert driver_in(found) == found
