"""The report in a real browser: it renders, filters, prints, and asks for nothing but its own file."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import axe
import pytest
from chromium import Browser, browser
from factories import (
    environment,
    failed_verdict,
    gpu_environment,
    gpu_verdict,
    inconclusive_verdict,
    rejection,
    upgrade,
    verdict,
)

from envbuilder.engine.port import Layer
from envbuilder.environment import Combination
from envbuilder.report.page import write
from envbuilder.report.report_data import Material
from envbuilder.verdict import Verdict

REJECTED = rejection(Combination(tensorflow="2.10.0", flavor="gpu"))


def many() -> Material:
    passed = [
        verdict(environment=environment(id=f"tf2.{minor}.0-py311-cpu-bookworm", tensorflow=f"2.{minor}.0"))
        for minor in range(12, 20)
    ]
    every = [*passed, failed_verdict(), gpu_verdict(environment=gpu_environment(id="tf2.20.0-gpu-h100"))]
    every.append(inconclusive_verdict())
    again = gpu_verdict(environment=every[-2].environment, finished="2026-11-19T10:00:00+00:00")
    by_name: dict[str, tuple[Verdict, ...]] = {one.environment.id: (one,) for one in every if one.environment}
    by_name["tf2.20.0-gpu-h100"] = (again, *by_name["tf2.20.0-gpu-h100"])
    return Material(
        verdicts=by_name,
        environments=(environment(id="tf2.9.0-py39-cpu-bullseye", tensorflow="2.9.0", python="3.9"),),
        rejections=(REJECTED,),
        layers={verdict().image.id: (Layer("a", 100_000_000, ""), Layer("b", 1_600_000_000, "requirements.lock #"))},
        controls={"wrong-matmul": failed_verdict(), "good-cpu": verdict()},
        upgrades=(upgrade(),),
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    return write(many(), tmp_path_factory.mktemp("report"), datetime(2026, 11, 21, tzinfo=UTC))


@pytest.fixture(scope="module")
def chromium(tmp_path_factory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as started:
        started.screen(1280, 900)
        yield started


@pytest.fixture
def opened(chromium: Browser, page: Path) -> Browser:
    chromium.screen(1280, 900)
    chromium.open(page)
    return chromium


def visible(opened: Browser, selector: str) -> list[str]:
    found: list[str] = opened.js(
        f"Array.from(document.querySelectorAll({json.dumps(selector)}))"
        ".filter(e => e.checkVisibility()).map(e => e.innerText)"
    )
    return found


def type_into(opened: Browser, text: str) -> None:
    opened.js(
        f"(s => {{s.value = {json.dumps(text)}; s.dispatchEvent(new Event('input', {{bubbles: true}}))}})"
        "(document.getElementById('search'))"
    )


def test_page_renders_without_a_complaint_and_without_the_network(opened) -> None:
    assert len(visible(opened, "#environments article")) == 11
    assert len(visible(opened, ".grid tbody tr")) == 9
    assert opened.js("document.querySelectorAll('svg.picture').length") >= 11
    assert opened.console == []
    assert [request.partition(":")[0] for request in opened.requests] == ["file"]


def test_policy_blocks_what_should_never_be_asked_for(opened) -> None:
    asked = "fetch('https://example.org/x').then(() => 'went out', () => 'refused')"
    assert opened.js(asked) == "refused"
    assert [request for request in opened.requests if not request.startswith("file:")] == []


def test_searching_leaves_what_matches(opened) -> None:
    type_into(opened, "driver_too_old")
    assert [text.split()[0] for text in visible(opened, "#environments article h3")] == ["tf2.20.0-py311-cpu-bookworm"]
    assert visible(opened, "#shown") == ["1 of 11 shown"]
    type_into(opened, "2.20.0 cudnn")
    assert len(visible(opened, "#environments article")) == 2
    assert len(visible(opened, ".grid tbody tr")) == 1
    type_into(opened, "nothing like this")
    assert visible(opened, "#nothing") == ["Nothing matches the filter."]
    type_into(opened, "")
    assert len(visible(opened, "#environments article")) == 11


def test_verdict_can_be_unchecked(opened) -> None:
    opened.js("document.querySelector('#filter input[value=PASSED]').click()")
    assert len(visible(opened, "#environments article")) == 2
    assert all("FAILED" in text or "INCONCLUSIVE" in text for text in visible(opened, "#history .badge"))
    assert not any("PASSED" in text for text in visible(opened, ".grid .cell"))
    assert not any("PASSED" in text for text in visible(opened, "#history tbody tr"))
    assert "show=" in opened.js("location.search")
    assert len(visible(opened, "#controls tbody tr")) == 1
    assert not any("IMPOSSIBLE" in text for text in visible(opened, ".grid .cell"))
    opened.js("document.querySelector('#filter input[value=IMPOSSIBLE]').click()")
    assert any("IMPOSSIBLE" in text for text in visible(opened, ".grid .cell"))


def test_environment_that_was_never_run_is_behind_the_filter(opened) -> None:
    assert [text.split()[0] for text in visible(opened, ".grid-1 tbody th")][-1] == "2.12.0"
    assert "Python 3.9" not in " ".join(visible(opened, ".grid-1 thead th"))
    opened.js("document.querySelector('#filter input[value=\"NOT RUN\"]').click()")
    assert [text.split()[0] for text in visible(opened, ".grid-1 tbody th")][-1] == "2.9.0"
    assert "Python 3.9" in " ".join(visible(opened, ".grid-1 thead th"))


def test_filters_are_in_the_address(opened, page) -> None:
    type_into(opened, "2.20")
    opened.js("document.querySelector('#filter input[value=PASSED]').click(); document.getElementById('by-2').click()")
    copied = opened.js("location.search")
    opened.open(page, copied)
    assert opened.js("document.getElementById('search').value") == "2.20"
    assert [text.split()[0] for text in visible(opened, "#environments h3")] == [
        "tf2.20.0-py311-cpu-bookworm",
        "tf2.20.0-py311-cu12.5-cudnn9.3-bookworm",
    ]
    assert "environment" in visible(opened, ".grid thead th")


def test_headers_of_the_matrix_stay_in_sight(opened) -> None:
    opened.screen(500, 400)
    opened.js("b = document.querySelector('.box'); b.scrollTo(60, 200); 0")
    boxes = opened.js(
        "[b, b.querySelector('th:not([hidden]) + th:not([hidden])'), b.querySelector('tbody tr:not([hidden]) th')]"
        ".map(e => e.getBoundingClientRect()).map(r => [r.left, r.top])"
    )
    assert opened.js("b.scrollTop") > 0
    assert abs(boxes[1][1] - boxes[0][1]) <= 1
    assert abs(boxes[2][0] - boxes[0][0]) <= 1


def test_square_opens_the_comparison_with_the_verdict_before(opened) -> None:
    assert visible(opened, "#compare") == []
    squares = '[id="env-tf2.20.0-gpu-h100"] .square'
    assert len(visible(opened, squares)) == 2
    opened.js(f"document.querySelectorAll({json.dumps(squares)})[1].click()")
    (text,) = visible(opened, "#compare")
    assert "Compare two verdicts" in text
    assert "Both have the same lock." in text
    assert opened.js("document.getElementById('compare-old').selectedOptions[0].text").startswith("2026-11-19")
    opened.js(
        "s = document.getElementById('compare-old');"
        "s.value = [...s.options].find(o => o.text.includes('FAILED')).value; s.dispatchEvent(new Event('change'))"
    )
    rows = visible(opened, "#compared tr")
    assert any(row.split("\t")[:3] == ["verdict", "FAILED", "PASSED"] for row in rows)
    assert any(row.startswith("import\tfailed\tpassed") for row in rows)
    address = opened.js("document.getElementById('evidence-new').getAttribute('href')")
    assert (Path(opened.js("decodeURIComponent(location.pathname)")).parent / address).is_file()


def test_directions_of_text_stay_in_their_name(chromium, tmp_path) -> None:
    name = "abc\u202edef"
    made = verdict(environment=environment(id=name))
    chromium.open(write(Material(verdicts={name: (made,)}), tmp_path, datetime(2026, 11, 21, tzinfo=UTC)))
    chromium.js(
        "place = (e) => e.getBoundingClientRect().left;"
        "head = document.querySelector('.head'); badge = head.querySelector('.badge'); 0"
    )
    assert chromium.js("place(head.querySelector('h3')) < place(badge)")
    assert chromium.js("place(badge) < place(head.querySelector('.variant'))")
    assert chromium.js("getComputedStyle(badge).direction + getComputedStyle(badge).unicodeBidi") == "ltrisolate"


def focused(opened: Browser) -> str:
    return str(opened.js("(e => e.id || e.className || e.tagName + ' ' + e.innerText)(document.activeElement)"))


def test_everything_is_reached_by_keyboard(opened) -> None:
    opened.key("/", "/")
    assert focused(opened) == "search"
    opened.key("Tab")
    assert focused(opened) == "expand"
    opened.key("Tab")
    assert focused(opened) == "open-compare"
    opened.key("Tab")
    assert opened.js("document.activeElement.value") == "PASSED"
    opened.key(" ", " ")
    assert opened.js("document.activeElement.checked") is False
    opened.js("document.querySelectorAll('#environments article > details > summary')[0].focus()")
    before = opened.js("document.querySelectorAll('#environments article > details')[0].open")
    opened.key("Enter", "\r")
    assert opened.js("document.querySelectorAll('#environments article > details')[0].open") is not before
    assert opened.js("Array.from(document.querySelectorAll('a, button, input, summary')).every(e => e.tabIndex >= 0)")


def test_link_into_the_page_opens_its_card(chromium, page) -> None:
    chromium.open(page, "#env-tf2.14.0-py311-cpu-bookworm")
    opened = "document.getElementById('env-tf2.14.0-py311-cpu-bookworm').querySelector('details').open"
    assert chromium.js(opened) is True
    chromium.open(page)
    assert chromium.js(opened) is False
    chromium.js("document.querySelector('.cell[href=\"#env-tf2.14.0-py311-cpu-bookworm\"]').click()")
    assert chromium.js(opened) is True


@pytest.mark.parametrize("width", [320, 390, 768])
def test_nothing_sticks_out_on_a_phone(opened, width) -> None:
    opened.screen(width, 800, mobile=True)
    opened.js("document.getElementById('expand').click()")
    assert opened.js("document.documentElement.scrollWidth") <= width
    small = opened.js(
        "Array.from(document.querySelectorAll('#filter input[type=search], #filter button, #filter .chip'))"
        ".filter(e => e.getBoundingClientRect().height < 32).length"
    )
    assert small == 0


def test_print_shows_everything_and_no_controls(opened, tmp_path) -> None:
    before = opened.js("document.querySelectorAll('details[open]').length")
    opened.js("window.dispatchEvent(new Event('beforeprint'))")
    assert opened.js("document.querySelectorAll('details:not([open])').length") == 0
    opened.js("window.dispatchEvent(new Event('afterprint'))")
    assert opened.js("document.querySelectorAll('details[open]').length") == before
    assert opened.pdf().startswith(b"%PDF")
    opened._call("Emulation.setEmulatedMedia", {"media": "print"})
    assert visible(opened, "#filter") == []
    opened._call("Emulation.setEmulatedMedia", {"media": ""})


@pytest.mark.network
@pytest.mark.parametrize(
    ("width", "dark"),
    [(1280, False), (390, True), *(pytest.param(*one, marks=pytest.mark.full) for one in ((1280, True), (390, False)))],
)
def test_axe_finds_nothing(chromium: Browser, page: Path, *, dark: bool, width: int) -> None:
    chromium.screen(width, 900, dark=dark, mobile=width < 600)
    chromium.open(page)
    assert axe.violations(chromium) == []
    chromium.js("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    chromium.js("new Promise((done) => setTimeout(done, 200))")
    assert axe.violations(chromium) == []
    chromium.js("document.querySelector('#filter [type=checkbox]').click(); document.getElementById('by-3').click()")
    assert axe.violations(chromium) == []
    chromium.js("document.querySelector('#open-compare').click()")
    assert axe.violations(chromium) == []


def test_three_hundred_verdicts_are_grouped_and_paged(chromium: Browser, tmp_path: Path) -> None:
    verdicts = {
        f"tf2.{number}.0-py311-cpu-bookworm": tuple(
            verdict(
                environment=environment(id=f"tf2.{number}.0-py311-cpu-bookworm", tensorflow=f"2.{number}.0"),
                finished=f"2026-{month:02d}-20T10:00:00+00:00",
            )
            for month in range(1, 12)
        )
        for number in range(30)
    }
    chromium.screen(1280, 900)
    chromium.open(write(Material(verdicts=verdicts), tmp_path, datetime(2026, 11, 21, tzinfo=UTC)))
    assert chromium.js("document.querySelectorAll('#history tbody tr').length") == 330
    assert chromium.js("document.querySelectorAll('#history > [data-group]').length") == 30
    assert chromium.js("document.getElementById('history').getBoundingClientRect().height") < 3000
    type_into(chromium, "2.29.0")
    assert chromium.js("document.querySelectorAll('#history > [data-group]:not([hidden])').length") == 1
