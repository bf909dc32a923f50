"""The report, before any browser: what the page shows, nothing in it is markup; and the formats for machines."""

import importlib
import itertools
import json
import os
import re
import shutil
import subprocess
import urllib.request
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from factories import (
    A100,
    H100,
    check,
    digest,
    environment,
    failed_verdict,
    finding,
    gpu_environment,
    gpu_verdict,
    inconclusive_verdict,
    pin,
    rejection,
    resolved,
    upgrade,
    verdict,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from junitparser import Failure, JUnitXml
from prometheus_client import parser
from table_rows import rows
from waiting import wait_for

from envbuilder.catalog.store import load
from envbuilder.engine.port import Layer
from envbuilder.environment import Combination
from envbuilder.finding import Code, Severity
from envbuilder.image.context import templates
from envbuilder.image.render import render_context
from envbuilder.matrix import Excluded
from envbuilder.report import charts
from envbuilder.report.export import export_verdicts, junit, markdown
from envbuilder.report.metrics import prometheus
from envbuilder.report.page import write
from envbuilder.report.page_content import (
    EXCLUDED,
    REJECTED,
    STRIP,
    UNKNOWN,
    Grid,
    PageContent,
    PageState,
    page_content,
)
from envbuilder.report.report_data import Material, collect
from envbuilder.validation.verdict_store import History
from envbuilder.verdict import EngineRef, GpuSeen, HostRef, ImageRef, Measurement, Phase, Verdict, Word
from envbuilder.workspace import Workspace, write_document

NOW = datetime(2026, 11, 21, tzinfo=UTC)
NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&{{7*7}}"


def material(*verdicts: Verdict, **given: object) -> Material:
    grouped: dict[str, tuple[Verdict, ...]] = {}
    for one in verdicts:
        name = one.environment.id if one.environment else one.image.reference
        grouped[name] = (*grouped.get(name, ()), one)
    return Material(verdicts=grouped, **given)  # type: ignore[arg-type]


REJECTION = rejection(Combination(tensorflow="2.20.0", os="debian-bookworm"))
LEFT_OUT = Excluded(combination=Combination(tensorflow="2.19.1"), reason="too old for us")


def page_of(*verdicts: Verdict, before: PageState | None = None, **given: object) -> PageContent:
    return page_content(material(*verdicts, **given), NOW, before)


def words(grid: Grid) -> dict[str, list[list[str]]]:
    return {name: [[cell.word for cell in cells] for cells in columns] for name, columns in grid.rows}


def test_failure_on_another_host_is_in_the_headline_until_it_is_answered() -> None:
    t4 = HostRef(driver="535.104.05", gpus=(GpuSeen(name="Tesla T4", compute_capability="7.5"),))
    broken, good = failed_verdict(host=t4, environment=gpu_environment(), image=gpu_verdict().image), gpu_verdict()
    page = page_of(broken, good)
    assert page.counts == (("PASSED", 1), ("FAILED", 1))
    assert f"{gpu_environment().id} on Tesla T4, driver 535.104.05" in page.since
    fixed = msgspec.structs.replace(broken, verdict="PASSED", finished="2026-11-20T10:02:00+00:00")
    other = msgspec.structs.replace(broken, image=ImageRef(id="another"))
    for runs, answered in (((broken, good), (broken,)), ((broken, fixed, good), ()), ((other, good), ())):
        page = page_of(*runs, answered=answered)
        assert (page.counts, page.since) == ((("PASSED", 1),), "")


def test_grid_holds_every_combination_in_its_place() -> None:
    page = page_of(
        verdict(),
        inconclusive_verdict(),
        environments=(environment(), environment(id="tf2.9.0-py39", tensorflow="2.9.0", python="3.9")),
        rejections=(REJECTION,),
        excluded=(LEFT_OUT,),
    )
    grid = page.grids[0]
    assert [column[:2] for column in grid.columns] == [
        ("CPU", "Python 3.9"),
        ("CPU", "Python 3.11"),
        ("GPU", "Python 3.11"),
    ]
    assert words(grid) == {
        "2.20.0": [[REJECTED], ["PASSED"], ["INCONCLUSIVE"]],
        "2.19.1": [[EXCLUDED], [], []],
        "2.9.0": [[UNKNOWN], [], []],
    }
    assert grid.judged_columns() == (False, True, True)
    assert dict(page.counts) == {"PASSED": 1, "INCONCLUSIVE": 1, UNKNOWN: 1, REJECTED: 1, EXCLUDED: 1}


def test_grids_by_gpu_driver_and_age_show_the_newest_real_verdict_of_each_place() -> None:
    h100, a100 = (HostRef(driver=d, gpus=(gpu,)) for d, gpu in (("535.104.05", H100), ("550.54.14", A100)))
    runs = (
        gpu_verdict(host=h100, finished="2026-09-01T10:00:00+00:00"),
        gpu_verdict(host=a100, finished="2026-11-18T10:00:00+00:00"),
        failed_verdict(environment=gpu_environment(), host=h100, finished="2026-11-20T10:00:00+00:00"),
        gpu_verdict(host=h100, simulated=True, verdict="INCONCLUSIVE", finished="2026-11-20T11:00:00+00:00"),
    )
    grids = {grid.name: grid for grid in page_of(*runs).grids}
    assert {name: grid.columns for name, grid in grids.items() if name != "system"} == {
        "GPU": ((A100.name,), (H100.name,)),
        "driver": (("535.104.05",), ("550.54.14",)),
        "age": (("last day",),),
    }
    assert list(words(grids["GPU"]).values()) == [[["PASSED"], ["FAILED"]]]
    assert list(words(grids["driver"]).values()) == [[["FAILED"], ["PASSED"]]]
    assert list(words(grids["age"]).values()) == [[["FAILED"]]]


def test_environments_that_need_attention_come_first() -> None:
    failed = failed_verdict(environment=environment(id="tf2.15.1-py39", tensorflow="2.15.1"))
    old = verdict(environment=environment(id="tf2.9.0-py39", tensorflow="2.9.0"))
    page = page_of(old, verdict(), inconclusive_verdict(), failed)
    assert [(one.word, one.name[:6]) for one in page.environments] == [
        ("FAILED", "tf2.15"),
        ("INCONCLUSIVE", "tf2.20"),
        ("PASSED", "tf2.20"),
        ("PASSED", "tf2.9."),
    ]


def test_newest_real_verdict_is_shown_and_all_are_in_strip_and_history() -> None:
    failed = failed_verdict(finished="2026-11-20T11:00:00+00:00")
    later = verdict(simulated=True, verdict="INCONCLUSIVE", finished="2026-11-20T12:00:00+00:00")
    (card,) = page_of(verdict(), failed, later).environments
    assert (card.word, card.verdict, card.age) == ("FAILED", failed, "today")
    assert [run.verdict for run in card.strip] == [verdict(), failed, later]
    assert "(simulated)" in card.strip[-1].title
    assert page_of(later).environments[0].verdict.simulated
    many = tuple(verdict(finished=f"2026-10-{day:02d}T10:00:00+00:00") for day in range(1, 24))
    (card,) = page_of(*many).environments
    assert (len(card.strip), len(card.runs)) == (STRIP, 23)
    assert [trend.name for trend in card.trends] == ["import", "size"]


def test_cards_tell_runtime_from_devel_and_name_image_and_command() -> None:
    small = gpu_environment(id="x-runtime", variant="runtime")
    image = ImageRef(id=digest("i"), reference="envbuilder/tensorflow:x-runtime")
    cards = page_of(verdict(), gpu_verdict(environment=small, image=image)).environments
    assert [card.variant for card in cards] == ["devel", "runtime"]
    assert cards[1].command == "docker run --rm -it --gpus all envbuilder/tensorflow:x-runtime"
    unnamed = verdict(image=ImageRef(id="sha256:1", reference="sha256:1"))
    for names, command in (({}, ""), ({"sha256:1": "a:b"}, "docker run --rm -it a:b")):
        assert page_of(unnamed, names=names).environments[0].command == command


def test_failed_verdict_with_green_checks_says_so() -> None:
    (card,) = page_of(verdict(verdict="FAILED", reasons=("larger than its budget",))).environments
    assert "Every check passed" in card.remark
    (card,) = page_of(failed_verdict()).environments
    assert not card.remark


@rows
def test_page_says_what_is_other_than_last_time(before: dict[str, Word] | None, said: str) -> None:
    state = PageState(written="2026-11-20 09:00 UTC", words=before) if before else None
    runs = (verdict(environment=environment(id=name)) for name in "ac")
    page = page_of(*runs, failed_verdict(environment=environment(id="b")), before=state)
    assert page.since == (f"Since the last report (2026-11-20 09:00 UTC): {said}." if before else "")


TEXT = st.text(max_size=300)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=20)
@given(st.lists(st.tuples(TEXT, TEXT, TEXT, st.lists(NUMBER, max_size=3)), min_size=1, max_size=3))
def test_no_record_ends_the_page(tmp_path_factory, records: list[tuple[str, str, str, list[float]]]) -> None:
    odd = [
        verdict(
            environment=environment(id=name, tensorflow=version, os=name, python=version),
            finished=finished,
            timeline=(Phase(phase=name, cold_s=tuple(values)), Phase(phase="import", warm_s=tuple(values))),
            checks=(check(name, duration_s=sum(values)),),
        )
        for name, version, finished, values in records
    ]
    folder = tmp_path_factory.mktemp("page")
    found = parsed(write(material(verdict(environment=environment(id="good")), *odd), folder, NOW))
    assert len([name for name in found.ids if name.startswith("env-")]) >= 1
    assert "env-good" in found.ids
    names = [path.name for path in (folder / "verdicts").iterdir()]
    assert all(re.fullmatch(r"[0-9a-f]{16}\.json", name) for name in names)


@pytest.mark.parametrize(
    ("given_", "listed"),
    [({"tensorflow": "nightly"}, False), ({"tensorflow": ""}, False), ({"id": "x" * 3000}, False), (None, True)],
)
def test_odd_record_is_drawn_or_listed(given_: dict[str, str] | None, tmp_path, *, listed: bool) -> None:
    odd = verdict(environment=environment(**given_)) if given_ else verdict()
    runs: dict[str, tuple[Verdict, ...]] = {"odd": (odd,) if given_ else (), "good": (verdict(),)}
    # A card without a run cannot be drawn.
    page = page_content(Material(verdicts=runs, unreadable=(("x.json", "not a verdict"),)), NOW)
    assert [name for name, _ in page.unreadable] == ["x.json", *(["odd"] if listed else [])]
    assert "good" in [one.name for one in page.environments]
    path = write(Material(verdicts=runs, unreadable=(("x.json", "not a verdict"),)), tmp_path, NOW)
    assert "<bdi>x.json</bdi>: not a verdict" in path.read_text()


SECONDS = st.lists(st.floats(min_value=1e-6, max_value=1e4), max_size=3).map(tuple)
PHASES = st.lists(st.tuples(SECONDS, SECONDS), max_size=10).map(
    lambda rows: tuple(
        Phase(phase=f"phase {i}" if i % 3 != 2 else f"phase {i - 1}: part", cold_s=cold, warm_s=warm)
        for i, (cold, warm) in enumerate(rows)
    )
)


@given(PHASES)
def test_bars_never_overlap_and_stay_in_the_chart(measured: tuple[Phase, ...]) -> None:
    chart = charts.timeline(measured)
    assert (chart is None) == (not any(phase.cold_s or phase.warm_s for phase in measured))
    if chart is None:
        return
    for _, every in chart.lanes:
        for nested in (False, True):
            bars = [bar for bar in every if bar.nested == nested]
            for left, right in itertools.pairwise(bars):
                assert left.begin + left.width <= right.begin + 1e-9
        assert all(bar.begin >= 0 and bar.begin + bar.width <= 1 + 1e-9 for bar in every)
    assert all(0 <= at <= 1 + 1e-9 for at, _ in chart.ticks)


def test_nested_phases_begin_with_their_parent_and_count_once() -> None:
    seconds = {"start": 1.0, "import": 8.0, "import: libraries": 2.0, "import: modules": 6.0, "first op": 1.0}
    chart = charts.timeline(tuple(Phase(phase=name, cold_s=(took,)) for name, took in seconds.items()))
    ((_, every),) = chart.lanes
    assert "10 s" in chart.words
    bars = {bar.title: bar for bar in every}
    parent, first = bars["import: 8 s"], bars["import: libraries: 2 s"]
    assert (parent.nested, first.nested, first.begin) == (False, True, parent.begin)
    assert bars["import: modules: 6 s"].begin == pytest.approx(parent.begin + parent.width / 4)


def test_layers_are_named_by_their_purpose_and_drawn_in_proportion() -> None:
    found = resolved(flavor="gpu", variant="runtime")
    more = msgspec.structs.replace(found, requirements=(*found.requirements, "tqdm"))
    names = ("nvidia-cudnn-cu12", "nvidia-nccl-cu12", "numpy", "tensorflow", "tqdm")
    lock = "".join(pin(name, "1.0") for name in names)
    more = msgspec.structs.replace(more, cuda_wheels=("nvidia-cudnn-cu12==1.0", "nvidia-nccl-cu12==1.0"))
    text = render_context(more, lock, templates())[f"{more.id}/Dockerfile"].decode()
    steps = [f"RUN /bin/sh -c sh {step} # buildkit" for step in re.findall(r"/run/tools/install \S+", text)]
    assert [charts.layer_name(Layer("x", 1, step), 1) for step in steps] == [
        "CUDA libraries",
        "NCCL",
        "TensorFlow",
        "what TensorFlow requires",
        "what the matrix adds",
    ]
    chart = charts.layer_chart((Layer("a", 100, ""), Layer("b", 300, steps[0]), Layer("c", 600, steps[2])))
    bars = [("base system: 100 B", 0.1), ("CUDA libraries: 300 B", 0.3), ("TensorFlow: 600 B", 0.6)]
    assert [(bar.title, bar.width) for bar in chart.lanes[0][1]] == bars
    assert charts.layer_chart(()) is None


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id"]


def parsed(path: Path) -> Tags:
    found = Tags()
    found.feed(path.read_text())
    return found


def test_nothing_in_a_verdict_becomes_markup(tmp_path) -> None:
    hostile = failed_verdict(
        environment=environment(id="tf2.20.0-x", os=NASTY),
        checks=(check(NASTY, "failed", observed=NASTY, expected=NASTY, log=NASTY),),
        findings=(finding(message=NASTY, fix=NASTY, sources=("javascript:alert(1)", 'https://x.example/"><b>')),),
        reasons=(NASTY,),
    )
    foreign = verdict(environment=None, image=ImageRef(id=digest("i"), reference=NASTY))
    nasty = rejection(Combination(tensorflow="2.20.0"), NASTY)
    found = parsed(
        write(
            material(hostile, foreign, rejections=(nasty,), controls={NASTY: hostile}, upgrades=(upgrade(NASTY),)),
            tmp_path,
            NOW,
        )
    )
    assert found.tags.count("script") == 2
    assert {"img", "iframe", "object", "embed", "b ", "base"}.isdisjoint(found.tags)
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    links = [value for name, value in found.attributes if name in ("href", "src")]
    assert all(re.match(r"#|https://|verdicts/|data:,", link) for link in links), links
    assert "{{7*7}}" in (tmp_path / "index.html").read_text()


def test_page_is_whole(tmp_path) -> None:
    path = write(
        material(
            verdict(),
            failed_verdict(environment=gpu_environment()),
            environments=(environment(id="tf2.9.0-py39", tensorflow="2.9.0"),),
            rejections=(REJECTION,),
            controls={"broken": failed_verdict()},
            upgrades=(upgrade(),),
        ),
        tmp_path,
        NOW,
    )
    found = parsed(path)
    assert len(set(found.ids)) == len(found.ids)
    inside = {value[1:] for name, value in found.attributes if name == "href" and value.startswith("#")}
    assert inside <= set(found.ids)
    policy = next(value for name, value in found.attributes if name == "content" and "default-src" in value)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    evidence = [value for name, value in found.attributes if name == "href" and value.startswith("verdicts/")]
    assert len(set(evidence)) == len(list((tmp_path / "verdicts").glob("*.json"))) == 2
    for value in evidence:
        assert json.loads((tmp_path / value).read_text())["schema"] == "envbuilder/verdict/v1"


def test_empty_report_says_what_to_do(tmp_path) -> None:
    assert "envbuilder run" in write(material(), tmp_path, NOW).read_text()


def test_collecting_keeps_what_is_overwritten(tmp_path) -> None:
    workspace = Workspace(tmp_path)
    path = workspace.results(environment().id) / "verdict.json"
    write_document(path, verdict())
    write_document(workspace.out / "controls" / "broken" / "verdict.json", failed_verdict())
    first = collect(workspace, (), None, None, load())
    assert [len(runs) for runs in first.verdicts.values()] == [1]
    assert list(first.controls) == ["broken"]
    write_document(path, failed_verdict(finished="2026-11-20T12:00:00+00:00"))
    timeless = verdict(finished="yesterday")
    write_document(workspace.results("other") / "verdict.json", timeless)
    second = collect(workspace, (), None, None, load(), [verdict(finished="never")])
    assert [where.rpartition("/")[2] for where, _ in second.unreadable] == ["verdict.json", environment().id]
    assert [one.verdict for one in second.verdicts[environment().id]] == ["PASSED", "FAILED"]
    (workspace.results("other") / "verdict.json").write_text("{")
    for _ in range(2):  # the first reader renames it
        assert "other/verdict.json" in str(collect(workspace, (), None, None, load()).unreadable)
    since = collect(workspace, (), None, datetime(2026, 11, 20, 11, tzinfo=UTC), load())
    assert [one.verdict for one in since.verdicts[environment().id]] == ["FAILED"]
    again = collect(workspace, (), None, None, load(), [verdict(engine=EngineRef(name="docker", version="later"))])
    assert len(again.verdicts[environment().id]) == 2, "one run, written by two versions of envbuilder"
    shared = tmp_path / "shared" / "history"
    collect(workspace, (), shared, None, load())
    assert len(History(shared).read()[0]) == 1


SCHEMAS = Path(__file__).parents[1] / "support" / "schemas"
ODD_TEXT = "<b>&\"'\x00\x1b[31m | `x` \\ \n# *y* ]]> {} é 漢"
STATIC = check(
    "labels", "failed", level="static", findings=(finding(Code.IMAGE_CLAIM, message=ODD_TEXT, subject=ODD_TEXT),)
)
EVERY = (
    verdict(),
    gpu_verdict(),
    failed_verdict(),
    inconclusive_verdict(),
    verdict(environment=None, image=ImageRef(id=digest("foreign"), reference="nvcr.io/x:y")),
    failed_verdict(
        environment=environment(findings=(finding(Code.PTX_JIT, Severity.WARNING),)),
        checks=(STATIC, check(ODD_TEXT, "error", log=ODD_TEXT, observed=ODD_TEXT), check("t", "timeout")),
        findings=(*STATIC.findings,),
        reasons=(ODD_TEXT,),
    ),
)


@cache
def xml_schemas() -> list[Any]:
    schema = importlib.import_module("xmlschema").XMLSchema  # it is large, and here alone
    return [schema(str(path)) for path in (SCHEMAS / "junit.xsd", os.environ.get("TF_ENVBUILDER_JUNIT_SCHEMA")) if path]


def test_junit_has_its_shape() -> None:
    for schema in xml_schemas():
        schema.validate(junit(EVERY))
        schema.validate(junit(()))
        with pytest.raises(ValueError, match="test-case"):
            schema.validate(junit(EVERY).replace("testcase", "test-case"))


def test_record_that_cannot_be_read_is_in_every_export(tmp_path: Path) -> None:
    """A job must not become green because the record that FAILED was cut."""
    workspace = Workspace(tmp_path)
    write_document(workspace.results("good") / "verdict.json", verdict())
    (workspace.results("cut") / "verdict.json").parent.mkdir()
    (workspace.results("cut") / "verdict.json").write_text('{"schema": "envbuilder/verdict/v1"}')
    (workspace.results("folder") / "verdict.json").mkdir(parents=True)
    assert "2 INCONCLUSIVE" in export_verdicts("markdown", workspace)
    assert 'INCONCLUSIVE",environment="cut"} 1.0' in export_verdicts("prometheus", workspace)
    report = export_verdicts("junit", workspace)
    assert JUnitXml.fromstring(report.encode()).errors == 2
    for schema in xml_schemas():
        schema.validate(report)


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
        scraped = wait_for(lambda: scrape(f"http://{address}/metrics"), 30)
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
    with suppress(OSError), urllib.request.urlopen(address, timeout=5) as answer:  # noqa: S310 - loopback
        return str(answer.read().decode())
    return ""


def test_metrics_speak_of_the_newest_verdict() -> None:
    same_name = environment(id=f"{environment().id}\x00")  # once it is clean
    later = failed_verdict(finished="2026-11-20T12:00:00+00:00", environment=same_name)
    for order in ((verdict(), later), (later, verdict())):
        families = {one.name: one for one in parser.text_string_to_metric_families(prometheus(order))}
        words = sorted((one.labels["envbuilder_verdict"], one.value) for one in families["envbuilder_verdict"].samples)
        assert words == [("FAILED", 1), ("INCONCLUSIVE", 0), ("PASSED", 0)]


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
