"""Machine outputs: each in its published shape, each saying what the verdict says and nothing kinder."""

import os
import re
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import xmlschema
from factories import check, digest, environment, failed_verdict, finding, gpu_verdict, inconclusive_verdict, verdict
from hypothesis import given
from hypothesis import strategies as st
from junitparser import Failure, JUnitXml
from prometheus_client import parser

from envbuilder.finding import Code, Severity
from envbuilder.report.export import junit, markdown
from envbuilder.report.metrics import prometheus
from envbuilder.verdict import ImageRef, Measurement

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
    published = os.environ.get("TF_ENVBUILDER_JUNIT_SCHEMA")
    return [xmlschema.XMLSchema(str(path)) for path in (SCHEMAS / "junit.xsd", published) if path]


def test_junit_has_its_shape() -> None:
    for schema in xml_schemas():
        schema.validate(junit(EVERY))
        schema.validate(junit(()))
        with pytest.raises(xmlschema.XMLSchemaException):
            schema.validate(junit(EVERY).replace("<testcase", "<test-case", 1).replace("</testcase", "</test-case", 1))


def test_junitparser_reads_what_the_verdicts_say() -> None:
    read = JUnitXml.fromstring(junit(EVERY).encode())
    assert (read.tests, read.failures, read.errors, len(list(read))) == (18, 2, 3, len(EVERY))
    for suite, made in zip(read, EVERY, strict=True):
        kinds = {"failed": ["Failure"], "skipped": ["Skipped"], "error": ["Error"], "timeout": ["Error"], "passed": []}
        assert [[type(one).__name__ for one in case.result] for case in suite] == [
            kinds[one.outcome] for one in made.checks
        ]
        told: Any = suite
        for one in (failure for case in suite for failure in case.result if isinstance(failure, Failure)):
            assert (one.type, "fix: " in (one.text or "")) in (("DRIVER_TOO_OLD", True), ("IMAGE_CLAIM", True))
        assert {one.name: one.value for one in told.properties()}["verdict"] == made.verdict


def test_markdown_cannot_be_broken_out_of() -> None:
    text = markdown(EVERY)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + len(EVERY)
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 7 for row in rows)
    assert "<b>" not in text
    assert "3 PASSED, 2 FAILED, 1 INCONCLUSIVE" in text
    assert "**Fix:** Install driver" in text


def test_metrics_are_what_the_parser_of_their_format_reads() -> None:
    families = {family.name: family for family in parser.text_string_to_metric_families(prometheus(EVERY))}
    assert {"envbuilder_environment_info", "envbuilder_verdict", "envbuilder_start_seconds"} <= families.keys()
    assert {family.type for family in families.values()} == {"gauge"}
    sizes = {sample.labels["environment"]: sample.value for sample in families["envbuilder_image_size_bytes"].samples}
    assert sizes["tf2.20.0-py311-cpu-bookworm"] == 1_750_000_000


@pytest.mark.full
@pytest.mark.skipif(not shutil.which("promtool"), reason="scripts/setup metrics installs promtool and node_exporter")
def test_promtool_and_node_exporter_take_the_metrics(tmp_path: Path) -> None:
    text = prometheus(EVERY)
    openmetrics = text.replace("# TYPE envbuilder_verdict gauge", "# TYPE envbuilder_verdict stateset")
    for metrics, code in ((text, 0), (openmetrics, 1)):
        words = ["promtool", "check", "metrics"]
        done = subprocess.run(words, input=metrics, capture_output=True, text=True, check=False)
        assert (done.returncode, bool(done.stderr)) == (code, bool(code)), done.stderr
    (tmp_path / "envbuilder.prom").write_text(text)
    flags = ("--collector.disable-defaults", "--collector.textfile", f"--collector.textfile.directory={tmp_path}")
    address = "127.0.0.1:19117"
    exporter = subprocess.Popen(
        ["prometheus-node-exporter", *flags, f"--web.listen-address={address}"], stderr=subprocess.DEVNULL
    )
    try:
        scraped = scrape(f"http://{address}/metrics")
    finally:
        exporter.kill()
        exporter.wait()
    assert "node_textfile_scrape_error 0" in scraped
    wanted, found = (
        {(one.name, *sorted(one.labels.items()), one.value) for family in families for one in family.samples}
        for families in map(parser.text_string_to_metric_families, (text, scraped))
    )
    assert wanted <= found


def scrape(address: str) -> str:
    deadline = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:  # noqa: S310 - loopback
                return str(answer.read().decode())
        except OSError:
            assert time.monotonic() < deadline, "node_exporter does not answer"
            time.sleep(0.1)


def test_metrics_speak_of_the_newest_verdict() -> None:
    later = failed_verdict(finished="2026-11-20T12:00:00+00:00")
    for order in ((verdict(), later), (later, verdict())):
        families = {one.name: one for one in parser.text_string_to_metric_families(prometheus(order))}
        words = {one.labels["envbuilder_verdict"]: one.value for one in families["envbuilder_verdict"].samples}
        assert words == {"PASSED": 0, "FAILED": 1, "INCONCLUSIVE": 0}


def test_units_are_base_units() -> None:
    measured = {"a": Measurement(1.5, "GB"), "b": Measurement(2.0, "furlong"), "c": Measurement(0.5, "1")}
    families = parser.text_string_to_metric_families(prometheus((verdict(checks=(check(measurements=measured),)),)))
    samples = {
        (one.name, one.labels["name"]): one.value
        for family in families
        for one in family.samples
        if "name" in one.labels
    }
    assert samples == {("envbuilder_measurement_bytes", "a"): 1.5e9, ("envbuilder_measurement_ratio", "c"): 0.5}


@given(st.text(max_size=40), st.text(max_size=40), st.sampled_from(["passed", "failed", "skipped", "error", "timeout"]))
def test_any_text_survives_every_format(name: str, text: str, outcome: str) -> None:
    found = finding(message=text, subject=name)
    made = failed_verdict(checks=(check(name, outcome, level="static", observed=text, log=text, findings=(found,)),))
    xml_schemas()[0].validate(junit((made,)))
    assert markdown((made,)).count("\n| tf2") == 1
    assert list(parser.text_string_to_metric_families(prometheus((made,))))
