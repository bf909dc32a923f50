"""The build's own description, compared with the environment."""

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
def test_versions_agree_in_common_parts(wanted: str, found: str, *, agree: bool) -> None:
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
def test_module_version_matches_its_wheel(wheel: str, module: str, *, agree: bool) -> None:
    assert same_release(wheel, module) is agree
