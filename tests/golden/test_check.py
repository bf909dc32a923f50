"""The golden cases of `check`: what the sources say, asked through the command itself."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from frozen_catalog import DAY, up_to

from envbuilder.catalog import store
from envbuilder.cli.check_command import command

FOLDER = Path(__file__).parent / "check"
FILES = {path.name: yaml.load(path.read_text(), yaml.CSafeLoader) for path in sorted(FOLDER.glob("*.yaml"))}
CASES = [case for cases in FILES.values() for case in cases]
NAMES = [f"{file}: {case['name']}" for file, cases in FILES.items() for case in cases]
EXIT = {True: 0, False: 1, None: 8}


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_check_answers_as_the_sources_say(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "load", lambda: up_to(case.get("day", DAY)))
    result = CliRunner().invoke(command, [*shlex.split(case["ask"]), "--format", "json"])
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
    from envbuilder.compat.rules import RULES  # noqa: PLC0415 - next to its only use

    given = {code.value for rule in RULES for code in rule.codes}
    shown = {code for case in CASES for code in case["findings"]}
    assert given <= shown, f"add a question to tests/golden/check for: {', '.join(sorted(given - shown))}"
