"""Texts of the findings of checks on the host: each is written by a check that gives its fields."""

import ast
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuilder.validation import image_context
from envbuilder.validation.image_context import FindingText, found
from envbuilder.workspace import packaged_yaml

TEXTS = packaged_yaml("validation/check_findings.yaml", dict[str, FindingText])
PARTIAL = {"found": set[str](), "about": {"name", "value", "built"}}
"""Functions that write a finding, and the fields that they give by themselves."""


def strings(node: ast.AST) -> set[str]:
    return {one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)}


def calls() -> Iterator[tuple[set[str], set[str]]]:
    """Yield the strings that may be the row's name, and the fields, of each call that writes a finding."""
    for module in (ast.parse(path.read_text()) for path in Path(image_context.__file__).parent.glob("*.py")):
        for node in ast.walk(module):
            function = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Call) and function in PARTIAL and node.args:
                name = node.args[0]
                fields = {keyword.arg for keyword in node.keywords if keyword.arg}
                yield strings(module if isinstance(name, ast.Name) else name), fields | PARTIAL[function]


CALLS = list(calls())


@pytest.mark.parametrize("name", TEXTS)
def test_finding_is_written_by_a_check_that_gives_its_fields(name: str) -> None:
    row = TEXTS[name]
    parts = (row.subject, row.message, row.requires, row.found, row.fix)
    fields = {field.split(".")[0] for part in parts for _, field, _, _ in string.Formatter().parse(part) if field}
    assert any(fields <= given for names, given in CALLS if name in names), fields


def test_text_of_an_image_starts_no_line_of_a_report() -> None:
    one = found("claim", name="label x", claimed="1\n::error::\x1b[2J", actual="2")
    assert all(text.isprintable() for text in (one.subject, one.message, one.requires, one.found, one.fix))
    assert one.message == "label x says 1 : :error::, and it is 2"
