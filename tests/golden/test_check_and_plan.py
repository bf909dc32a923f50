"""The golden cases of `check` and `plan`: what the sources say, asked through the commands themselves."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from frozen_catalog import DAY, up_to

from envbuilder.catalog import store
from envbuilder.cli import check_command
from envbuilder.cli.plan_command import command
from envbuilder.compat.rules import RULES

HERE = Path(__file__).parent
NEWEST = yaml.safe_load((HERE / "plan/newest.yaml").read_text())
MATRICES = yaml.safe_load((HERE / "plan/matrices.yaml").read_text())


@pytest.fixture(autouse=True)
def _frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer from the catalogue of the day when the answers were written."""
    monkeypatch.setattr(store, "load", up_to)


@pytest.mark.parametrize("case", NEWEST, ids=[case["name"] for case in NEWEST])
def test_newest_is_what_the_facts_say(case: dict[str, Any]) -> None:
    asked = ["--newest", *shlex.split(case["ask"]), "--format", "json"]
    result = CliRunner().invoke(command, asked)
    (found,) = json.loads(result.stdout)["newest"]
    expected = case.get("compatible", True)
    assert (found["tensorflow"], found["compatible"]) == (case["tensorflow"], expected), found
    assert result.exit_code == {True: 0, False: 4, None: 8}[expected]
    if expected:
        assert found["newer"] == case.get("newer"), found
        assert bool(found["why_not_newer"]) == ("newer" in case)
    assert case.get("because", "") in found["why_not_newer"]
    if not expected:
        shown = CliRunner().invoke(command, asked[:-2])
        assert shown.exit_code == result.exit_code
        assert ("no claim" in shown.stdout, "none" in shown.stdout.split()) == (expected is None, expected is False)


@pytest.mark.parametrize("case", MATRICES, ids=[case["name"] for case in MATRICES])
def test_matrix_is_planned_as_the_facts_say(case: dict[str, Any], tmp_path: Path) -> None:
    matrix = tmp_path / "matrix.yaml"
    matrix.write_text(yaml.safe_dump(case["matrix"]))
    asked = [str(matrix), *shlex.split(case.get("ask", ""))]
    if "fleet" in case:
        (tmp_path / "fleet.yaml").write_text(yaml.safe_dump(case["fleet"]))
        asked += ["--fleet", str(tmp_path / "fleet.yaml")]
    result = CliRunner().invoke(command, [*asked, "--format", "json"])
    document = json.loads(result.stdout)
    known = document["findings"]
    assert [one["id"] for one in document["environments"]] == case.get("environments", []), document
    rejected = {
        one["id"]: sorted(known[at]["code"] for at in one["findings"] if known[at]["severity"] == "error")
        or [known[one["findings"][0]]["code"]]
        for one in document["rejections"]
    }
    if "every_rejection" in case:
        assert len(document["rejections"]) == case["count"]
        assert all(sorted(set(codes)) == case["every_rejection"] for codes in rejected.values()), rejected
    else:
        assert rejected == case.get("rejections", {})
    assert len(document["cells"]) == len(document["environments"]) * case.get("kinds", 0)
    shown = CliRunner().invoke(command, asked)
    assert result.exit_code == shown.exit_code == case.get("exit", 0)
    for text in case.get("says", []):
        assert " ".join(text.split()) in " ".join(shown.stdout.split()), shown.stdout
    for text in case.get("never", []):
        assert text not in shown.stdout, shown.stdout


FILES = {path.name: yaml.safe_load(path.read_text()) for path in sorted((HERE / "check").glob("*.yaml"))}
CASES = [case for cases in FILES.values() for case in cases]
NAMES = [f"{file}: {case['name']}" for file, cases in FILES.items() for case in cases]
EXIT = {True: 0, False: 1, None: 8}


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_check_answers_as_the_sources_say(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "load", lambda: up_to(case.get("day", DAY)))
    result = CliRunner().invoke(check_command.command, [*shlex.split(case["ask"]), "--format", "json"])
    document = json.loads(result.stdout)
    found = {finding["code"]: finding["severity"] for finding in document["findings"]}
    assert (found, document["compatible"]) == (case["findings"], case["compatible"]), document["findings"]
    assert result.exit_code == EXIT[case["compatible"]]
    near = document["nearest"]
    assert (near and near["changes"]) == case.get("nearest"), near
    assert near is None or near["predicate"] == "installable"
    for name, value in case.get("environment", {}).items():
        assert document["environment"][name] == value, name
    if "says" in case:
        assert any(case["says"] in finding["message"] for finding in document["findings"])
    if "fixes" in case:
        assert any(case["fixes"] in finding["fix"] for finding in document["findings"])
    assert all(finding["message"] and finding["fix"] for finding in document["findings"])


def test_every_code_that_check_can_give_has_a_case() -> None:
    given = {code.value for rule in RULES for code in rule.codes}
    shown = {code for case in CASES for code in case["findings"]}
    assert given <= shown, f"add a question to tests/golden/check for: {', '.join(sorted(given - shown))}"
