"""Versions: what is final, how far two are apart, and what unknown ones agree with."""

from __future__ import annotations

import pytest

from envbuilder import versions


@pytest.mark.parametrize(
    ("text", "final"),
    [("2.20.0", True), ("2.20.0.post1", True), ("2.21.0rc0", False), ("2.0.0b1", False), ("2.5.0.dev1", False)],
)
def test_what_is_final(text: str, *, final: bool) -> None:
    """Releases and post-releases are final; candidates, betas and development versions are not."""
    assert versions.is_final(text) is final


def test_the_nearer_version_has_the_smaller_distance() -> None:
    """Distance is counted number by number, the first ones first, in either direction."""
    near = sorted(("11.8", "12.0", "11.1", "10.2"), key=lambda text: versions.distance(text, "11.2"))
    assert near == ["11.1", "11.8", "10.2", "12.0"]
    assert versions.distance("8.9.7", "8.6") == versions.distance("8.6", "8.9.7") == (0, 3)


def test_what_is_unknown_agrees_with_nothing() -> None:
    """An unknown version is of no major line, not even of another unknown one's."""
    assert versions.same_major("12.5", "12.0")
    assert not versions.same_major("11.8", "12.0")
    assert not versions.same_major(None, "12.0")
    assert not versions.same_major("12.0", None)
    assert not versions.same_major(None, None)


@pytest.mark.parametrize("text", ["", "nightly", "cu12", "-1"])
def test_what_is_no_version_has_no_key(text: str) -> None:
    """A text that is no version is told apart without an exception; the strict form raises."""
    assert versions.key_or_none(text) is None
    with pytest.raises(ValueError, match="not a version"):
        versions.key(text)
