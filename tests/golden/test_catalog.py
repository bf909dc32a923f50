"""The golden cases of `catalog list` and `catalog refresh`: the rows asked for, and what an index has beyond them."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from file_index import add

from envbuilder.catalog import store
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


REFRESH = yaml.safe_load((Path(__file__).parent / "catalog" / "refresh.yaml").read_text())
TABLES = {"tensorflow": "proposals", "cuda": "cuda", "cudnn": "cudnn", "cudnn_wheels": "cudnn_wheels"}
OLD = "1.12.0"
"""A release from before the catalogue begins: it is there, and nothing is missing."""


def lay_out(root: Path, case: dict[str, Any]) -> None:
    """Make the index: what the catalogue's lists hold, an old wheel of each distribution, and what the case adds."""
    for name in ("tensorflow", "tensorflow-gpu", "tensorflow-cpu"):
        add(root, name, OLD, {"a": b""})
    for row in store.load().cudnn_wheels:
        for version in row.versions:
            add(root, row.package, version, {"a": b""})
    for one in case.get("index", ()):
        files = dict.fromkeys(one.get("files", ("a",)), b"")
        if "build_info" in one:
            text = f"build_info = {one['build_info']!r}\n"
            files = {"tensorflow/python/platform/build_info.py": text.encode()}
        head = "".join(f"{line}\n" for line in one.get("head", ()))
        add(root, one["project"], one["version"], files, head)
    for name in case.get("without", ()):
        shutil.rmtree(root / name)


@pytest.mark.parametrize("case", REFRESH, ids=[case["name"] for case in REFRESH])
def test_proposal_follows_from_the_index(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(tmp_path / "simple", case)
    for name in ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        monkeypatch.setenv(name, (tmp_path / "simple").as_uri())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    ask = ["refresh", *shlex.split(case["ask"])]
    shown = CliRunner().invoke(command, [*ask, "--format", "json"])
    if "error" in case:
        assert (type(shown.exception).__name__, shown.stdout) == (case["error"], "")
        return
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.stdout)
    for table, field in TABLES.items():
        wanted = case["rows"].get(table, [])
        assert len(found[field]) == len(wanted), (table, found[field])
        for row, fields in zip(found[field], wanted, strict=True):
            assert {name: row.get(name) for name in fields} == fields
    left = case.get("left", [])
    assert len(found["left"]) == len(left), found["left"]
    assert all(one.startswith(text) for one, text in zip(found["left"], left, strict=True))
    said = CliRunner().invoke(command, ask).stdout
    assert said.startswith("nothing is missing") == (not case["rows"] and not left)
    assert all(f"# {text}" in said for text in left)
    if case["rows"]:
        tables = store.parse((("rows.yaml", said.encode()),))
        assert {name for name in TABLES if getattr(tables, name)} == case["rows"].keys()
