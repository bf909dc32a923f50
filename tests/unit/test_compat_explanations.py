"""Explanations: every code has one, and it says something."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from envbuilder.catalog.store import load
from envbuilder.cli.explain_command import command
from envbuilder.compat.explanations import EXPLANATIONS, explanation
from envbuilder.errors import UsageError
from envbuilder.finding import Code
from envbuilder.jobs.explain import explain


@pytest.mark.parametrize("code", list(Code))
def test_every_code_is_explained(code) -> None:
    """Meaning, cause and fix are sentences, and a source stands behind them."""
    row = explanation(code)
    assert all(text.endswith(".") and len(text.split()) > 2 for text in (row.means, row.cause, row.fix))
    assert row.sources


def test_no_code_is_explained_twice() -> None:
    """The table has one row a code."""
    assert sorted(row.code for row in EXPLANATIONS) == sorted(Code)


def test_the_command_explains_a_code_and_an_environment() -> None:
    """Either kind of name leads to one document of the same schema."""
    for name, key in (("ptx_jit", "explanation"), ("tf2.20.0-py311-cpu-bookworm", "environment")):
        result = CliRunner().invoke(command, [name, "--format", "json"])
        document = json.loads(result.stdout)
        assert result.exit_code == 0
        assert document["schema"] == "envbuilder/explain/v1"
        assert document[key] is not None


def test_an_unknown_name_is_answered_with_near_misses(tmp_path) -> None:
    """A typing error leads to the code that was meant."""
    with pytest.raises(UsageError) as caught:
        explain("PTX_JTI", None, tmp_path, load())
    assert "PTX_JIT" in str(caught.value)
