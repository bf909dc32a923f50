"""Errors as documents: with ``--format json`` every command that fails prints one, with its own exit code."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command_line import WITH_JSON, WITHOUT, ran
from table_rows import rows

from envbuilder.catalog import store
from envbuilder.cli import root
from envbuilder.cli.output import wants_json
from envbuilder.cli.schema_command import schema


def error(text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text)
    jsonschema.validate(document, schema("error"))
    assert list(document) == ["schema", "exit_code", "message", "next", "where"]
    assert document["schema"] == "envbuilder/error/v1"
    return document


@pytest.mark.parametrize("words", WITH_JSON, ids=" ".join)
@pytest.mark.parametrize("form", [("--format", "json"), ("--format=json",)], ids=["two words", "one word"])
def test_usage_error_is_a_document(
    words: tuple[str, ...], form: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """An option that no command has gives the document on stdout and the message on stderr, whichever comes first."""
    for line in ((*words, "--no-such", *form), (*words, *form, "--no-such")):
        code, out, err = ran(capsys, *line)
        document = error(out)
        assert (code, document["exit_code"], document["where"]) == (2, 2, None)
        assert "--no-such" in document["message"]
        assert document["next"] == f"envbuilder {' '.join(words)} --help"
        assert document["message"] in err


@pytest.mark.parametrize("words", [*WITH_JSON, *((*one, "--format", "json") for one in WITHOUT)], ids=" ".join)
def test_standard_output_stays_empty_without_json(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ran(capsys, *words, "--no-such")
    assert (code, out) == (2, "")
    assert "--" in err


def test_error_in_a_file_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    matrix = tmp_path / "wrong.yaml"
    matrix.write_text("name: wrong\naxes:\n  tensorflow: [2.20.0]\n  colour: [red]\n  taste: [sour]\n")
    code, out, err = ran(capsys, "plan", str(matrix), "--format", "json")
    document = error(out)
    assert (code, document["exit_code"]) == (2, 2)
    assert document["where"] == f"{matrix}:4"
    assert "colour" in document["message"]
    assert "taste" in document["message"]
    assert document["message"] in err


def test_each_kind_of_error_keeps_its_code_message_and_next(capsys: pytest.CaptureFixture[str]) -> None:
    lines = (("plan", "-s", "no-such-*"), 3), (("explain", "NO_SUCH_CODE"), 2), (("run", "a.yaml", "b.yaml"), 2)
    for line, wanted in lines:
        code, out, err = ran(capsys, *line, "--format", "json")
        document = error(out)
        assert (code, document["exit_code"]) == (wanted, wanted)
        assert err.strip() == f"error: {document['message']}\n  next: {document['next']}"


@pytest.mark.parametrize(("raised", "code"), [(ZeroDivisionError("division by zero"), 70), (KeyboardInterrupt(), 130)])
def test_bug_and_an_interrupt_are_documents_too(
    raised: BaseException, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that reads JSON gets a document whatever ends the command; a bug's traceback is on standard error."""

    def fail() -> None:
        raise raised

    monkeypatch.setattr(store, "load", fail)
    ended, out, err = ran(capsys, "check", "--tensorflow", "2.20.0", "--format", "json")
    document = error(out)
    assert (ended, document["exit_code"]) == (code, code)
    assert ("Traceback" in err) is (code == 70)
    assert ("ZeroDivisionError: division by zero" in document["message"]) is (code == 70)


@rows
def test_whether_json_is_wanted(line: str, wanted: bool) -> None:  # noqa: FBT001
    """The last --format before ``--`` counts, for a command that has one; never what follows ``--``."""
    assert wants_json(root, line.split()) is wanted
