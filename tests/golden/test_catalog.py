"""The golden cases of `catalog list` and `catalog refresh`; what `catalog verify` says of a wheel, and its codes."""

import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner, Result
from command_line import ran
from file_index import add

from envbuilder.catalog import store
from envbuilder.cli.catalog_command import command
from envbuilder.cli.schema_command import schema

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
    document = json.loads(asked(case, "--format", "json").stdout)
    jsonschema.validate(document, schema("catalog"))
    found = names(document)
    assert set(case.get("contains", ())) <= found
    assert not found & set(case.get("never", ()))
    assert all(text in shown.stdout for text in case.get("says", ())), shown.stdout
    assert all(text not in shown.stdout for text in case.get("never_says", ())), shown.stdout


REFRESH = yaml.safe_load((Path(__file__).parent / "catalog" / "refresh.yaml").read_text())
TABLES = {"tensorflow": "proposals", "cuda": "cuda", "cudnn": "cudnn", "cudnn_wheels": "cudnn_wheels"}
OLD = "1.12.0"
"""A release from before the catalogue begins: it is there, and nothing is missing."""


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the only index; the cache is another."""
    for name in ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        monkeypatch.setenv(name, (tmp_path / "simple").as_uri())
    for name in ("UV_INDEX", "UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "simple"


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
def test_proposal_follows_from_the_index(case: dict[str, Any], index: Path) -> None:
    lay_out(index, case)
    ask = ["refresh", *shlex.split(case["ask"])]
    shown = CliRunner().invoke(command, [*ask, "--format", "json"])
    if "error" in case:
        assert (type(shown.exception).__name__, shown.stdout) == (case["error"], "")
        return
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.stdout)
    jsonschema.validate(found, schema("catalog-refresh"))
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


INFO = b"build_info = {'is_cuda_build': True, 'cuda_version': '11.2', 'cudnn_version': '8'}\n"


@pytest.fixture
def wheel(index: Path) -> None:
    add(index, "tensorflow", "2.20.0", {"tensorflow/python/platform/build_info.py": INFO}, python="cp313-cp313")


@pytest.mark.usefixtures("wheel")
def test_disagreement_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ran(capsys, "catalog", "verify", "2.20.0")
    assert code == 1
    assert "DISAGREES  tensorflow 2.20.0 cuda: the catalogue has '12.5', the artefact '11.2'" in out
    code, out, _ = ran(capsys, "catalog", "verify", "2.20.0", "--format", "json")
    same = ran(capsys, "catalog", "verify", "2.20", "--format", "json")
    assert same[1] == out, "another spelling of the same version"
    document = json.loads(out)
    jsonschema.validate(document, schema("catalog-verify"))
    assert code == 1
    assert {one["field"] for one in document["comparisons"] if one["outcome"] == "disagrees"} >= {"cuda", "cudnn"}


@pytest.mark.usefixtures("wheel")
def test_question_without_an_answer_has_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    """A version without a row is a usage error, one without a wheel no claim, one without GPU code neither.

    Nor is there one where no release of all could be read.
    """
    assert ran(capsys, "catalog", "verify", "9.9.9")[0] == 2
    assert ran(capsys, "catalog", "verify", "nightly")[0] == 2
    assert ran(capsys, "catalog", "verify", "--binary")[0] == 8
    assert ran(capsys, "catalog", "verify", "2.20.0", "--binary")[0] == 8
    assert ran(capsys, "catalog", "refresh", "9.9.9")[0] == 8
