"""What a build says of itself against what its environment names."""

from __future__ import annotations

import pytest

from envbuilder.probes.build import serves


@pytest.mark.parametrize(
    ("name", "named", "built", "served"),
    [
        ("cuda", "12.5", "12.5.1", True),
        ("cuda", "11.8", "11.2", True),
        ("cuda", "11.2", "11.8", False),
        ("cuda", "12.2", "11.8", False),
        ("cuda", "10.1", "10.0", False),
        ("cuda", "10.1", "10", True),
        ("cudnn", "9.3", "9", True),
        ("cudnn", "8.9", "8.1", True),
        ("cudnn", "9.1", "9.3", False),
        ("cudnn", "9.3", "8", False),
    ],
)
def test_versions_that_serve_a_build(name: str, named: str, built: str, *, served: bool) -> None:
    """The same version serves, and a newer minor of the same major, but for CUDA before 11."""
    assert serves(name, named, built) is served
