"""The table of compatibility: the committed page and every form of ``catalog table`` agree with ``check``."""

import csv
import io
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command_line import ran

from envbuilder.catalog.store import load
from envbuilder.cli.schema_command import schema
from envbuilder.compat.check import check
from envbuilder.compat.question import Question
from envbuilder.finding import Code, Severity
from envbuilder.jobs.compatibility import TABLES

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "compatibility.md").read_text()
CATALOG = load()
WORDS = {True: {"yes"}, False: {"no"}, None: {"conditional", "unknown"}}
CELLS = 2000


def values_in(label: str, ordered: list[str]) -> Iterator[str]:
    """Expand ``2.5.0 to 2.6.1, 2.7.0``."""
    for run in label.split(", "):
        first, _, last = run.partition(" to ")
        yield from ordered[ordered.index(first) : ordered.index(last or first) + 1]


def read_page() -> dict[str, dict[tuple[str, str], str]]:
    """Return the answers of each table of the page by release and value."""
    assert CATALOG.final_versions[-1] in PAGE, "run scripts/reference.py"
    names = re.findall(r"^- \*\*(.*?)\*\*: (.*)$", PAGE, re.MULTILINE)
    kinds = {name: kind for kind, listed in names for name in listed.split(", ")}
    found: dict[str, dict[tuple[str, str], str]] = {}
    for name, text in zip(TABLES, re.findall(r"(?:^\|.*\n)+", PAGE.partition("\n## ")[2], re.MULTILINE), strict=True):
        head, _, *rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in text.splitlines()]
        values = list(TABLES[name].values(CATALOG))
        if name == "gpus":
            values = list(dict.fromkeys(kind for kind, _ in reversed(names)))
        by_kind: dict[tuple[str, str], str] = {}
        for label, *cells in rows:
            for column, cell in zip(head[1:], cells, strict=True):
                release, value = (label, column) if head[0] == "TensorFlow" else (column, label)
                for one in values_in(release, list(CATALOG.final_versions)):
                    for kind in values_in(value, values):
                        by_kind[one, kind] = cell
        found[name] = {
            (release, value): by_kind[release, kinds.get(value, value)]
            for value in TABLES[name].values(CATALOG)
            for release in CATALOG.final_versions
        }
    return found


@pytest.fixture(scope="module")
def tables() -> dict[str, dict[tuple[str, str], str]]:
    return read_page()


def test_random_cells_of_the_page_agree_with_check(tables: dict[str, dict[tuple[str, str], str]]) -> None:
    drawn = random.Random(30)  # noqa: S311 - a sample
    names = drawn.choices(list(TABLES), k=CELLS)
    chosen = [(name, drawn.choice(list(tables[name]))) for name in names]
    chosen += [("gpus", (drawn.choice(CATALOG.final_versions), gpu.name)) for gpu in CATALOG.gpus]  # each at least once
    for name, (release, value) in chosen:
        cell = tables[name][release, value]
        gpu = value if name == "gpus" else TABLES[name].gpu
        fields: dict[str, Any] = {TABLES[name].field: value} if name != "gpus" else {}
        answer = check(Question(tensorflow=release, gpus=(gpu,) if gpu else (), **fields), CATALOG)
        word, _, code = cell.partition(" ")
        assert word in WORDS[answer.compatible], (name, release, value, answer)
        found = {finding.code: finding.severity for finding in answer.findings}
        if word == "unknown":
            assert Code.UNKNOWN in found
        elif code:
            wanted = Severity.ERROR if word == "no" else Severity.WARNING
            assert found[Code(code.strip("[]"))] is wanted, (name, release, value, answer)
        else:
            assert Severity.WARNING not in found.values()


def test_python_cuda_and_cudnn_are_independent(tables: dict[str, dict[tuple[str, str], str]]) -> None:
    drawn = random.Random(30)  # noqa: S311 - a sample
    for _ in range(CELLS // 4):
        release = drawn.choice(CATALOG.final_versions)
        asked: dict[str, Any] = {
            name: drawn.choice(list(TABLES[name].values(CATALOG))) for name in ("python", "cuda", "cudnn")
        }
        for name in drawn.sample(sorted(asked), 2):  # otherwise nearly every combination has three reasons against it
            works = [value for (of, value), cell in tables[name].items() if of == release and cell.startswith("yes")]
            asked[name] = drawn.choice(works)
        expected = all(tables[name][release, value].startswith("yes") for name, value in asked.items())
        assert (check(Question(tensorflow=release, **asked), CATALOG).compatible is True) is expected, (release, asked)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    code, out, _ = ran(capsys, "catalog", "table", *words)
    assert code == 0
    return out


def test_csv_json_text_agree(capsys: pytest.CaptureFixture[str], tables: dict[str, dict[tuple[str, str], str]]) -> None:
    rows = list(csv.DictReader(io.StringIO(printed(capsys, "data-centre-drivers", "--format", "csv"))))
    page = {key: cell.replace("[", "").replace("]", "") for key, cell in tables["data-centre-drivers"].items()}
    assert {(row["tensorflow"], row["driver"]): f"{row['answer']} {row['code']}".strip() for row in rows} == page
    document = json.loads(printed(capsys, "data-centre-drivers", "--format", "json"))
    jsonschema.validate(document, schema("compatibility"))
    assert [{"code": "", **cell} for cell in document["cells"]] == [
        {name: value for name, value in row.items() if value or name == "code"} for row in rows
    ]
    assert {row["gpu"] for row in rows} == {"T4"}
    text = printed(capsys, "drivers")
    assert text.startswith("drivers\n  tensorflow 2.15.0 to ")
    assert "    no DRIVER_TOO_OLD: 384 to 520\n" in text
