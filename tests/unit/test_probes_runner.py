"""The runner: what one check does to itself costs no other check anything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from misbehaving import write_suite
from probe_messages import opened, order

from envbuilder.probes.suite import board as board_module
from envbuilder.probes.suite import pace, runner
from envbuilder.probes.suite.channel import Writer


def check(function: str, name: str = "", **more: Any) -> dict[str, Any]:
    """Describe one misbehaving check for a plan."""
    return {
        "name": name or function,
        "tier": "cpu",
        "group": "g",
        "probe": f"misbehave:{function}",
        "limit_s": 20,
    } | more


def run(
    tmp_path: Path, *checks: dict[str, Any], **facts: Any
) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """Run checks as one group; return the results by name, and every event."""
    plan = {"facts": facts, "groups": [{"name": "g", "lane": "main", "env": {}, "checks": list(checks)}]}
    events = say(tmp_path, plan)
    results = [event["result"] for event in events if event["event"] == "result"]
    assert len({result["name"] for result in results}) == len(results), "a check was answered twice"
    return {result["name"]: result for result in results}, events


def say(tmp_path: Path, plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a plan and return every event; nothing of it may be on standard output unsealed."""
    command = [sys.executable, "-I", "-S", str(write_suite(tmp_path / "probes"))]
    return opened(subprocess.run(command, input=order(plan), capture_output=True, timeout=120, check=True).stdout)


def codes(result: dict[str, Any]) -> list[str]:
    """Name a result's finding codes."""
    return [found["code"] for found in result["findings"]]


@pytest.mark.parametrize(
    ("function", "outcome", "code"),
    [
        ("segfault", "error", "PROBE_CRASHED"),
        ("leave", "error", "PROBE_CRASHED"),
        ("illegal", "error", "CPU_FEATURE_MISSING"),
        ("throw", "error", "PROBE_CRASHED"),
    ],
)
def test_death_costs_only_the_one_that_died(tmp_path: Path, function: str, outcome: str, code: str) -> None:
    """Checks before and after one that dies pass; the dead one is an error with its own code."""
    results, events = run(tmp_path, check("well", "before"), check(function), check("well", "after"))
    assert results["before"]["outcome"] == results["after"]["outcome"] == "passed"
    assert results[function]["outcome"] == outcome
    assert codes(results[function]) == [code]
    assert events[-1] == {"event": "end"}


def test_a_group_that_dies_again_and_again_is_given_up(tmp_path: Path) -> None:
    """Each death costs an import: after the first and three more alone, the rest are errors that say so."""
    results, events = run(tmp_path, *(check("segfault", f"dies{number}") for number in range(7)))
    assert {result["outcome"] for result in results.values()} == {"error"}
    assert len(results) == 7
    assert len([event for event in events if event["event"] == "begin"]) == 4
    assert "not run" in results["dies6"]["observed"]


def test_a_hang_is_killed_at_its_limit(tmp_path: Path) -> None:
    """A check that never answers times out at its own limit, once; the next one still runs."""
    begun = time.monotonic()
    results, _ = run(tmp_path, check("hang", limit_s=1.5), check("well"))
    assert results["hang"]["outcome"] == "timeout"
    assert codes(results["hang"]) == ["PROBE_TIMEOUT"]
    assert results["well"]["outcome"] == "passed"
    assert 1.5 <= time.monotonic() - begun < 15


def test_a_group_that_hangs_twice_is_given_up(tmp_path: Path) -> None:
    """Each hang costs its limit: after two the rest are timeouts that were not tried; who needs one is skipped."""
    hangs = [check("hang", f"hangs{number}", limit_s=1) for number in range(4)]
    begun = time.monotonic()
    results, events = run(tmp_path, *hangs[:2], check("well"), *hangs[2:], check("well", "needs", needs=["hangs0"]))
    assert {name: result["outcome"] for name, result in results.items()} == {
        **dict.fromkeys(("hangs0", "hangs1", "hangs2", "hangs3", "well"), "timeout"),
        "needs": "skipped",
    }
    assert {codes(result)[0] for name, result in results.items() if name != "needs"} == {"PROBE_TIMEOUT"}
    assert [event["name"] for event in events if event["event"] == "begin"] == ["hangs0", "hangs1"]
    assert time.monotonic() - begun < 15


def test_what_hung_keeps_the_others_from_nothing(tmp_path: Path) -> None:
    """After one hang the rest of its group goes on in one fresh process, and passes."""
    results, _ = run(tmp_path, check("well", "before"), check("hang", limit_s=1), check("well"), check("well", "after"))
    assert {name for name, result in results.items() if result["outcome"] == "passed"} == {"before", "well", "after"}


def test_a_paced_check_has_the_time_of_some_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit follows what this host's own import took, is halved where one has hung, and never grows."""
    monkeypatch.setattr(pace, "CHECK_S", 10.0)
    monkeypatch.setattr(pace, "CHECK_IMPORTS", 5.0)
    board = board_module.Board(Writer(os.open(tmp_path / "said", os.O_CREAT | os.O_WRONLY), "key"))
    paced, own = check("well", limit_s=60, paced=True), check("well", limit_s=60)
    assert (board.limit_of(paced), board.limit_of(own)) == (60, 60)
    board.answer(check("well", "import"), {"outcome": "passed", "duration_s": 4.0})
    assert (board.limit_of(paced), board.limit_of(own)) == (30, 60)
    board.hung["g"] = 1
    assert (board.limit_of(paced), board.limit_of(own)) == (15, 60)
    board.import_s = 400.0
    assert board.limit_of(paced) == 30


def test_hangs_in_every_lane_cost_one_wait(tmp_path: Path) -> None:
    """From the first hang on the whole run has a rest of time: groups and lanes that hang too add nothing to it."""
    later = [check("hang", f"hangs{number}", limit_s=90, group=f"g{number}") for number in range(3)]
    plan = {
        "facts": {},
        "groups": [
            {"name": "g", "lane": "main", "env": {}, "checks": [check("hang", "first", limit_s=1)]},
            *({"name": one["group"], "lane": "main", "env": {}, "checks": [one]} for one in later[:2]),
            {"name": "g2", "lane": "side", "env": {}, "checks": [later[2]]},
            {"name": "w", "lane": "side", "env": {}, "checks": [check("well", group="w")]},
        ],
    }
    begun = time.monotonic()
    events = say(tmp_path, plan)
    assert time.monotonic() - begun < 1 + pace.rest_limit(None) + 15
    results = {event["result"]["name"]: event["result"] for event in events if event["event"] == "result"}
    assert {name: result["outcome"] for name, result in results.items()} == dict.fromkeys(
        ("first", "hangs0", "hangs1", "hangs2", "well"), "timeout"
    )
    assert {code for result in results.values() for code in codes(result)} == {"PROBE_TIMEOUT"}
    assert {event["name"] for event in events if event["event"] == "begin"} == {"first", "hangs0", "hangs2"}
    assert "not run" in results["well"]["observed"]


def test_a_death_that_takes_all_the_time_is_no_hang(tmp_path: Path) -> None:
    """What a crash left no time for was not run because of it: under its code, however far the one at work had come."""
    names = ("before", "dies", "slow", "never")
    functions = ("well", "segfault", "hang", "well")
    checks = [check(what, name, limit_s=60, group="g", paced=True) for what, name in zip(functions, names, strict=True)]
    plan = {"facts": {}, "groups": [{"name": "g", "lane": "main", "env": {}, "bounded": True, "checks": checks}]}
    results = _with_lane_of(6.0, tmp_path, plan)
    assert results["before"]["outcome"] == "passed"
    assert [codes(results[name]) for name in names[1:]] == [["PROBE_CRASHED"]] * 3
    assert "not run" in results["never"]["observed"]


def _with_lane_of(seconds: float, tmp_path: Path, plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Run a plan where paced checks of a bounded group have so many seconds together; return the results by name."""
    return _with(tmp_path, plan, "30.0, 5.0, 50.0", f"{seconds}, 0.0, {seconds}", "LANE_MOST_S = ")


def _with(tmp_path: Path, plan: dict[str, Any], old: str, new: str, after: str) -> dict[str, dict[str, Any]]:
    """Run a plan with other bounds: what stands ``after`` a name in the suite's pace is put in place of ``old``."""
    folder = write_suite(tmp_path / "probes")
    pace_text = (folder / "pace.py").read_text()
    short = pace_text.replace(after + old, after + new)
    assert short != pace_text
    (folder / "pace.py").write_text(short)
    command = [sys.executable, "-I", "-S", str(folder)]
    done = subprocess.run(command, input=order(plan), capture_output=True, timeout=120, check=True)
    return {one["result"]["name"]: one["result"] for one in opened(done.stdout) if one["event"] == "result"}


def test_what_is_read_late_did_not_take_less(tmp_path: Path) -> None:
    """On a busy host a check's beginning is read when its result is there too: its work was done all the same."""
    folder = write_suite(tmp_path / "probes")
    text = (folder / "supervise.py").read_text()
    late = text.replace("data = _read(read_answers)", "time.sleep(2.0); data = _read(read_answers)")
    kept = late.replace("return int(stream.read().split()[1]) / 1e9", "return time.monotonic()")
    assert len({text, late, kept}) == 3
    plan = {
        "facts": {},
        "groups": [
            {"name": "g", "lane": "main", "env": {}, "checks": [check("nap", "nap", arguments={"seconds": 0.5})]}
        ],
    }
    for source, least in ((late, 0.0), (kept, 0.5)):
        (folder / "supervise.py").write_text(source)
        command = [sys.executable, "-I", "-S", str(folder)]
        done = subprocess.run(command, input=order(plan), capture_output=True, timeout=120, check=True)
        (result,) = (one["result"] for one in opened(done.stdout) if one["event"] == "result")
        assert result["outcome"] == "passed"
        assert result["duration_s"] >= least
    assert result["duration_s"] < 60


def test_a_check_with_a_limit_of_its_own_has_it_in_a_bounded_group(tmp_path: Path) -> None:
    """What is slow within its own limit passes, costs the paced checks after it nothing, and ends no other lane."""
    slow = {"seconds": 4.0}
    checks = [
        check("nap", "slow", group="g", arguments=slow),
        check("well", "paced", group="g", paced=True),
        check("nap", "besides", group="g", arguments=slow),
    ]
    plan = {"facts": {}, "groups": [{"name": "g", "lane": "main", "env": {}, "bounded": True, "checks": checks}]}
    results = _with_lane_of(3.0, tmp_path, plan)
    assert {name: result["outcome"] for name, result in results.items()} == dict.fromkeys(
        ("slow", "paced", "besides"), "passed"
    )


@pytest.mark.parametrize("how", ["hang", "spin"])
def test_a_check_that_reads_much_hangs_where_it_reads_nothing(tmp_path: Path, how: str) -> None:
    """Its own limit leaves room for slow storage alone: who computes or waits instead is ended as a paced check is."""
    reads: dict[str, Any] = {"limit_s": 100, "reads": True}
    slow = check("read_slowly", "slow", arguments={"seconds": 11.0}, **reads)
    plan = {
        "facts": {},
        "groups": [
            {
                "name": "g",
                "lane": "main",
                "env": {},
                "checks": [slow, check(how, "none", **reads), check("well", "after")],
            }
        ],
    }
    begun = time.monotonic()
    results = _with(tmp_path, plan, "40.0", "7.0", "CHECK_MOST_S = 10.0, 3.0, ")
    assert {name: one["outcome"] for name, one in results.items()} == {
        "slow": "passed",
        "none": "timeout",
        "after": "passed",
    }
    assert codes(results["none"]) == ["PROBE_TIMEOUT"]
    assert results["none"]["duration_s"] < 60
    assert time.monotonic() - begun < 80


def test_a_check_that_reads_much_may_compute_as_long_as_a_paced_one(tmp_path: Path) -> None:
    """The bound follows the run's own import, is the most where none was timed, and never more than its own limit."""
    board = board_module.Board(Writer(os.open(tmp_path / "said", os.O_CREAT | os.O_WRONLY), "key"))
    much, none = check("well", limit_s=180, reads=True), check("well", limit_s=180)
    assert (board.beside_reading(much), board.beside_reading(none)) == (pace.CHECK_MOST_S, float("inf"))
    board.answer(check("well", "import"), {"outcome": "passed", "duration_s": 4.0})
    assert board.beside_reading(much) == pace.check_limit(180, 4.0)
    board.times["g"] = 2.0
    assert board.beside_reading(much) == 2 * pace.check_limit(180, 4.0)
    assert board.beside_reading(check("well", limit_s=5, reads=True)) == 5
    board.import_s = 400.0
    assert board.beside_reading(much) == 180, "slow is not hung"


def test_a_check_that_the_group_s_end_cuts_off_did_not_hang(tmp_path: Path) -> None:
    """It is said that others took its time; the other groups and lanes are let go on as if nothing had hung."""
    checks = [
        check("nap", "long", group="g", paced=True, arguments={"seconds": 2.0}),
        check("hang", "late", group="g", paced=True, limit_s=60),
        check("well", "last", group="g", paced=True),
    ]
    plan = {
        "facts": {},
        "groups": [
            {"name": "g", "lane": "main", "env": {}, "bounded": True, "checks": checks},
            {
                "name": "other",
                "lane": "side",
                "env": {},
                "checks": [check("nap", "other", group="other", arguments={"seconds": 18.0}, limit_s=40)],
            },
        ],
    }
    results = _with_lane_of(4.0, tmp_path, plan)
    outcomes = {name: result["outcome"] for name, result in results.items()}
    assert outcomes == {"long": "passed", "late": "timeout", "last": "timeout", "other": "passed"}
    assert "took the time" in results["late"]["observed"]
    assert "stopped" in results["late"]["observed"]
    assert "not run" in results["last"]["observed"]


def test_a_bounded_group_has_twice_the_time_where_its_checks_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no container every limit is doubled, and so is what paced checks have together."""
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    board = board_module.Board(Writer(os.open(tmp_path / "said", os.O_CREAT | os.O_WRONLY), "key"))
    imported = check("well", "import", limit_s=140, group="f")
    board.bound({"name": "f", "bounded": True, "times": 2.0, "checks": [imported]})
    board.begins(imported)
    assert board.until("f") == float("inf"), "its own limit says when the import hangs"
    board.answer(imported, {"outcome": "passed", "duration_s": 2.0})
    assert board.until("f") == 100.0 + 2 * pace.lane_limit(2.0)


def test_a_bounded_group_has_an_end_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the import has passed it has the import's time, then what all paced checks together may take."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    board = board_module.Board(Writer(os.open(tmp_path / "said", os.O_CREAT | os.O_WRONLY), "key"))
    imported = check("well", "import", limit_s=75, group="f")
    board.bound({"name": "f", "bounded": True, "checks": [check("well", group="f"), imported]})
    board.bound({"name": "free", "checks": [check("well", group="free")]})
    assert (board.until("f"), board.until("free")) == (175.0, float("inf"))
    now = 110.0
    board.answer(imported, {"outcome": "passed", "duration_s": 2.0})
    assert board.until("f") == 110.0 + pace.lane_limit(2.0) == 150.0
    board.bound({"name": "side", "bounded": True, "checks": [check("well", group="side")]})
    assert board.until("side") == 150.0
    board.hangs(board_module.IDENTITY)
    assert board.until("free") == float("inf"), "who asks what an image is holds up nothing"
    board.hangs(check("hang", group="free"))
    assert (board.until("f"), board.until("free")) == (124.0, 124.0)
    now = 123.0
    board.hangs(check("hang", group="f"))
    assert board.until("free") == 124.0, "a second hang gives no more time"
    assert not board.is_over("f")
    now = 124.0
    assert board.is_over("f")


@pytest.mark.parametrize("import_s", [0.0, 0.5, 2.0, 5.0, 10.0, 20.0])
def test_a_run_that_hangs_is_over_in_time(import_s: float) -> None:
    """Whatever hangs, and however often: the import, all paced checks and the rest are over within the bound."""
    assert import_s + pace.lane_limit(import_s) + pace.rest_limit(import_s) <= 90.0
    assert import_s + pace.check_limit(120.0, import_s) + pace.rest_limit(import_s) <= 80.0
    assert pace.check_limit(5.0, import_s) == 5.0


@pytest.mark.parametrize("import_s", [0.0, 1.0, 10.0, 40.0, 200.0])
def test_a_slow_host_is_not_hung(import_s: float) -> None:
    """However slow the import was: each check has two of them at least, and all together as much as the slowest two."""
    assert pace.check_limit(1e9, import_s) >= 2 * import_s
    assert pace.lane_limit(import_s) >= max(2 * import_s, pace.check_limit(1e9, import_s))


def test_a_hang_leaves_no_child_behind(tmp_path: Path) -> None:
    """Killing a check kills what it started."""
    results, _ = run(tmp_path, check("spawn", limit_s=1))
    assert results["spawn"]["outcome"] == "timeout"
    assert _sleepers(tmp_path) == 0


def _sleepers(folder: Path) -> int:
    """Count the processes of a suite in a folder: other suites may run on this machine."""
    found = 0
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                found += bytes(folder) in (process / "cmdline").read_bytes()
            except OSError:
                continue
    return found


def test_a_flood_is_capped(tmp_path: Path) -> None:
    """64 MB of log neither stop a check nor reach the results."""
    results, events = run(tmp_path, check("flood"), check("well"))
    assert results["flood"]["outcome"] == results["well"]["outcome"] == "passed"
    assert len(json.dumps(events)) < 100_000
    assert results["flood"]["log_bytes"] >= 64 * 1024 * 1024


def test_what_is_printed_is_never_an_answer(tmp_path: Path) -> None:
    """A result printed to stdout or stderr changes nothing."""
    results, _ = run(tmp_path, check("lie"), check("well"))
    assert results["well"]["outcome"] == results["lie"]["outcome"] == "passed"
    assert results["lie"]["observed"] == "the truth"


def test_a_log_belongs_to_its_check(tmp_path: Path) -> None:
    """What a failing check printed is in its own log, whole, and nobody else's."""
    results, _ = run(tmp_path, check("throw", arguments={"text": "first text"}), check("throw", "other"))
    assert "first text" in results["throw"]["log"]
    assert "first text" not in results["other"]["log"]


def test_a_check_whose_need_failed_is_skipped(tmp_path: Path) -> None:
    """One cause turns one check red: what needs it is skipped, also when it crashed, also one by one."""
    results, _ = run(tmp_path, check("segfault"), check("well", needs=["segfault"]), check("well", "free"))
    assert results["well"]["outcome"] == "skipped"
    assert "segfault" in results["well"]["observed"]
    assert results["free"]["outcome"] == "passed"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("AttributeError: _ARRAY_API not found", "NUMPY_ABI"),
        ("TypeError: Descriptors cannot not be created directly.", "PROTOBUF_ABI"),
        ("/lib/libc.so.6: version `GLIBC_2.35' not found", "GLIBC_TOO_OLD"),
        ("libgomp.so.1: cannot open shared object file: No such file or directory", "MISSING_LIBRARY"),
        ("something that nobody has seen", "PROBE_CRASHED"),
    ],
)
def test_known_texts_name_their_cause(tmp_path: Path, text: str, code: str) -> None:
    """What a framework raises leads to the code of its cause; the unknown stays a crash."""
    results, _ = run(tmp_path, check("throw", arguments={"text": text}))
    assert codes(results["throw"]) == [code]


def test_quiet_checks_run_alone(tmp_path: Path) -> None:
    """A side lane starts only when the checks that are timed have been answered."""
    timed = check("well", "timed", quiet=True)
    plan = {
        "facts": {},
        "groups": [
            {"name": "s", "lane": "side", "env": {}, "checks": [check("well", "beside")]},
            {"name": "g", "lane": "main", "env": {}, "checks": [timed, check("well", "last")]},
        ],
    }
    told = [
        (event["event"], event.get("name") or event["result"]["name"])
        for event in say(tmp_path, plan)
        if event["event"] in ("begin", "result")
    ]
    assert told.index(("result", "timed")) < told.index(("begin", "beside"))
    assert ("result", "last") in told


def test_the_worker_gets_a_writable_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where HOME cannot be written, as in a read-only container, frameworks get the scratch folder."""
    monkeypatch.setenv("HOME", "/nonexistent")
    assert runner._environment({}, {"scratch": str(tmp_path)})["HOME"] == str(tmp_path)
