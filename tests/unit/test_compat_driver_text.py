"""A driver is found in what people paste, and nothing is guessed where two are named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuilder.catalog.store import load
from envbuilder.compat.question import driver_in

CATALOG = load()
SMI = "| NVIDIA-SMI 535.183.01             Driver Version: 535.104.05   CUDA Version: 12.2     |"
KERNEL = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.57.02  Tue Jul 13 16:14:05 UTC 2021"


@pytest.mark.parametrize(
    ("text", "driver"),
    [
        ("535.104.05", "535.104.05"),
        ("R535", "535"),
        ("r550", "550"),
        ("v535.54.03", "535.54.03"),
        ("535.x", "535"),
        ("535.xx", "535"),
        ("535.xx.xx", "535"),
        ("535.*", "535"),
        ("nvidia-driver-535", "535"),
        ("nvidia-driver-535-server", "535"),
        ("nvidia-headless-550-open", "550"),
        ("libnvidia-compute-570", "570"),
        ("535-server", "535"),
        ("535.104.05-0ubuntu1", "535.104.05"),
        ("3:525.85.12-1.el8", "525.85.12"),
        ("nvidia-driver-535=535.183.01-0ubuntu0.22.04.1", "535.183.01"),
        ("NVIDIA-Linux-x86_64-535.104.05.run", "535.104.05"),
        (SMI, "535.104.05"),
        (KERNEL, "470.57.02"),
        ("31.0.15.3742", "537.42"),
        ("27.21.14.5671", "456.71"),
        ("32.0.15.6636", "566.36"),
        ("540.4.0", "540.4.0"),
        ("12.2", "12.2"),
        ("535 or 550", "535 or 550"),
        ("535.104.05 550.54.15", "535.104.05 550.54.15"),
        ("latest", "latest"),
        ("", ""),
    ],
)
def test_a_text_names_one_driver_or_stays_as_it_is(text: str, driver: str) -> None:
    """Packages, lines of nvidia-smi and the kernel module's, and Windows' long numbers name the driver in them."""
    assert driver_in(text) == driver


def test_every_release_of_the_catalogue_means_itself() -> None:
    """What is a driver already is not changed."""
    for row in CATALOG.drivers:
        for release in (row.branch, *row.releases):
            assert driver_in(release) == release
            assert driver_in(f"Driver Version: {release}.") in {release, f"Driver Version: {release}."}


@given(st.text(alphabet="0123456789.Rrx*- v:", max_size=40))
def test_nothing_is_made_up(text: str) -> None:
    """The driver that a text names stands in it, or is made of its last digits; asking again changes nothing."""
    found = driver_in(text)
    digits = "".join(one for one in text if one.isdigit())
    assert found in text or "".join(one for one in found if one.isdigit()) in digits
    assert driver_in(found) == found
