"""The document of `check`: what the table shows, the JSON holds; the nearest comes from one search."""

import json
from collections.abc import Iterator

import jsonschema
import pytest
from click.testing import CliRunner

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.store import load
from envbuilder.cli.check_command import command
from envbuilder.cli.schema_command import schema
from envbuilder.compat import rules
from envbuilder.compat.candidate import Candidate, Rule
from envbuilder.compat.check import answer
from envbuilder.compat.check_text import nearest_line
from envbuilder.compat.plan import plan
from envbuilder.compat.question import Question
from envbuilder.environment import Change
from envbuilder.finding import Code, Finding, Severity
from envbuilder.matrix import Include, Matrix

CATALOG = load()
RTX_3090 = "--tensorflow 2.4.1 --cuda 11.2 --driver 460.32.03 --gpu RTX3090"
ASKED = (
    RTX_3090,
    "--tensorflow 2.20.0 --driver 460.32.03 --gpu K80",
    "--tensorflow 2.20.0 --install plain",
    "--tensorflow 2.20.0 --python 3.8 --numpy 2.0.0 --cudnn 8.9",
    "--tensorflow 2.10.1 --base-image nvidia/cuda:12.6.3-cudnn-runtime-ubuntu22.04",
    "--tensorflow 2.99.0",
    "--tensorflow 2.18.1 --gpu H100 --driver 570.86.10",
)


@pytest.mark.parametrize("words", ASKED)
def test_json_holds_what_the_table_shows(words: str) -> None:
    table = CliRunner().invoke(command, words.split()).stdout
    document = json.loads(CliRunner().invoke(command, [*words.split(), "--format", "json"]).stdout)
    jsonschema.Draft202012Validator(schema("check")).validate(document)
    shown = next((line for line in table.splitlines() if line.startswith("nearest")), None)
    near = document["nearest"]
    if near is not None:
        changes = tuple(Change(row["field"], row["from"], row["to"]) for row in near["changes"])
        assert shown == nearest_line(near["predicate"], changes)
        assert near["environment"]["gpus"] == document["environment"]["gpus"]
        assert near["environment"]["driver"] == document["environment"]["driver"]
    else:
        assert shown == (
            "nearest that works: none with this driver and GPU" if document["compatible"] is False else None
        )


def same_minor(candidate: Candidate, _catalog: Catalog) -> Iterator[Finding]:
    """Refuse a tensorflow-text of another minor version, and more than two pins: no release has bounds on them."""
    own = versions.minor(candidate.release.version)
    texts = [version for name, version in candidate.packages if name == "tensorflow-text"]
    if any(versions.minor(version) != own for version in texts) or len(candidate.packages) > 2:
        yield Finding(code=Code.PACKAGE_CONFLICT, severity=Severity.ERROR, subject="text", message="It is another one.")


@pytest.mark.parametrize(
    ("pins", "kept", "changes"),
    [
        (("tensorflow-text==2.15.0", "numpy==1.26.4"), ("numpy==1.26.4",), [Change("tensorflow-text", "2.15.0", None)]),
        (("a==1", "b==1", "c==1"), ("a==1", "b==1"), [Change("c", "1", None)]),
    ],
)
def test_nearest_gives_up_the_pins_that_any_rule_refuses(
    pins: tuple[str, ...], kept: tuple[str, ...], changes: list[Change], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "RULES", (*rules.RULES, Rule("python", (Code.PACKAGE_CONFLICT,), same_minor)))
    found = answer(Question(tensorflow="2.16.2", packages=pins), CATALOG).nearest
    assert (found.environment.packages, list(found.changes)) == (kept, changes)
    matrix = Matrix(name="m", include=(Include(tensorflow="2.16.2", packages=pins),))
    (refused,) = plan(matrix, CATALOG).rejections
    assert list(refused.changes) == changes


def test_rule_that_reads_the_other_part_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the nearest would be the same environment, without a change."""
    monkeypatch.setattr(rules, "RULES", (*rules.RULES, Rule("cuda", (Code.PACKAGE_CONFLICT,), same_minor)))
    with pytest.raises(AssertionError, match="PACKAGE_CONFLICT"):
        answer(Question(tensorflow="2.16.2", packages=("tensorflow-text==2.15.0",)), CATALOG)
