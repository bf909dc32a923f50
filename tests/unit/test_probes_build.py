"""What a build says of itself against what its environment names."""

from __future__ import annotations

import pytest

from envbuilder.probes.build import same


@pytest.mark.parametrize(
    ("wanted", "found", "agree"),
    [
        ("12.5", "12.5.1", True),
        ("12.5.1", "12.3", False),
        ("11.8", "11.2", False),
        ("9.3", "9", True),
        ("9", "8", False),
    ],
)
def test_versions_that_say_the_same(wanted: str, found: str, *, agree: bool) -> None:
    """Two versions agree as far as both say."""
    assert same(wanted, found) is agree
