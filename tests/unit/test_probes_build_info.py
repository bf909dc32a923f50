"""What a build says of itself against what its environment names."""

from __future__ import annotations

import pytest

from envbuilder.probes.suite.build_info import same
from envbuilder.probes.suite.startup import same_release


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
    assert same(wanted, found) is agree


@pytest.mark.parametrize(
    ("wheel", "module", "agree"),
    [
        ("2.21.0rc1", "2.21.0-rc1", True),
        ("2.20.0", "2.20.0", True),
        ("2.15.0.post1", "2.15.0", True),
        ("2.21.0rc1", "2.21.0", False),
        ("2.20.0", "2.19.1", False),
    ],
)
def test_the_module_names_its_release_in_its_own_way(wheel: str, module: str, *, agree: bool) -> None:
    assert same_release(wheel, module) is agree
