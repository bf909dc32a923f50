"""The golden reports of `reproduce`: cause, recipe and closest environment of a report, without building anything.

A case has a ``report``, or the name of one of `tests/corpus`; ``replace`` changes it. ``driver`` is that of this host.
``predicted`` are findings with their severity, ``errors`` all codes of errors, and ``absent`` codes that are neither an
error nor a warning. ``is``, ``has`` and ``lacks`` compare parts of the document: a value, texts that occur in it, and
texts that do not. ``reply`` and ``text`` are parts of what people read.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from envbuilder.catalog.store import load
from envbuilder.reproduce.analysis import analyse
from envbuilder.reproduce.document import as_markdown, as_text

FOLDER = Path(__file__).parent / "reproduce"
CORPUS = Path(__file__).parents[1] / "corpus"
CASES = [case for path in sorted(FOLDER.glob("*.yaml")) for case in yaml.safe_load(path.read_text())]
CATALOG = load()


def report_of(case: dict[str, Any]) -> str:
    text: str = case["report"] if "report" in case else (CORPUS / f"{case['corpus']}.txt").read_bytes().decode()
    for old, new in case.get("replace", {}).items():
        assert old in text
        text = text.replace(old, new)
    return text


def part(value: Any, path: str) -> Any:
    """Return a part of a document by the names that lead to it; of a list, that part of each item."""
    for name in path.split("."):
        value = [one[name] for one in value] if isinstance(value, list) else value[name] if value else None
    return value


def holds(found: Any, text: str) -> bool:
    return any(text in one for one in found) if isinstance(found, list) else text in found


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_report_is_answered_as_its_case_says(case: dict[str, Any]) -> None:
    answer = analyse(report_of(case), CATALOG, case.get("driver")).document
    document = json.loads(msgspec.json.encode(answer))
    predicted = {(row["code"], row["severity"]) for row in document["predicted"]}
    assert set(case.get("predicted", {}).items()) <= predicted
    assert not {code for code, severity in predicted if severity != "info"} & set(case.get("absent", ()))
    errors = [row["code"] for row in document["predicted"] if row["severity"] == "error"]
    assert errors == case.get("errors", errors)
    for path, value in case.get("is", {}).items():
        assert part(document, path) == value, path
    for path, texts in case.get("has", {}).items():
        assert all(holds(part(document, path), text) for text in texts), (path, part(document, path))
    for path, texts in case.get("lacks", {}).items():
        assert not any(holds(part(document, path), text) for text in texts), (path, part(document, path))
    for written, name in ((as_markdown, "reply"), (as_text, "text")):
        assert all(text in written(answer) for text in case.get(name, ()))
