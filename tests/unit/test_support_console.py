"""The display of progress: on terminals of three widths, in pipes, in CI jobs and as JSON."""

import json
import re
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import progress_player
import pytest
from progress_player import NAMES, WIDTHS
from table_rows import beside, rows
from terminals import Terminal, follow

from envbuilder.cli.options import console_of
from envbuilder.support import console
from envbuilder.support.console import Console, Mode, Step

PLAYER = str(Path(progress_player.__file__))


def test_terminal_shows_phase_and_time_and_changes_every_two_seconds() -> None:
    terminals = [Terminal(width, [PLAYER, "6", "live", "-v"]) for width in WIDTHS]
    follow(terminals)
    for one in terminals:
        assert one.longest_rest() < 2
        assert one.changes[-1][0] - one.changes[0][0] > 8
        rows = [line for _, shown in one.changes for line in shown]
        building = [row for row in rows if "TensorFlow 2.15.1" in row]
        assert building
        for row in building:
            assert re.search(r"^tf2.*(?:…|runtime).* TensorFlow 2.15.1.* [0-9]:[0-9]{2} of 0:46$", row), row
        assert any(re.search(r"Packages of the sys.* 0:0[5-7]$", row) for row in rows)
        assert any("validate 7/30" in row for row in rows)
        assert any("1/2 finished" in row and "left" in row for row in rows)
        assert any(row.startswith("  Downloading tensorflow-cpu") for row in rows)
        passed, inconclusive, slowest, *_ = (row for row in one.changes[-1][1] if row)
        assert re.search(r"^PASSED .*1\.06 GB", passed)
        assert re.search(r"^INCONCLUSIVE .*5\.32 GB", inconclusive)
        assert slowest.startswith("slowest step: Packages of the system")


@pytest.mark.parametrize("no_color", ["", "1"])
def test_verdicts_have_a_colour_in_tables_on_a_terminal_and_none_in_a_pipe(
    no_color: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", no_color)
    follow([one := Terminal(WIDTHS[0], [PLAYER, "table"])])
    # pyte names yellow brown
    wanted = {"PASSED": {"default" if no_color else "green"}, "INCONCLUSIVE": {"default" if no_color else "brown"}}
    shown = "".join(one.screen.display)
    cells = [one.screen.buffer[row][at] for row in range(24) for at in range(one.screen.columns)]
    assert {word: {cells[shown.index(word) + at].fg for at in range(len(word))} for word in wanted} == wanted
    piped = subprocess.run([sys.executable, PLAYER, "table"], capture_output=True, check=True).stdout
    assert (b"PASSED" in piped, b"\x1b" in piped) == (True, False)


class Clock:
    """A clock that a waiting thread moves; ``printed`` are the times at which lines were printed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.printed = 0.0, list[float]()
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(console, "_write", lambda _: self.printed.append(self.now))

    def is_set(self) -> bool:
        return self.now > 300

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return self.is_set()


def test_pipe_gets_a_line_of_a_silent_step_every_30_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, shown = Clock(monkeypatch), Console("plain")
    with shown.task("env") as task:
        task.follow(Step("started", "cuDNN 9.3, 710 MB"))
        shown._tick(clock)  # type: ignore[arg-type]  # what it needs of an event
    gaps = [after - before for before, after in pairwise([0.0, *clock.printed])]
    assert len(gaps) >= 10
    assert max(gaps) <= 30


EVENTS = [Step(*event) for event in beside(__file__)["EVENTS"]]


def shown_by(mode: Mode, capsys: pytest.CaptureFixture[str]) -> str:
    shown = Console(mode)
    with shown.live(("env", "other")):
        with shown.task("env") as task:
            for event in EVENTS:
                task.follow(event)
            task.update("validate", 7, 30)
        shown.finished("env", "FAILED", 2_000_000_000, "first\nsecond\x1b[2J", ("images/env/Dockerfile", 3))
        shown.say("::stop-commands::x")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "\x1b[2J" not in captured.err
    return captured.err


@pytest.fixture(autouse=True)
def no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_ACTIONS", "GITLAB_CI"):
        monkeypatch.delenv(name, raising=False)


def test_plain_prints_a_line_for_each_finished_step_and_a_cause_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown_by("auto", capsys) == beside(__file__)["plain"]


def test_json_has_a_document_for_each_event(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [json.loads(line) for line in shown_by("json", capsys).splitlines()]
    assert [row["event"] for row in rows] == ["step"] * 4 + ["finished", "message", "message"]
    assert rows[0] == {"event": "step", "task": "env", "step": "ab", "result": "done", "seconds": 65.0}
    assert rows[4]["result"] == "FAILED"


def test_quiet_prints_errors_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown_by("quiet", capsys) == "env: first\nsecond\n"


def test_github_gets_group_and_annotation(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    lines = shown_by("auto", capsys).splitlines()
    group = lines[lines.index("::group::FAILED env") : lines.index("::endgroup::")]
    assert "env: | : :error::forged" in group
    assert "env: ab, 1:05" in group
    assert "::error title=envbuilder,file=images/env/Dockerfile,line=3::env: first%0Asecond" in lines
    assert [line for line in lines if line.startswith("::")] == [group[0], "::endgroup::", lines[-3]]


def test_gitlab_gets_a_closed_section(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("GITLAB_CI", "true")
    text = shown_by("auto", capsys)
    assert re.search(r"\x1b\[0Ksection_start:[0-9]+:env\[collapsed=true\]\r\x1b\[0KFAILED env\n", text)
    assert re.search(r"\x1b\[0Ksection_end:[0-9]+:env\r\x1b\[0K\n", text)


def test_times_of_steps_are_expected_in_the_next_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first, second = ({"progress": "quiet", "verbose": False} for _ in range(2))
    with (shown := console_of(first)).live(), shown.task("env") as task:
        for event in EVENTS:
            task.follow(event)
    with console_of(second).task("other") as task:
        task.follow(Step("started", "ab"))
        assert task.times == "0:00 of 1:05"


def test_environment_that_takes_longer_than_the_others_has_its_step_before_it() -> None:
    shown = Console("quiet", stored={"a": 5.0, "validate": 9.0})
    shown._names, shown._finished, shown._spent["b"] = ("a", "b"), {"a"}, 60.0
    with shown.task("b") as task:
        task.update("validate")
        assert 8 < shown._left() <= 9


def test_bytes_of_downloads_are_counted() -> None:
    with Console("quiet").task("env") as task:
        task.update("pulling a:b", 12_000_000, 710_000_000)
        assert task.amount == "12 of 710 MB"
        task.update("validate", 7, 30)
        assert task.amount == "7/30"
    with Console("quiet").task("env") as task:
        for event in EVENTS[:3]:
            task.follow(event)
        assert task.amount == "2 of 2 MB"
        archives = "Need to get 1,560 kB of archives.\nGet:1 http://x/y bookworm/main 1.0 [560 kB]"
        task.follow(Step("log", "apt", archives))
        assert (task.total, task.done) == (1_560_000, 560_000)


@pytest.mark.parametrize("width", WIDTHS)
def test_pictures_of_the_documentation_are_current(width: int) -> None:
    path = progress_player.ROOT / f"docs/images/display-{width}.svg"
    assert progress_player.words(progress_player.picture(width)) == progress_player.words(path.read_text()), (
        "run tests/support/progress_player.py"
    )


@rows
def test_failed_step_has_its_line_of_the_dockerfile(step: str, line: int) -> None:
    assert console.step_line(step, beside(__file__)["Dockerfile"]) == line


def test_names_are_cut_in_the_middle() -> None:
    assert [len(console._cut(NAMES[1], width)) for width in (10, 21, 80)] == [10, 21, len(NAMES[1])]
    assert console._cut("abcdefghij", 5) == "ab…ij"
