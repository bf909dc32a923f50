"""The page of traps: twenty of them, each whole, each command really run, each message known to `reproduce`."""

import re
from pathlib import Path

import pytest
from console_pages import rerun, shown

from envbuilder.reproduce.messages import catalog

PAGE = (Path(__file__).parents[2] / "docs" / "traps.md").read_text()
TRAPS: dict[str, str] = dict(re.findall(r"^## (\d+)\. [^\n]+\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
NO_MESSAGE = {"6"}
"""What is shown there is a line of nvidia-smi, in which nothing is wrong."""


def test_page_has_twenty_traps() -> None:
    assert list(TRAPS) == [str(number) for number in range(1, 21)]
    assert sorted(re.findall(r"\[(\d+)\]\(#", PAGE), key=int) == list(TRAPS)


@pytest.mark.parametrize("number", TRAPS)
def test_trap_has_its_symptom_cause_fix_and_evidence(number: str) -> None:
    text = TRAPS[number]
    assert "```text\n" in text
    assert "\n**Why:** " in text
    assert "\n**Fix:** " in text
    assert shown(text)


def test_commands_print_what_the_page_shows() -> None:
    assert len(re.findall(r"^\$ ", PAGE, re.MULTILINE)) == len(shown(PAGE)) == len(TRAPS) + 1
    to_do = "run python tests/support/console_pages.py docs/traps.md, and read what changed"
    assert rerun(PAGE.replace("incompatible", "compatible")) == PAGE, to_do


@pytest.mark.parametrize("number", [number for number in TRAPS if number not in NO_MESSAGE])
def test_message_leads_here_from_a_report(number: str) -> None:
    (message,) = re.findall(r"^```text\n(.*?)^```$", TRAPS[number], re.MULTILINE | re.DOTALL)
    assert any(symptom.known.code is not None for symptom in catalog.find(message)), message


PAGES = sorted((Path(__file__).parents[2] / "docs" / "how-to" / "messages").glob("*.md"))
FORM = (
    r"# [^\n]+\n\nYou see:\n\n```text\n(?P<message>.+?)```\n\n\*\*Why:\*\* [^\n].+?\n\n\*\*Fix:\*\* [^\n].+?\n\n"
    r"```sh.*?\n.+?```\n\n(?:.+?\n\n)?\*\*More:\*\* .+\n"
)


def test_ten_messages_have_a_page() -> None:
    index = (PAGES[0].parents[2] / "README.md").read_text()
    assert len(PAGES) == 10
    assert all(f"(how-to/messages/{page.name})" in index for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_of_a_message_has_the_form_and_is_true(page: Path) -> None:
    text = page.read_text()
    form = re.fullmatch(FORM, text, re.DOTALL)
    assert form is not None
    assert len(text.splitlines()) <= 45
    assert catalog.find(form["message"])
    assert rerun(text) == text
