"""Findings and their codes: one order of severity, and a checked explanation for every code."""

import re
from pathlib import Path

import msgspec
import pytest
import yaml

from envbuilder import finding
from envbuilder.catalog.store import load
from envbuilder.errors import UsageError
from envbuilder.finding import SEVERITY_RANK, Code, Finding, Severity, code_texts, worst_first
from envbuilder.jobs.explain import explain
from envbuilder.versions import numbers

ROOT = Path(__file__).parents[2]
SOURCES = [(code, source) for code, row in code_texts().items() for source in row.sources]
PAGES = [(code, source) for code, source in SOURCES if not source.startswith("https://")]


def test_errors_come_first_and_equals_keep_their_order() -> None:
    severities = (Severity.INFO, Severity.ERROR, Severity.WARNING, Severity.ERROR)
    given = [
        Finding(code=Code.UNKNOWN, severity=severity, subject=str(place), message="m")
        for place, severity in enumerate(severities)
    ]
    assert [finding.subject for finding in worst_first(given)] == ["1", "3", "2", "0"]
    assert sorted(SEVERITY_RANK, key=SEVERITY_RANK.__getitem__) == list(Severity)


def test_every_code_has_its_row_and_every_row_its_code() -> None:
    """YAML would silently keep the last of two equal keys."""
    text = Path(finding.__file__).with_name("codes.yaml").read_text()
    rows = re.findall(r"^([A-Z][A-Z0-9_]*):", text, re.MULTILINE)
    assert rows == list(yaml.safe_load(text)) == [*Code] == [*code_texts()], "other names, or another order"


@pytest.mark.parametrize("code", list(Code))
def test_code_is_its_name_and_is_explained_by_sentences_with_a_source(code: Code) -> None:
    assert code.value == code.name == str(code)
    assert msgspec.json.decode(msgspec.json.encode(code), type=Code) is code
    row = code_texts()[code]
    assert all(text.endswith(".") and len(text.split()) > 2 for text in (row.means, row.cause, row.fix))
    assert row.sources


def sections(text: str) -> dict[str, str]:
    """Return the sections of a Markdown page by the anchor of their heading; '' is the complete page."""
    parts = re.split(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {"": text} | {
        re.sub(r"[^a-z0-9 -]", "", head.lower()).replace(" ", "-"): body
        for head, body in zip(parts[1::2], parts[2::2], strict=True)
    }


@pytest.mark.parametrize(("code", "source"), PAGES)
def test_page_of_the_documentation_names_the_code_that_it_explains(code: Code, source: str) -> None:
    path, _, anchor = source.partition("#")
    section = sections((ROOT / path).read_text()).get(anchor)
    assert section is not None, source
    assert re.search(rf"\b{code}\b", section), f"{source} does not name {code}"


def test_sources_are_addresses_or_pages() -> None:
    assert len(PAGES) >= 5
    for _, source in SOURCES:
        assert re.fullmatch(r"(https://[a-z0-9.-]+/\S*|docs/([a-z-]+/)?[a-z-]+\.md(#[a-z-]+)?)", source), source


def test_no_two_codes_have_the_same_text() -> None:
    rows = code_texts().values()
    assert len({(row.means, row.cause, row.fix) for row in rows}) == len(rows)


@pytest.mark.parametrize(
    ("cap", "code", "spans"),
    [
        ("numpy<2", Code.NUMPY_ABI, ["1.13.1 1.13.1", "2.7.0 2.11.9", "2.14.0 2.14.0"]),
        ("protobuf<3.21", Code.PROTOBUF_ABI, ["0.0.0 2.6.4", "2.7.0 2.7.2", "2.8.0 2.8.1", "2.9.0 2.9.0"]),
    ],
)
def test_releases_that_an_explanation_names_are_the_catalogue_s(cap: str, code: Code, spans: list[str]) -> None:
    bounds = [tuple(map(numbers, span.split())) for span in spans]
    rows = load().releases()
    named = [row.version for row in rows if any(low <= numbers(row.version) <= high for low, high in bounds)]
    assert [row.version for row in rows if cap in row.caps] == named
    assert f"since {load().first_beyond[cap].released}" in code_texts()[code].cause


def test_code_is_explained_in_any_case_and_an_unknown_one_has_near_misses(tmp_path: Path) -> None:
    assert explain("ptx_jit", None, tmp_path, load()).explanation is not None
    with pytest.raises(UsageError) as caught:
        explain("PTX_JTI", None, tmp_path, load())
    assert "PTX_JIT" in str(caught.value)
    with pytest.raises(UsageError) as caught:
        explain("tf2.20.0-py311-cpu-bookwrm", None, tmp_path, load())
    near = caught.value.hint.removeprefix("near misses: ").split(", ")
    assert len(near) == len(set(near)) > 1
