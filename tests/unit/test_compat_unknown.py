"""What the catalogue lacks: each answer names what is near and a way out that helps; days after it are told."""

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_rows import rows

from envbuilder import versions
from envbuilder.catalog.store import load
from envbuilder.cli.output import warn_of_age
from envbuilder.compat.check import answer, findings_of
from envbuilder.compat.question import Question
from envbuilder.compat.unknown import newer_than, no_release

CATALOG = load()


@given(st.from_regex(r"[1-3]\.[0-9]{1,2}\.[0-9]", fullmatch=True))
def test_no_release_is_between_one_and_its_near_ones(version: str) -> None:
    known = [row.version for row in CATALOG.releases()]
    named = [text for text in known if text in no_release(version, None, CATALOG).message.replace(",", " ").split()]
    if version in known or not named or any(versions.minor(text) == versions.minor(version) for text in known):
        return
    below = [text for text in known if versions.key(text) < versions.key(version)]
    above = [text for text in known if versions.key(text) > versions.key(version)]
    assert set(named) <= {*below[-1:], *above[:1]}


@pytest.mark.parametrize("day", ["2019-10-01", "2021-03-01", "2022-12-24", "2024-06-17", "2025-08-14", "2026-03-05"])
@pytest.mark.parametrize("version", ["1.15.0", "2.4.1", "2.10.1", "2.15.1", "2.20.0", "2.21.0"])
def test_nearest_environment_of_a_day_existed_on_it(version: str, day: str) -> None:
    document = answer(Question(tensorflow=version, install="and-cuda", as_of=day, gpus=("T4",)), CATALOG)
    if document.compatible is not True and document.nearest is None:
        return  # nothing is offered
    offered = document.nearest.environment if document.nearest is not None else document.environment
    row = CATALOG.release(offered.tensorflow, offered.package)
    assert row.released <= day
    line = next(row for row in CATALOG.cudnn_wheels if row.package == "nvidia-cudnn-cu12")
    assert dict(zip(line.versions, line.uploaded, strict=True)).get(offered.cudnn or "", "") <= day


@rows
def test_day_after_the_catalogue_is_noted_then_a_warning(
    read_on: str, asked_on: str | None, severity: str | None
) -> None:
    assert [row.severity.value for row in newer_than(read_on, asked_on)] == ([severity] if severity else [])


def test_old_catalogue_is_warned_of_by_the_clock(capsys: pytest.CaptureFixture[str]) -> None:
    read = datetime.fromisoformat(CATALOG.read_on).replace(tzinfo=UTC)
    assert warn_of_age(CATALOG, read) is CATALOG
    assert capsys.readouterr() == ("", "")
    warn_of_age(CATALOG, read.replace(year=read.year + 1))
    out, err = capsys.readouterr()
    assert (out, CATALOG.read_on in err) == ("", True)


def test_first_day_of_a_release_is_a_day_with_it() -> None:
    for row in CATALOG.releases():
        first = date.fromisoformat(row.released)
        for day, is_missing in ((first, False), (first - timedelta(days=1), True)):
            asked = Question(tensorflow=row.version, package="tensorflow", as_of=day.isoformat(), gpu=False)
            assert any("was uploaded" in found.message for found in findings_of(asked, CATALOG)) is is_missing, row
