"""A question to `check`: its options, the nearest environment, what the catalogue lacks, and rules about drivers."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

import jsonschema
import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from table_rows import rows

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.store import load
from envbuilder.cli.check_command import command
from envbuilder.cli.output import warn_of_age
from envbuilder.cli.schema_command import schema
from envbuilder.compat import rules
from envbuilder.compat.candidate import Candidate, Rule, with_rows
from envbuilder.compat.check import answer, findings_of
from envbuilder.compat.check_text import nearest_line
from envbuilder.compat.plan import plan
from envbuilder.compat.question import Question, QuestionOptions, driver_in, question
from envbuilder.compat.rules.driver import minimum_driver, own_driver, reaches_minimum, requirement_met
from envbuilder.compat.unknown import newer_than, no_release
from envbuilder.environment import Change
from envbuilder.errors import UsageError
from envbuilder.finding import Code, Finding, Severity
from envbuilder.matrix import Include, Matrix

CATALOG = load()


@rows
def test_json_holds_what_the_table_shows(words: str) -> None:
    table = CliRunner().invoke(command, words.split()).stdout
    document = json.loads(CliRunner().invoke(command, [*words.split(), "--format", "json"]).stdout)
    jsonschema.Draft202012Validator(schema("check")).validate(document)
    shown = next((line for line in table.splitlines() if line.startswith("nearest")), None)
    near = document["nearest"]
    if near is not None:
        changes = tuple(Change(row["field"], row["from"], row["to"]) for row in near["changes"])
        assert shown == nearest_line(near["predicate"], changes)
        assert near["environment"]["gpus"] == document["environment"]["gpus"]
        assert near["environment"]["driver"] == document["environment"]["driver"]
    else:
        assert shown == (
            "nearest that works: none with this driver and GPU" if document["compatible"] is False else None
        )


def same_minor(candidate: Candidate, _catalog: Catalog) -> Iterator[Finding]:
    """Refuse a tensorflow-text of another minor version, and more than two pins: no release has bounds on them."""
    own = versions.minor(candidate.release.version)
    texts = [version for name, version in candidate.packages if name == "tensorflow-text"]
    if any(versions.minor(version) != own for version in texts) or len(candidate.packages) > 2:
        yield Finding(code=Code.PACKAGE_CONFLICT, severity=Severity.ERROR, subject="text", message="It is another one.")


@rows
def test_nearest_gives_up_the_pins_that_any_rule_refuses(
    pins: tuple[str, ...], kept: tuple[str, ...], changes: list[Change], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "RULES", (*rules.RULES, Rule("python", (Code.PACKAGE_CONFLICT,), same_minor)))
    found = answer(Question(tensorflow="2.16.2", packages=pins), CATALOG).nearest
    assert (found.environment.packages, list(found.changes)) == (kept, changes)
    matrix = Matrix(name="m", include=(Include(tensorflow="2.16.2", packages=pins),))
    (refused,) = plan(matrix, CATALOG).rejections
    assert list(refused.changes) == changes


def test_rule_that_reads_the_other_part_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the nearest would be the same environment, without a change."""
    monkeypatch.setattr(rules, "RULES", (*rules.RULES, Rule("cuda", (Code.PACKAGE_CONFLICT,), same_minor)))
    with pytest.raises(AssertionError, match="PACKAGE_CONFLICT"):
        answer(Question(tensorflow="2.16.2", packages=("tensorflow-text==2.15.0",)), CATALOG)


@rows
def test_wrong_option_is_refused_with_a_hint(options, expected) -> None:
    with pytest.raises(UsageError) as caught:
        question(msgspec.convert(options, QuestionOptions))
    assert expected in str(caught.value)
    assert caught.value.hint


@rows
def test_text_names_one_driver_or_stays_as_it_is(text: str, driver: str) -> None:
    assert driver_in(text) == driver


def test_every_release_of_the_catalogue_is_itself() -> None:
    for row in CATALOG.drivers:
        for release in (row.branch, *row.releases):
            assert driver_in(release) == release
            assert driver_in(f"Driver Version: {release}.") in {release, f"Driver Version: {release}."}


@given(st.text(alphabet="0123456789.Rrx*- v:", max_size=40))
def test_found_driver_is_part_of_the_text(text: str) -> None:
    found = driver_in(text)
    digits = "".join(one for one in text if one.isdigit())
    assert found in text or "".join(one for one in found if one.isdigit()) in digits
    assert driver_in(found) == found


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


RELEASE = CATALOG.release("2.18.0")
REQUIREMENT = "cuda>=12.5 brand=tesla,driver>=535,driver<536 brand=nvidia,driver>=550,driver<551"


def with_driver(driver: str) -> Candidate:
    assert RELEASE is not None
    return with_rows(Candidate(release=RELEASE, driver=driver), CATALOG)


def test_drivers_of_a_toolkit_for_windows_have_the_branch_of_those_for_linux_and_reach_its_minimum() -> None:
    for toolkit in (row for row in CATALOG.cuda if row.windows_driver is not None):
        for linux, windows in (
            (toolkit.driver, toolkit.windows_driver),
            (toolkit.minimum_driver, toolkit.windows_minimum_driver),
        ):
            assert CATALOG.branch(linux) is not None
            assert CATALOG.branch(linux) is CATALOG.branch(windows)
        assert versions.key(toolkit.windows_minimum_driver or "") <= versions.key(toolkit.windows_driver or "")
        for driver in (toolkit.driver, toolkit.windows_driver, toolkit.windows_minimum_driver):
            assert driver is not None
            assert reaches_minimum(with_driver(driver), toolkit)


def test_host_with_a_number_of_windows_never_gets_one_of_linux() -> None:
    for number in (number for row in CATALOG.drivers for number in row.windows):
        host = with_driver(f"{number}.50")
        assert host.windows == number
        for toolkit in CATALOG.cuda:
            named = (minimum_driver(host, toolkit, CATALOG), own_driver(host, toolkit, CATALOG) or "Windows")
            assert all("Windows" in one or one.startswith("branch ") for one in named), (toolkit.version, named)


@rows
def test_requirement_is_evaluated_as_the_runtime_does(cuda, driver, brand, met) -> None:
    assert requirement_met(REQUIREMENT, cuda=cuda, driver=driver, brand=brand, capability=None) is met
    assert requirement_met("", cuda=cuda, driver=driver, brand=brand, capability=None) is True


@pytest.mark.parametrize("text", ["cuda", "cuda>>1", "colour=red", "cuda>=12.5,,brand=tesla"])
def test_invalid_condition_is_refused(text) -> None:
    with pytest.raises(ValueError, match="NVIDIA_REQUIRE_CUDA"):
        requirement_met(text, cuda="1.0", driver="1.0", brand="tesla", capability=None)
