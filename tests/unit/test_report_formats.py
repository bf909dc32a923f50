"""Machine outputs: each in its published shape, each saying what the verdict says and nothing kinder."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import xmlschema
from factories import (
    check,
    digest,
    environment,
    failed_verdict,
    finding,
    gpu_environment,
    gpu_verdict,
    inconclusive_verdict,
    verdict,
)
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics import parser

from envbuilder.finding import Code, Severity
from envbuilder.report.formats import FORMATS
from envbuilder.report.formats.bake import bake, target_name
from envbuilder.report.formats.junit import junit
from envbuilder.report.formats.markdown import markdown
from envbuilder.report.formats.openmetrics import openmetrics
from envbuilder.report.formats.sarif import sarif
from envbuilder.verdict import ImageRef, Measurement, Verdict

SCHEMAS = Path(__file__).parents[1] / "support" / "schemas"
NASTY = "<b>&\"'\x00\x1b[31m | `x` \\ \n# *y* ]]> {} é 漢"
STATIC = check("labels", "failed", level="static", findings=(finding(Code.IMAGE_CLAIM, message=NASTY, subject=NASTY),))
EVERY = (
    verdict(),
    gpu_verdict(),
    failed_verdict(),
    inconclusive_verdict(),
    verdict(environment=None, image=ImageRef(id=digest("foreign"), reference="nvcr.io/x:y")),
    failed_verdict(
        environment=environment(findings=(finding(Code.PTX_JIT, Severity.WARNING),)),
        checks=(STATIC, check(NASTY, "error", log=NASTY, observed=NASTY), check("t", "timeout")),
        findings=(*STATIC.findings,),
        reasons=(NASTY,),
    ),
)


def xml_schemas() -> list[xmlschema.XMLSchema]:
    published = os.environ.get("ENVBUILDER_JUNIT_SCHEMA")
    return [xmlschema.XMLSchema(str(path)) for path in (SCHEMAS / "junit.xsd", published) if path]


def sarif_schemas() -> list[dict[str, Any]]:
    published = os.environ.get("ENVBUILDER_SARIF_SCHEMA")
    return [json.loads(Path(path).read_text()) for path in (SCHEMAS / "sarif.json", published) if path]


def test_junit_has_its_shape() -> None:
    """Every kind of verdict gives XML that the schema accepts; a wrong document is refused."""
    for schema in xml_schemas():
        schema.validate(junit(EVERY))
        schema.validate(junit(()))
        with pytest.raises(xmlschema.XMLSchemaException):
            schema.validate(junit(EVERY).replace("<testcase", "<test-case", 1).replace("</testcase", "</test-case", 1))


def test_junit_counts_what_the_verdict_says() -> None:
    """Skipped is skipped, timeout and error are errors, failed is failure; none of them is a pass."""
    root = xmlschema.XMLResource(junit(EVERY)).root
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("18", "2", "3")
    suite = root[3]
    assert [(case.get("name"), [part.tag for part in case]) for case in suite.iter("testcase")] == [
        ("libraries", []),
        ("matmul", ["skipped"]),
        ("conv", ["error"]),
    ]
    failure = next(root[2].iter("failure"))
    assert failure.get("type") == "DRIVER_TOO_OLD"
    assert "fix: Install driver" in (failure.text or "")


def test_sarif_has_its_shape() -> None:
    """Every kind of verdict gives a document that the schema accepts; a wrong one is refused."""
    for schema in sarif_schemas():
        kind = jsonschema.validators.validator_for(schema)
        check_it = kind(schema, format_checker=kind.FORMAT_CHECKER)
        for verdicts in (EVERY, ()):
            check_it.validate(json.loads(sarif(verdicts)))
        with pytest.raises(jsonschema.ValidationError):
            check_it.validate({**json.loads(sarif(EVERY)), "extra": 1})


def test_sarif_holds_static_findings_only() -> None:
    """What a running framework found is no static finding; each result names its rule by its index."""
    run = json.loads(sarif(EVERY))["runs"][0]
    assert {result["ruleId"] for result in run["results"]} == {"IMAGE_CLAIM", "PTX_JIT"}
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert all(rules[result["ruleIndex"]] == result["ruleId"] for result in run["results"])
    assert {result["level"] for result in run["results"]} == {"error", "warning"}
    prints = [result["partialFingerprints"]["envbuilder/v1"] for result in run["results"]]
    assert len(set(prints)) == len(prints)


def test_markdown_cannot_be_broken_out_of() -> None:
    """Nothing of a verdict becomes markup: no tag, no link, no further row or column."""
    text = markdown(EVERY)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + len(EVERY)
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 7 for row in rows)
    assert "<b>" not in text
    assert "3 PASSED, 2 FAILED, 1 INCONCLUSIVE" in text
    assert "**Fix:** Install driver" in text


def test_openmetrics_is_what_its_parser_reads() -> None:
    """The project's own strict parser reads every family, and finds the samples that the verdicts hold."""
    families = {family.name: family for family in parser.text_string_to_metric_families(openmetrics(EVERY))}
    assert {"envbuilder_environment", "envbuilder_verdict", "envbuilder_start_seconds"} <= families.keys()
    assert {family.type for family in families.values()} == {"info", "stateset", "gauge"}
    sizes = {sample.labels["environment"]: sample.value for sample in families["envbuilder_image_size_bytes"].samples}
    assert sizes["tf2.20.0-py311-cpu-bookworm"] == 1_750_000_000
    with pytest.raises(ValueError, match="EOF"):
        list(parser.text_string_to_metric_families(openmetrics(EVERY).replace("# EOF\n", "")))


def test_openmetrics_speaks_of_the_newest_verdict() -> None:
    """One environment has one verdict that holds: its newest."""
    later = failed_verdict(finished="2026-11-20T12:00:00+00:00")
    for order in ((verdict(), later), (later, verdict())):
        text = openmetrics(order)
        assert 'envbuilder_verdict="FAILED"} 1' in text
        assert 'envbuilder_verdict="PASSED"} 0' in text


def test_units_are_base_units() -> None:
    """Gigabytes become bytes; a unit that has no base unit here is left out."""
    measured = {"a": Measurement(1.5, "GB"), "b": Measurement(2.0, "furlong"), "c": Measurement(0.5, "1")}
    text = openmetrics((verdict(checks=(check(measurements=measured),)),))
    assert (
        'envbuilder_measurement_bytes{environment="tf2.20.0-py311-cpu-bookworm",check="import",name="a"} 1500000000'
        in text
    )
    assert "furlong" not in text
    assert 'name="c"} 0.5' in text


@given(st.text(max_size=40), st.text(max_size=40), st.sampled_from(["passed", "failed", "skipped", "error", "timeout"]))
def test_any_text_survives_every_format(name: str, text: str, outcome: str) -> None:
    """No text in a verdict breaks a format."""
    found = finding(message=text, subject=name)
    made = failed_verdict(checks=(check(name, outcome, level="static", observed=text, log=text, findings=(found,)),))
    xml_schemas()[0].validate(junit((made,)))
    jsonschema.validate(json.loads(sarif((made,))), sarif_schemas()[0])
    assert markdown((made,)).count("\n| tf2") == 1
    assert list(parser.text_string_to_metric_families(openmetrics((made,))))


def test_every_format_is_offered() -> None:
    """The table that the command line offers is complete, and each entry writes text."""
    assert set(FORMATS) == {"junit", "sarif", "markdown", "openmetrics"}
    assert all(isinstance(write(EVERY), str) for write in FORMATS.values())
    assert all(isinstance(one, Verdict) for one in EVERY)


def test_bake_names_every_environment() -> None:
    """Each environment is a target with its context, tag, base and platform; the default group builds all."""
    both = (environment(), gpu_environment())
    made = msgspec.json.decode(bake(both, "registry.example.org/team/tf", {"debian-bookworm": "debian:bookworm"}))
    assert made["group"]["default"]["targets"] == [target_name(one.id) for one in both]
    target = made["target"]["tf2_20_0-py311-cpu-bookworm"]
    assert target == {
        "context": "images/tf2.20.0-py311-cpu-bookworm",
        "tags": ["registry.example.org/team/tf:tf2.20.0-py311-cpu-bookworm"],
        "args": {"BASE": "debian:bookworm"},
        "platforms": ["linux/amd64"],
    }
