"""The document of `check`: what the table shows, the JSON holds; the nearest comes from one search."""

from __future__ import annotations

import json

import jsonschema
import pytest
from click.testing import CliRunner

from envbuilder.catalog.store import load
from envbuilder.cli.check_command import command
from envbuilder.cli.schema_command import schema
from envbuilder.compat.check_text import nearest_line
from envbuilder.compat.plan import plan
from envbuilder.environment import Change
from envbuilder.matrix import Include, Matrix, Targets

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
def test_the_json_holds_what_the_table_shows(words: str) -> None:
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


def test_each_predicate_has_its_own_answer_and_says_so() -> None:
    """What can be installed near TF 2.4.1 with CUDA 11.2 is not what can be built here: no wheels of 11.0 exist."""
    document = json.loads(CliRunner().invoke(command, [*RTX_3090.split(), "--format", "json"]).stdout)
    assert document["nearest"]["changes"] == [{"field": "cuda", "from": "11.2", "to": "11.0"}]
    assert document["nearest"]["predicate"] == "installable"
    matrix = Matrix(
        name="m",
        include=(Include(tensorflow="2.4.1", flavor="gpu", cuda="11.2"),),
        targets=Targets(drivers=("460.32.03",), gpus=("RTX 3090",)),
    )
    (refused,) = plan(matrix, CATALOG).rejections
    assert refused.changes == (Change("tensorflow", "2.4.1", "2.5.0"), Change("cuda", "11.2", "11.8"))
    assert refused.predicate == "buildable"
