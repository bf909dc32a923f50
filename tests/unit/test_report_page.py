"""The report's content and pictures, before any browser: what is shown, where, and that nothing in it is markup."""

from __future__ import annotations

import itertools
import json
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from factories import (
    check,
    digest,
    environment,
    failed_verdict,
    finding,
    gpu_environment,
    gpu_verdict,
    inconclusive_verdict,
    pin,
    upgrade,
    verdict,
)
from hypothesis import given
from hypothesis import strategies as st

from envbuilder.catalog.store import load
from envbuilder.compat.resolve import resolve
from envbuilder.engine.port import Layer
from envbuilder.environment import Combination, Environment, Rejection
from envbuilder.finding import Code
from envbuilder.image.context import templates
from envbuilder.image.render import render_context
from envbuilder.matrix import Excluded
from envbuilder.report import charts
from envbuilder.report.page import write
from envbuilder.report.page_content import EXCLUDED, REJECTED, UNKNOWN, page_content
from envbuilder.report.report_data import Material, collect
from envbuilder.validation.verdict_store import History
from envbuilder.verdict import ImageRef, Phase, Verdict
from envbuilder.workspace import Workspace, write_document

NOW = datetime(2026, 11, 21, tzinfo=UTC)
NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&{{7*7}}"


def material(*verdicts: Verdict, **given: object) -> Material:
    grouped: dict[str, tuple[Verdict, ...]] = {}
    for one in verdicts:
        name = one.environment.id if one.environment else one.image.reference
        grouped[name] = (*grouped.get(name, ()), one)
    return Material(verdicts=grouped, **given)  # type: ignore[arg-type]


REJECTION = Rejection(
    combination=Combination(tensorflow="2.20.0", os="debian-bookworm"),
    id="tf2.20.0-py38",
    findings=(finding(Code.PYTHON_UNSUPPORTED),),
    sentence="No wheel of TensorFlow 2.20.0 for Python 3.8.",
)
LEFT_OUT = Excluded(combination=Combination(tensorflow="2.19.1"), reason="too old for us")


def test_the_grid_holds_every_combination_in_its_place() -> None:
    page = page_content(
        material(
            verdict(),
            inconclusive_verdict(),
            environments=(environment(), environment(id="tf2.9.0-py39", tensorflow="2.9.0", python="3.9")),
            rejections=(REJECTION,),
            excluded=(LEFT_OUT,),
        )
    )
    assert [row.name for row in page.grid] == ["2.20.0", "2.19.1", "2.9.0"]
    assert page.columns == (
        ("cpu", "3.9", "bookworm"),
        ("cpu", "3.11", "bookworm"),
        ("gpu", "3.11", "bookworm"),
    )
    words = [[[cell.word for cell in cells] for cells in row.cells] for row in page.grid]
    assert words == [[[REJECTED], ["PASSED"], ["INCONCLUSIVE"]], [[EXCLUDED], [], []], [[UNKNOWN], [], []]]
    assert dict(page.counts) == {"PASSED": 1, "INCONCLUSIVE": 1, UNKNOWN: 1, REJECTED: 1, EXCLUDED: 1}


def test_what_needs_attention_comes_first() -> None:
    failed = failed_verdict(environment=environment(id="tf2.15.1-py39", tensorflow="2.15.1"))
    page = page_content(
        material(verdict(), gpu_verdict(environment=gpu_environment(id="g")), inconclusive_verdict(), failed)
    )
    assert [one.word for one in page.environments] == ["FAILED", "INCONCLUSIVE", "PASSED", "PASSED"]


def test_the_newest_verdict_is_shown_and_all_are_in_the_history() -> None:
    runs = (verdict(), failed_verdict(finished="2026-11-20T11:00:00+00:00"))
    page = page_content(material(*runs))
    assert [one.word for one in page.environments] == ["FAILED"]
    assert [run.verdict.verdict for run in page.runs[0].pages[0]] == ["FAILED", "PASSED"]
    imports = page.environments[0].imports
    assert imports is not None
    assert [point.word for point in imports.points] == ["PASSED", "FAILED"]


def test_a_simulation_never_stands_for_the_environment() -> None:
    later = verdict(simulated=True, verdict="INCONCLUSIVE", finished="2026-11-20T11:00:00+00:00")
    page = page_content(material(verdict(), later))
    assert [one.word for one in page.environments] == ["PASSED"]
    assert [run.verdict.simulated for run in page.runs[0].pages[0]] == [True, False]
    assert page_content(material(later)).environments[0].verdict.simulated


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
    for lane in chart.lanes:
        for nested in (False, True):
            bars = [bar for bar in lane.bars if bar.nested == nested]
            for left, right in itertools.pairwise(bars):
                assert left.begin + left.width <= right.begin + 1e-9
        assert all(bar.begin >= 0 and bar.begin + bar.width <= 1 + 1e-9 for bar in lane.bars)
    assert all(0 <= at <= 1 + 1e-9 for at, _ in chart.ticks)


def test_nested_phases_begin_with_their_parent_and_count_once() -> None:
    seconds = {"start": 1.0, "import": 8.0, "import: libraries": 2.0, "import: modules": 6.0, "first op": 1.0}
    chart = charts.timeline(tuple(Phase(phase=name, cold_s=(took,)) for name, took in seconds.items()))
    assert chart is not None
    (lane,) = chart.lanes
    assert lane.total == "10 s"
    bars = {bar.title: bar for bar in lane.bars}
    parent, first = bars["import: 8 s"], bars["import: libraries: 2 s"]
    assert (parent.nested, first.nested, first.begin) == (False, True, parent.begin)
    assert bars["import: modules: 6 s"].begin == pytest.approx(parent.begin + parent.width / 4)


def test_layers_are_named_by_their_purpose_and_drawn_in_proportion() -> None:
    layers = (
        Layer("a", 100, ""),
        Layer("b", 300, "RUN /bin/sh -c sh /run/tools/install nvidia-cudnn-cu12-9.3.0.75 # buildkit"),
        Layer("c", 600, "RUN /bin/sh -c sh /run/tools/install tensorflow-2.20.0-py311 # buildkit"),
    )
    chart = charts.layer_chart(layers)
    assert chart is not None
    assert [(bar.title, bar.width) for bar in chart.lanes[0].bars] == [
        ("base system: 100 B", 0.1),
        ("CUDA libraries: 300 B", 0.3),
        ("TensorFlow: 600 B", 0.6),
    ]
    assert charts.layer_chart(()) is None


def test_layers_of_a_runtime_image_are_named_by_their_parts() -> None:
    wish = Combination(tensorflow="2.20.0", os="debian-bookworm", flavor="gpu", variant="runtime")
    found = resolve(wish, load())
    assert isinstance(found, Environment)
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
    nasty = Rejection(combination=Combination(tensorflow="2.20.0"), id=NASTY, findings=(), sentence=NASTY)
    found = parsed(
        write(
            material(hostile, foreign, rejections=(nasty,), controls={NASTY: hostile}, upgrades=(upgrade(NASTY),)),
            tmp_path,
            NOW,
        )
    )
    assert found.tags.count("script") == 1
    assert {"img", "iframe", "object", "embed", "b ", "base"}.isdisjoint(found.tags)
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    links = [value for name, value in found.attributes if name in ("href", "src")]
    assert all(re.match(r"#|https://|verdicts/|data:,", link) for link in links), links
    assert "{{7*7}}" in (tmp_path / "index.html").read_text()


def test_the_page_is_whole(tmp_path) -> None:
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
    for name, value in found.attributes:
        if name == "href" and value.startswith("verdicts/"):
            assert json.loads((tmp_path / value).read_text())["schema"] == "envbuilder/verdict/v1"


def test_an_empty_report_says_what_to_do(tmp_path) -> None:
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
    second = collect(workspace, (), None, None, load())
    assert [one.verdict for one in second.verdicts[environment().id]] == ["PASSED", "FAILED"]
    since = collect(workspace, (), None, datetime(2026, 11, 20, 11, tzinfo=UTC), load())
    assert [one.verdict for one in since.verdicts[environment().id]] == ["FAILED"]
    shared = tmp_path / "shared" / "history.sqlite3"
    collect(workspace, (), shared, None, load())
    assert len(History(shared).since()) == 1


def test_the_history_is_grouped_by_environment_and_paged() -> None:
    many = tuple(verdict(finished=f"2026-10-{day:02d}T10:00:00+00:00") for day in range(1, 24))
    other = verdict(environment=environment(id="other"), finished="2026-11-01T10:00:00+00:00")
    page = page_content(Material(verdicts={"many": many, "other": (other,)}))
    assert [(group.name, [len(runs) for runs in group.pages]) for group in page.runs] == [
        ("other", [1]),
        ("many", [10, 10, 3]),
    ]
    flat = [run for group in page.runs for runs in group.pages for run in runs]
    assert [run.verdict for run in flat] == [other, *reversed(many)]
    assert page.runs[1].words == (("PASSED", 23),)
    assert page.runs[1].pages[0][0].verdict.finished.startswith("2026-10-23")
