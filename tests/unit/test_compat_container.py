"""`NVIDIA_REQUIRE_CUDA`: spaces are OR, commas are AND, and what is unknown stays unknown."""

from __future__ import annotations

import pytest

from envbuilder.compat.rules.driver import requirement_met

ASKS = "cuda>=12.5 brand=tesla,driver>=535,driver<536 brand=nvidia,driver>=550,driver<551"


@pytest.mark.parametrize(
    ("cuda", "driver", "brand", "met"),
    [
        ("12.5", "555.42.02", "geforce", True),
        ("13.0", "580.65.06", None, True),
        ("12.2", "535.104.05", "tesla", True),
        ("12.2", "535.104.05", "geforce", False),
        ("12.4", "550.54.14", "tesla", False),
        ("12.4", "550.54.14", "nvidia", True),
        ("12.2", "535.104.05", None, None),
        ("12.0", "525.60.13", None, False),
        (None, "525.60.13", "tesla", None),
    ],
)
def test_the_requirement_is_evaluated_as_the_runtime_does(cuda, driver, brand, met) -> None:
    """One alternative is enough, every condition of it must hold, and a missing value decides nothing by itself."""
    assert requirement_met(ASKS, cuda=cuda, driver=driver, brand=brand, capability=None) is met


def test_no_requirement_admits_everything() -> None:
    """An empty text is no requirement."""
    assert requirement_met("", cuda=None, driver=None, brand=None, capability=None) is True


@pytest.mark.parametrize("text", ["cuda", "cuda>>1", "colour=red", "cuda>=12.5,,brand=tesla"])
def test_what_is_no_condition_is_refused(text) -> None:
    """A text that the runtime would not understand is not silently met."""
    with pytest.raises(ValueError, match="NVIDIA_REQUIRE_CUDA"):
        requirement_met(text, cuda="1.0", driver="1.0", brand="tesla", capability=None)
