"""Texts of findings in codes.yaml: each is written by some rule, and gets the fields that it names."""

import ast
import string
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import envbuilder
from envbuilder.compat.candidate import Device
from envbuilder.compat.findings import listed, span
from envbuilder.finding import Code, FindingText, code_texts, written
from envbuilder.reproduce.report.reported import Origin

PACKAGE = Path(envbuilder.__file__).parent
SOURCES = [path.read_text() for part in ("compat", "reproduce") for path in (PACKAGE / part).rglob("*.py")]
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


def calls() -> Iterator[tuple[set[Code], set[str], set[str]]]:
    """Yield the codes, the strings that may be the variant, and the fields of each call that writes a finding."""
    for module in map(ast.parse, SOURCES):
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
                yield codes, variants | (ORIGINS if codes == {Code.OTHER_BUILD} else set()), names


CALLS = list(calls())


@pytest.mark.parametrize(("code", "variant", "text"), TEXTS, ids=lambda value: value if isinstance(value, str) else "")
def test_finding_is_written_by_a_rule_that_gives_its_fields(code: Code, variant: str, text: FindingText) -> None:
    writers = [names for codes, variants, names in CALLS if code in codes and variant in variants]
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
