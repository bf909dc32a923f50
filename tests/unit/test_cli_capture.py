"""The script that describes an environment: any Python, nothing private, read back without loss."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from table_rows import beside

from envbuilder.cli.capture_command import command
from envbuilder.probes import capture
from envbuilder.reproduce.report.read import read
from envbuilder.reproduce.report.reported import SCALARS, SCHEMA, CaptureDocument, Trust, parse

SCRIPT = Path(capture.__file__)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=True, timeout=300)
    made: dict[str, Any] = json.loads(done.stdout)
    return made


def test_describes_this_python(document: dict[str, Any]) -> None:
    assert document["schema"] == "envbuilder/capture/v1"
    assert document["python"] == ".".join(map(str, sys.version_info[:3]))
    assert document["arch"] == os.uname().machine
    assert document["packages"]["pytest"] == pytest.__version__


FULL: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "capture.json").read_text())


@pytest.mark.parametrize("wrapping", ["{}", "Here it is:\n```json\n{}\n```\nthanks\n"], ids=["bare", "fenced"])
def test_documents_are_read_without_loss(document: dict[str, Any], wrapping: str) -> None:
    """This machine's document, and a GPU machine's, keep every field: as their type, and as a report."""
    for each in (document, FULL):
        pasted = wrapping.replace("{}", json.dumps(each, indent=1))
        assert msgspec.json.decode(msgspec.json.encode(parse(pasted))) == each
        reported = read(pasted)
        for field in {*SCALARS, "packages", "built", "environment"} - {"image"}:
            assert getattr(reported, field) == each[field], field
        for field in ("gpus", "compute_capabilities"):
            assert getattr(reported, field) == tuple(each[field]), field
        assert {row.trust for row in reported.evidence} <= {Trust.PROVED}


def test_fields_of_a_newer_script_are_passed_over() -> None:
    parsed = parse(json.dumps({**FULL, "rocm": "6.1", "topology": {"a": [1]}}))
    assert parsed == msgspec.convert(FULL, CaptureDocument)


ODD = json.loads(
    '[null, 7, 1.5, true, "text", [], {}, ["a", 3, null], {"a": "b", "c": 4, "d": null}, [["x"]], {"e": {"f": "g"}}]'
)


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("field", [name for name in FULL if name != "schema"])
def test_odd_value_costs_its_own_field_alone(field: str, odd: object) -> None:
    parsed = parse(json.dumps({**FULL, field: odd}))
    assert parsed is not None
    whole = msgspec.convert(FULL, CaptureDocument)
    assert msgspec.structs.replace(parsed, **{field: getattr(whole, field)}) == whole
    msgspec.convert(msgspec.to_builtins(parsed), CaptureDocument)
    assert read(json.dumps({**FULL, field: odd})).evidence


def test_of_an_odd_list_what_fits_is_kept() -> None:
    mixed = {**FULL, "gpus": ["Tesla T4", 3, None], "packages": {"numpy": "2.1.3", "x": 4}, "log": [1, "E0000"]}
    parsed = parse(json.dumps(mixed))
    assert (parsed.gpus, parsed.packages, parsed.log) == (("Tesla T4",), {"numpy": "2.1.3"}, ("E0000",))
    assert read(json.dumps(mixed)).gpus == ("Tesla T4",)


@pytest.mark.parametrize(
    "text",
    [
        "",
        SCHEMA,
        json.dumps([SCHEMA]),
        json.dumps({"schema": "envbuilder/capture/v2", "of": SCHEMA}),
        json.dumps(FULL)[:200],
        "{" * 100_000 + SCHEMA,
        f'{{"schema": "{SCHEMA}", "n": {"9" * 5000}}}',
        f"}}{SCHEMA}{{",
    ],
    ids=["empty", "a word", "a list", "another", "cut", "deep", "a long number", "turned"],
)
def test_damaged_document_is_none(text: str) -> None:
    assert parse(text) is None


def test_private_data_is_left_out() -> None:
    clean = capture.Redactor("/home/alice.smith", "asmith", "workstation7")
    text = "\n".join(clean(line) for line in beside(__file__)["PRIVATE"])
    secrets = "alice Alice asmith workstation7 hunter2 hf_abc opensesame ghp_ 10.20.30 5f3c1a2b"
    for secret in secrets.split():
        assert secret not in text, secret
    kept = "Driver Version: 535.104.05 libcudnn.so.9.3.0 nvidia-cudnn-cu12==9.3.0.75 v2.20.0-rc0-4-g72fbba3d20f"
    assert clean(kept) == kept


def test_this_machine_is_not_in_its_document(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    host, home = socket.gethostname(), str(Path.home())
    if host.lower() not in capture.COMMON_NAMES and len(host) > 2:
        assert host not in text
    if home not in {"/", "/root"}:
        assert home not in text


def test_command_prints_the_document_or_the_script() -> None:
    shown = CliRunner().invoke(command, ["--script"])
    assert shown.exit_code == 0
    assert shown.output == SCRIPT.read_text()
    assert json.loads(CliRunner().invoke(command, []).output)["schema"] == "envbuilder/capture/v1"
