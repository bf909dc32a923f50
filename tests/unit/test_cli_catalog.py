"""``envbuilder catalog`` from the command line, against an index in a folder."""

import json
from pathlib import Path

import jsonschema
import pytest
from command_line import ran
from index_server import wheel

from envbuilder.cli.schema_command import schema

INFO = b"build_info = {'is_cuda_build': True, 'cuda_version': '11.2', 'cudnn_version': '8'}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder the only index, and another the cache."""
    project = tmp_path / "simple" / "tensorflow"
    project.mkdir(parents=True)
    name = "tensorflow-2.20.0-cp313-cp313-manylinux2014_x86_64.whl"
    (project / name).write_bytes(wheel("tensorflow", "2.20.0", {"tensorflow/python/platform/build_info.py": INFO}))
    (project / "index.html").write_text(f'<a href="{name}">{name}</a>')
    for variable in ("UV_INDEX", "UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(variable, raising=False)
    empty = tmp_path / "pip.conf"
    empty.write_text("")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(empty))
    monkeypatch.setenv("UV_DEFAULT_INDEX", (tmp_path / "simple").as_uri())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return project


def test_tables_and_documents(capsys: pytest.CaptureFixture[str]) -> None:
    """Every form of ``list`` prints; and the JSON follows its schema."""
    code, out, _ = ran(capsys, "catalog", "list")
    assert (code, out.split()[0]) == (0, "tensorflow")
    code, out, _ = ran(capsys, "catalog", "list", "gpus", "--format", "json")
    assert code == 0
    jsonschema.validate(json.loads(out), schema("catalog"))
    assert {row["name"] for row in json.loads(out)["catalog"]["gpus"]} >= {"A100", "GeForce RTX 5090"}


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


def test_question_without_an_answer_has_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    """A version without a row is a usage error, one without a wheel no claim, one without GPU code neither.

    Nor is there one where no release of all could be read.
    """
    assert ran(capsys, "catalog", "verify", "9.9.9")[0] == 2
    assert ran(capsys, "catalog", "verify", "nightly")[0] == 2
    assert ran(capsys, "catalog", "verify", "--binary")[0] == 8
    assert ran(capsys, "catalog", "verify", "2.20.0", "--binary")[0] == 8
    assert ran(capsys, "catalog", "refresh", "9.9.9")[0] == 8


def test_proposals_are_rows(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ran(capsys, "catalog", "refresh", "2.20.0")
    assert code == 0
    assert "reviewed: false" in out
    code, out, _ = ran(capsys, "catalog", "refresh", "2.20.0", "--format", "json")
    document = json.loads(out)
    jsonschema.validate(document, schema("catalog-refresh"))
    assert (code, document["proposals"][0]["cuda"]) == (0, "11.2")
