"""Findings: one order of severity, a checked explanation for every code, and texts that some rule writes."""

import ast
import re
import string
from functools import cache
from pathlib import Path
from typing import get_args

import msgspec
import pytest
import yaml
from table_rows import rows

import envbuilder
from envbuilder import finding
from envbuilder.catalog.store import load
from envbuilder.compat.candidate import Device
from envbuilder.compat.findings import listed, span
from envbuilder.errors import UsageError
from envbuilder.finding import SEVERITY_RANK, Code, Finding, FindingText, Severity, code_texts, worst_first, written
from envbuilder.jobs.explain import explain
from envbuilder.reproduce.report.reported import Origin
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


@rows
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


PACKAGE = Path(envbuilder.__file__).parent
OF_CANDIDATE = {"arch", "python", "cuda", "cudnn", "driver", "name", "package", "version", "built", "image"}
OF_DEVICE = set(Device("", "").facts)
ORIGINS = set(get_args(Origin))
TEXTS = [(code, variant, text) for code, row in code_texts().items() for variant, text in row.findings.items()]


def fields_of(text: FindingText) -> set[str]:
    parts = (text.subject, text.message, text.requires, text.found, text.fix)
    return {name for part in parts for _, name, _, _ in string.Formatter().parse(part) if name}


def strings(node: ast.AST) -> set[str]:
    return {one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)}


def dict_keys(function: ast.FunctionDef, functions: dict[str, ast.FunctionDef]) -> set[str]:
    """Return the keys of the dictionaries in a function and in those of its module that it calls."""
    called = [functions[one.id] for one in ast.walk(function) if isinstance(one, ast.Name) and one.id in functions]
    nodes = (node for one in (function, *called) for node in ast.walk(one) if isinstance(node, ast.Dict))
    return {str(key.value) for node in nodes for key in node.keys if isinstance(key, ast.Constant)}


@cache
def calls() -> list[tuple[set[Code], set[str], set[str]]]:
    """Return the codes, the strings that may be the variant, and the fields of each call that writes a finding."""
    found = []
    for path in (*(PACKAGE / "compat").rglob("*.py"), *(PACKAGE / "reproduce").rglob("*.py")):
        module = ast.parse(path.read_text())
        functions = {node.name: node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)}
        for function in functions.values():
            for node in ast.walk(function):
                if not isinstance(node, ast.Call) or ast.unparse(node.func) not in {"finding", "written", "about"}:
                    continue
                on_candidate = ast.unparse(node.func) == "about"
                code, variant = node.args[on_candidate : on_candidate + 2]
                names = {keyword.arg for keyword in node.keywords if keyword.arg}
                names |= OF_CANDIDATE if on_candidate else set()
                if any(keyword.arg is None for keyword in node.keywords):
                    names |= dict_keys(function, functions)
                text = ast.unparse(function)
                names |= OF_DEVICE if "device.facts" in text or "_fields" in text else set()
                codes = {Code[code.attr]} if isinstance(code, ast.Attribute) else set(Code)
                variants = strings(module if isinstance(variant, ast.Name) else variant)
                found.append((codes, variants | (ORIGINS if codes == {Code.OTHER_BUILD} else set()), names))
    return found


@pytest.mark.parametrize(("code", "variant", "text"), TEXTS, ids=lambda value: value if isinstance(value, str) else "")
def test_finding_is_written_by_a_rule_that_gives_its_fields(code: Code, variant: str, text: FindingText) -> None:
    writers = [names for codes, variants, names in calls() if code in codes and variant in variants]
    assert any(fields_of(text) <= names for names in writers), (code, variant, fields_of(text), writers)


@pytest.mark.parametrize(("code", "variant", "text"), TEXTS, ids=lambda value: value if isinstance(value, str) else "")
def test_finding_is_sentences_with_a_fix(code: Code, variant: str, text: FindingText) -> None:
    found = written(code, variant, ("s", "s"), **{name: f"<{name}>" for name in fields_of(text)})
    assert found.message.endswith((".", "?"))
    assert found.fix.endswith(".")
    assert found.sources == ("s",)
    assert "{" not in f"{found.subject} {found.message} {found.requires} {found.found} {found.fix}"
    with pytest.raises(KeyError):
        written(code, f"no_{variant}")


def test_lists_are_written_as_in_a_sentence() -> None:
    assert [listed(()), listed(("a",)), listed(("a", "b")), listed("abc", "or")] == ["", "a", "a and b", "a, b or c"]
    assert [span(()), span(("a",)), span(("a", "b")), span("abc")] == ["", "a", "a and b", "a to c"]
