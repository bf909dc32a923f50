"""Versions: their spellings and abbreviations, and what unknown ones agree with."""

import pytest
from table_rows import rows

from envbuilder import versions


@pytest.mark.parametrize(("one", "other"), [(None, "12.0"), ("12.0", None), (None, None)])
def test_unknown_version_has_no_equal_major(one: str | None, other: str | None) -> None:
    assert not versions.same_major(one, other)


@pytest.mark.parametrize("text", ["", "nightly", "cu12", "-1"])
def test_text_that_is_not_a_version_has_no_key(text: str) -> None:
    assert versions.key_or_none(text) is None
    with pytest.raises(ValueError, match="not a version"):
        versions.key(text)


def test_version_equals_its_other_spellings_and_no_unknown_one() -> None:
    assert versions.same("2.20", "2.20.0")
    assert versions.same("2.21.0-rc1", "2.21.0rc1")
    assert not versions.same("2.2.0", "2.20.0")
    for text in (None, "", "nightly"):
        assert not versions.same(text, "2.20.0")
        assert not versions.same(text, text)


def test_unknown_version_comes_before_every_version() -> None:
    texts = ["3.9", None, "3.11", "", "0"]
    assert sorted(texts, key=versions.order) == [None, "", "0", "3.9", "3.11"]


@pytest.mark.parametrize(
    ("text", "line", "named"), [("12.5.1", "12.5", True), ("12.5", "12.5", True), ("12", "12", False)]
)
def test_line_says_no_more_than_its_version(text: str, line: str, *, named: bool) -> None:
    assert versions.line(text) == line
    assert versions.names_line(text) is named


@rows
def test_pin_is_one_version_of_one_distribution(text: str, pin: list[str] | None) -> None:
    assert versions.pin_or_none(text) == (tuple(pin) if pin else None)
    if pin is None:
        with pytest.raises(ValueError, match="not a pin"):
            versions.pin(text)
    else:
        assert versions.pins((text,)) == {pin[0]: pin[1]}


@rows
def test_version_stands_for_those_that_it_abbreviates(short: str, full: str, *, stands: bool) -> None:
    assert versions.is_prefix(short, full) is stands


@pytest.mark.parametrize(
    "short", ["", "new", "2.19.1,2.20.0", "2.20.0 ", "2.20.0;", "2.20.", "2.20.*", "12.4 or 12.5", "2.20.0\n"]
)
def test_text_that_is_not_one_version_abbreviates_none(short: str) -> None:
    with pytest.raises(ValueError, match="not a version"):
        versions.is_prefix(short, "2.20.0")
