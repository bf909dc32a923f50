"""What every option does with a value that is none."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from command_line import commands, ran
from hypothesis import given
from hypothesis import strategies as st
from table_rows import rows

from envbuilder.cli import COMPLETION, help_texts, root
from envbuilder.cli.options import FilePath, GivenText, moment
from envbuilder.errors import UsageError

OPTIONS = [
    pytest.param(" ".join(words), command, parameter, id=f"{' '.join(words)} {parameter.opts[-1]}")
    for words, command in commands()
    for parameter in command.params
    if isinstance(parameter.type, FilePath | GivenText) and parameter.nargs == 1
]


def test_every_text_and_path_is_among_them() -> None:
    every = [one for _, command in commands() for one in command.params]
    texts = [one for one in every if isinstance(one, click.Option) and one.type is click.STRING and not one.multiple]
    paths = [one for one in every if isinstance(one.type, click.Path) and not isinstance(one.type, FilePath)]
    assert (texts, paths) == ([], [])
    assert len(OPTIONS) > 60


@pytest.mark.parametrize(("name", "command", "parameter"), OPTIONS)
def test_empty_value_is_refused(name: str, command: click.Command, parameter: click.Parameter) -> None:
    """A shell's variable that is not set neither drops a demand nor names the working folder."""
    words = [parameter.opts[-1], ""] if isinstance(parameter, click.Option) else [""]
    with pytest.raises(UsageError, match="is empty") as caught:
        command.make_context(name, words)
    assert "variable" in caught.value.hint


def test_second_value_of_an_option_is_refused_instead_of_the_first_one_being_lost() -> None:
    options = ((command, one) for _, command in commands() for one in command.params if isinstance(one, click.Option))
    single = [(command, one) for command, one in options if not (one.multiple or one.is_flag)]
    assert len(single) > 130
    for command, one in single:
        with pytest.raises(UsageError, match="2 times"):
            command.make_context("command", [one.opts[0], "1", one.opts[-1], "2"])


@rows
def test_value_that_is_none_is_refused_before_anything_is_written(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, error = ran(capsys, *words)
    assert (code, said in error, list(tmp_path.iterdir())) == (2, True, [])


@given(st.text(max_size=20))
def test_invalid_time_is_a_usage_error(text) -> None:
    try:
        assert moment(text, datetime(2026, 11, 20, tzinfo=UTC)).tzinfo is not None
    except UsageError:
        return


def test_since_accepts_dates_and_ages() -> None:
    now = datetime(2026, 11, 20, 12, tzinfo=UTC)
    assert moment("2026-11-01", now) == datetime(2026, 11, 1, tzinfo=UTC)
    assert moment("30d", now) == now - timedelta(days=30)


def test_every_command_and_option_has_a_help_text_and_every_text_belongs_to_one() -> None:
    known = {" ".join(words): command.help for words, command in commands()}
    options = [(words, one) for words, command in commands() for one in command.params if isinstance(one, click.Option)]
    keys = {" ".join((*words[:level], name)) for words, one in options for name in one.opts for level in range(3)}
    groups = {words.partition(" ")[0] for words in known if " " in words}
    assert all(known.values())
    assert [(words, one.name) for words, one in options if not one.help] == []
    assert set(help_texts()) <= {"envbuilder", *groups, *known, *keys}


@rows
def test_values_are_completed(words: list[str], text: str, found: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    complete = ShellComplete(root, {}, "envbuilder", COMPLETION)
    assert found in [item.value for item in complete.get_completions(words, text)]


def test_report_opens_its_page(tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    opened: list[str] = []
    monkeypatch.setattr(click, "launch", opened.append)
    code, out, _ = ran(capsys, "report", "quickstart", "--open")
    assert (code, opened) == (0, [str(tmp_path / "out/report/index.html")]) == (code, [out.strip()])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_calls_the_command(shell: str) -> None:
    assert f"{COMPLETION}={shell}_complete" in CliRunner().invoke(root, ["completion", shell]).output


def test_schema_without_a_name_lists_the_names() -> None:
    names = CliRunner().invoke(root, ["schema"]).output.splitlines()
    assert {"matrix", "verdict", "choose"} <= set(names)


@pytest.mark.parametrize("target", ["", "BAD NAME!!", "../../etc/passwd", "a//..", "-", "x\ny", "/abs/olute", "a:"])
def test_word_that_names_no_image_is_a_usage_error(capsys: pytest.CaptureFixture[str], target: str) -> None:
    code, out, err = ran(capsys, "validate", "--format", "json", "--", target)
    assert code == 2
    assert repr(target) in err
    assert json.loads(out)["schema"].startswith("envbuilder/error/")
