"""dpkg's own list of what is installed."""

from __future__ import annotations

import pytest

from envbuilder.image.dpkg_status import versions


@pytest.mark.parametrize(
    ("status", "found"),
    [
        ("install ok installed", {"a": "1"}),
        ("hold ok installed", {"a": "1"}),
        ("deinstall ok installed", {"a": "1"}),
        ("install ok triggers-awaited", {"a": "1"}),
        ("install ok triggers-pending", {"a": "1"}),
        ("install ok unpacked", {}),
        ("install ok half-configured", {}),
        ("install reinstreq half-installed", {}),
        ("deinstall ok config-files", {}),
        ("purge ok not-installed", {}),
        ("", {}),
    ],
)
def test_what_is_set_up_is_installed(status: str, found: dict[str, str]) -> None:
    """Whatever is wished of it, and a trigger that is due notwithstanding; half of a package is none."""
    text = f"Package: a\nStatus: {status}\nArchitecture: amd64\nVersion: 1\n"
    assert versions(text) == found


def test_a_package_without_a_state_is_installed() -> None:
    """So it is where an image has one file a package, and no package manager that would change it."""
    assert versions("Package: a\nVersion: 1\nArchitecture: amd64\n") == {"a": "1"}
