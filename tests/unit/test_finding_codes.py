"""Finding codes: each is its name, is explained, and the explanation says something."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from envbuilder.catalog.store import load
from envbuilder.cli.explain_command import command
from envbuilder.errors import UsageError
from envbuilder.finding import Code
from envbuilder.jobs.explain import explain
from envbuilder.versions import numbers

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("code", list(Code))
def test_every_code_is_explained(code) -> None:
    """Meaning, cause and fix are sentences, and a source stands behind them."""
    assert all(text.endswith(".") and len(text.split()) > 2 for text in (code.means, code.cause, code.fix))
    assert code.sources


def anchors(text: str) -> dict[str, str]:
    """Return the sections of a Markdown page by the anchor that a forge gives their heading; '' is the whole page."""
    parts = re.split(r"^#+ (.+)$", text, flags=re.MULTILINE)
    made = {
        re.sub(r"[^a-z0-9 -]", "", head.lower()).replace(" ", "-"): body
        for head, body in zip(parts[1::2], parts[2::2], strict=True)
    }
    return {**made, "": text}


OWN = [(code, source) for code in Code for source in code.sources if not source.startswith("https://")]


def test_some_sources_are_pages_of_ours() -> None:
    """The test below has something to hold."""
    assert len(OWN) >= 5


@pytest.mark.parametrize(("code", "source"), OWN)
def test_a_source_of_ours_exists_and_says_something(code: Code, source: str) -> None:
    """A path is a page of the repository, its anchor a section of it, and the finding's code is named there."""
    path, _, anchor = source.partition("#")
    assert (ROOT / path).is_file(), source
    sections = anchors((ROOT / path).read_text())
    assert anchor in sections, source
    assert re.search(rf"\b{code}\b", sections[anchor]), f"{source} says nothing of {code}"


def test_other_sources_are_addresses() -> None:
    """What is no page of ours is a whole address that can be opened."""
    for code in Code:
        for source in code.sources:
            assert re.fullmatch(r"(https://[a-z0-9.-]+/\S*|docs/[a-z-]+\.md(#[a-z-]+)?)", source), source


def test_no_code_is_explained_twice() -> None:
    """Two codes never say the same, as a row that was copied would."""
    told = [(code.means, code.cause, code.fix) for code in Code]
    assert len(set(told)) == len(told)


@pytest.mark.parametrize("code", list(Code))
def test_a_code_is_its_name(code: Code) -> None:
    """The name in a row is the name of the row, which is what documents hold and what they are read back as."""
    assert code.value == code.name == str(code)
    assert msgspec.json.decode(msgspec.json.encode(code), type=Code) is code
    assert Code[code.value] is code


def test_the_command_explains_a_code_and_an_environment() -> None:
    """Either kind of name leads to one document of the same schema."""
    for name, key in (("ptx_jit", "explanation"), ("tf2.20.0-py311-cpu-bookworm", "environment")):
        result = CliRunner().invoke(command, [name, "--format", "json"])
        document = json.loads(result.stdout)
        assert result.exit_code == 0
        assert document["schema"] == "envbuilder/explain/v1"
        assert document[key] is not None


@pytest.mark.parametrize(
    ("cap", "code", "without"),
    [
        (
            "numpy<2",
            Code.NUMPY_ABI,
            lambda text: text in {"1.13.1", "2.14.0"} or (2, 7) <= numbers(text)[:2] <= (2, 11),
        ),
        (
            "protobuf<3.21",
            Code.PROTOBUF_ABI,
            lambda text: (
                numbers(text) <= (2, 6, 4)
                or (numbers(text)[:2] == (2, 7) and numbers(text) <= (2, 7, 2))
                or (numbers(text)[:2] == (2, 8) and numbers(text) <= (2, 8, 1))
                or text == "2.9.0"
            ),
        ),
    ],
)
def test_the_releases_that_an_explanation_names_are_the_catalogue_s(
    cap: str, code: Code, without: Callable[[str], bool]
) -> None:
    """Which wheels state no upper bound is read from their metadata; the sentence says just that."""
    rows = load().releases()
    assert [row.version for row in rows if cap in row.caps] == [row.version for row in rows if without(row.version)]
    day = load().first_beyond[cap].released
    assert f"since {day}" in code.cause


def test_an_unknown_name_is_answered_with_near_misses(tmp_path) -> None:
    """A typing error leads to the code that was meant."""
    with pytest.raises(UsageError) as caught:
        explain("PTX_JTI", None, tmp_path, load())
    assert "PTX_JIT" in str(caught.value)
