"""The golden cases of `catalog list`: which rows a question asks for, and what the table says of them."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from envbuilder.cli.catalog_command import command

CASES = yaml.safe_load((Path(__file__).parent / "catalog" / "lists.yaml").read_text())


def asked(case: dict[str, Any], *more: str) -> Result:
    return CliRunner().invoke(command, ["list", *shlex.split(case["ask"]), *more])


def names(document: dict[str, Any]) -> set[str]:
    rows = [row for table in document["catalog"].values() for row in table]
    return {str(row[key]) for row in rows for key in ("name", "version", "branch") if key in row}


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_rows_are_those_that_were_asked_for(case: dict[str, Any]) -> None:
    shown = asked(case)
    if "error" in case:
        assert (type(shown.exception).__name__, shown.stdout) == (case["error"], "")
        assert case["because"] in str(shown.exception)
        return
    assert shown.exit_code == 0, shown.output
    found = names(json.loads(asked(case, "--format", "json").stdout))
    assert set(case.get("contains", ())) <= found
    assert not found & set(case.get("never", ()))
    assert all(text in shown.stdout for text in case.get("says", ())), shown.stdout
    assert all(text not in shown.stdout for text in case.get("never_says", ())), shown.stdout
