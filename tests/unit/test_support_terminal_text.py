"""What others wrote steers no terminal, forges no line and orders nothing of a CI system; progress is plain lines."""

import json
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from table_rows import rows

from envbuilder.errors import EnvbuilderError
from envbuilder.registry.errors import MalformedError
from envbuilder.support import tables, terminal_text
from envbuilder.support.tables import table


@rows
def test_nothing_steers_a_terminal(foreign: str, printed: str) -> None:
    assert terminal_text.text(foreign) == printed


def test_surrogate_is_replaced() -> None:
    assert terminal_text.text("a\ud800b") == "a\ufffdb"


@rows
def test_ci_systems_get_no_commands(order: str) -> None:
    text = terminal_text.text(f"before\n{order}")
    assert order.strip() not in text
    assert text.replace(" ", "").endswith(order.strip().replace(" ", ""))


def test_text_that_only_resembles_a_command_stays() -> None:
    for text in ("tsl::errors::Internal", "see ::error", "## Title", "::1"):
        assert terminal_text.text(text) == text


@rows
def test_login_is_hidden_where_a_word_equals_it(secret, foreign, printed, monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["envbuilder", "verify", "a.b/typed"])
    terminal_text.hide(secret)
    assert terminal_text.text(foreign) == printed
    assert MalformedError(f"a {secret}!").message in ("a ****!", "a typed!")
    document = terminal_text.json_text(json.dumps({"hunter": [foreign, "hunter"]}))
    assert json.loads(document) == {"hunter": [printed, "hunter"]}


@given(st.text())
def test_cleaning_is_done_once(foreign: str) -> None:
    once = terminal_text.text(foreign)
    assert terminal_text.text(once) == once
    assert not [char for char in once if (ord(char) < 32 and char not in "\t\n") or 127 <= ord(char) < 160]
    assert len(terminal_text.line(foreign).splitlines()) <= 1


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=20), max_size=3))
def test_json_means_the_same(document: dict[str, str]) -> None:
    safe = terminal_text.json_text(json.dumps(document, ensure_ascii=False))
    assert json.loads(safe) == document
    assert not any(127 <= ord(char) < 160 for char in safe)


@rows
def test_foreign_text_is_one_line_without_commands(foreign: str, line: str) -> None:
    assert terminal_text.line(foreign) == line


def test_markdown_is_text_and_mentions_nobody() -> None:
    assert terminal_text.markdown("@everyone **a** <b>\n# c") == "@\u200beveryone \\*\\*a\\*\\* &lt;b&gt; \\# c"


@pytest.mark.parametrize("reference", ["#12", "@a/b", "!7", "GH-3", "owner/repo#4", "~bug", "%1.0"])
def test_markdown_refers_to_nothing(reference: str) -> None:
    written = terminal_text.markdown(f"see {reference} there")
    assert "\u200b" in written
    assert written.replace("\u200b", "").replace("\\", "") == f"see {reference} there"


@pytest.mark.parametrize("address", ["https://evil.example/a", "http://x", "HTTPS://x", "www.evil.example", "ftp://x"])
def test_markdown_has_no_foreign_link(address: str) -> None:
    written = terminal_text.markdown(f"go to {address} now")
    html = MarkdownIt("gfm-like", {"linkify": False}).render(written)
    assert address not in written
    assert f"go to {address} now" in html


@given(st.text())
def test_inline_code_has_one_end(foreign: str) -> None:
    written = terminal_text.code(foreign)
    assert written.startswith("`")
    assert written.endswith("`")
    assert not set(written[1:-1]) & set("`|\n")


def test_columns_line_up_and_no_cell_forges_a_row() -> None:
    assert table(("a", "b"), (("long", "x"), ("s", ""))) == "a     b\nlong  x\ns"
    rows = table(("name", "verdict"), (("a\nb  PASSED", "FAILED"),)).splitlines()
    assert len(rows) == 2
    assert rows[1].endswith("FAILED")


@pytest.mark.parametrize(
    "foreign", ["a" * 1_000_000, "\x1b]" * 300_000, "\x1b[" * 300_000, "\n" * 500_000, " " * 500_000]
)
def test_long_text_is_cleaned_quickly(foreign: str) -> None:
    began = time.perf_counter()
    terminal_text.text(foreign)
    assert time.perf_counter() - began < 3.0


def test_no_message_has_an_endless_line() -> None:
    said = EnvbuilderError(f"first\nvalue {'x' * 3_000_000} ends\nlast", hint="y" * 9000)
    first, value, last = said.message.split("\n")
    assert (first, last) == ("first", "last")
    assert value.startswith("value xxx")
    assert value.endswith("x ends")
    assert len(value) < 2100
    assert len(said.hint) < 2100


HEADERS = ("verdict", "size", "work", "image", "error")
IMAGE = "envbuilder/tensorflow:tf2.20.0-py311-cpu-bookworm"
ERROR = "the package index does not answer: connection refused by the proxy"
ROWS = [("PASSED", "1.06 GB", "built, validated", IMAGE, ""), ("ERROR", "-", "-", f"{IMAGE}-x", ERROR)]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_table_fits_the_terminal_and_loses_nothing(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_terminal_width", lambda: width)
    text = table(HEADERS, ROWS)
    assert max(map(len, text.splitlines())) <= width
    assert {IMAGE, f"{IMAGE}-x", "PASSED", "1.06"} <= set(text.split())
    assert set(ERROR.split()) <= set(text.split())
    line = f"docker run --rm -it {IMAGE} python -c 'print(1 + 1, 2 + 2)' && {'word ' * 30}end"
    command = tables.command("run  ", line)
    assert max(map(len, command.splitlines())) <= width
    assert re.sub(r" \\\n {5}", " ", command) == f"run  {line}"  # as a shell reads it


def test_pipe_gets_one_line_for_each_row_and_command() -> None:
    assert len(table(HEADERS, ROWS).splitlines()) == 3
    assert tables.command("run  ", "a " * 99) == "run  " + "a " * 99
