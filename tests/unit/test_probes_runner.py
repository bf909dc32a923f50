"""The runner and its start: a crash, a hang, a flood or strange code in one check does not affect the others."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from misbehaving import write_suite
from suite_messages import END, events_of, order
from table_rows import beside, rows

from envbuilder.probes.suite import known_errors
from envbuilder.probes.suite.channel import LONGEST, Reader, message
from envbuilder.probes.suite.watchdog import Limits

Check = dict[str, Any]
Results = dict[str, dict[str, Any]]


def check(function: str, name: str = "", **more: Any) -> Check:
    return {"name": name or function, "group": "g", "probe": f"misbehaving_probes:{function}", "limit_s": 20} | more


def group(*checks: Check, name: str = "g", lane: str = "main") -> dict[str, Any]:
    return {"name": name, "lane": lane, "env": {}, "checks": [one | {"group": name} for one in checks]}


def run(folder: Path, *groups: dict[str, Any], at_start: str = "", **limits: float) -> tuple[Results, list[Any]]:
    """Run groups where Python loads ``at_start`` first; return the results by name, and every event."""
    (folder / "sitecustomize.py").write_text(at_start)
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(write_suite(folder / "probes"))],
        input=order({"facts": {}, "groups": groups, "limits": limits}),
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        timeout=120,
        check=True,
    )
    events = events_of(done.stdout)
    assert events[-1] == END
    results = [event["result"] for event in events if event["event"] == "result"]
    assert len({result["name"] for result in results}) == len(results), "a check has two results"
    return {result["name"]: result for result in results}, events


def outcomes(results: Results) -> dict[str, str]:
    return {name: result["outcome"] for name, result in results.items()}


def code(result: dict[str, Any]) -> str:
    (found,) = result["findings"]
    return str(found["code"])


def began(events: list[Any]) -> list[str]:
    return [event["name"] for event in events if event["event"] == "begin"]


@rows
def test_crash_costs_only_the_check_that_crashed(tmp_path: Path, function: str, expected: str) -> None:
    results, _ = run(tmp_path, group(check("well", "before"), check(function), check("well", "after")))
    assert outcomes(results) == {"before": "passed", function: "error", "after": "passed"}
    assert code(results[function]) == expected


def test_group_is_given_up_after_three_crashes(tmp_path: Path) -> None:
    results, events = run(tmp_path, group(*(check("segfault", f"dies{number}") for number in range(5))))
    assert set(outcomes(results).values()) == {"error"}
    assert began(events) == ["dies0", "dies1", "dies2"]
    assert "not run" in results["dies4"]["observed"]


def test_hang_is_killed_at_its_limit_and_the_rest_goes_on(tmp_path: Path) -> None:
    begun = time.monotonic()
    results, _ = run(tmp_path, group(check("well"), check("hang", limit_s=1), check("well", "after")))
    assert outcomes(results) == {"well": "passed", "hang": "timeout", "after": "passed"}
    assert code(results["hang"]) == "PROBE_TIMEOUT"
    assert 1 <= time.monotonic() - begun < 15


def test_hangs_in_every_lane_cost_one_wait(tmp_path: Path) -> None:
    results, events = run(
        tmp_path,
        group(check("hang", "first", limit_s=1), check("well", "needs", needs=["first"])),
        group(check("hang", "second", limit_s=90), check("well", "blocked", needs=["first"]), name="g2"),
        group(check("hang", "third", limit_s=90), name="g3"),
        group(check("hang", "side", limit_s=90), name="g4", lane="side"),
        rest_s=1.5,
    )
    late = dict.fromkeys(("first", "second", "third", "side"), "timeout")
    assert outcomes(results) == {**late, "needs": "skipped", "blocked": "skipped"}
    assert {code(results[name]) for name in late} == {"PROBE_TIMEOUT"}
    assert "third" not in began(events)
    assert "stopped" in results["second"]["observed"]
    assert "not run" in results["third"]["observed"]


def test_slow_import_doubles_the_limits(tmp_path: Path) -> None:
    slow = check("nap", "import", arguments={"seconds": 0.5})
    nap = check("nap", arguments={"seconds": 2.0}, limit_s=1.5)
    for slow_import_s, expected in ((0.4, "passed"), (15.0, "timeout")):
        results, _ = run(tmp_path, group(slow, nap), slow_import_s=slow_import_s)
        assert outcomes(results) == {"import": "passed", "nap": expected}
    assert (Limits().scaled(30.0, 2.0), Limits().scaled(30.0, 40.0)) == (30.0, 60.0)


def test_python_that_never_starts_costs_one_limit(tmp_path: Path) -> None:
    begun = time.monotonic()
    results, events = run(
        tmp_path,
        *(group(check("well", name), name=name) for name in ("one", "two", "three")),
        at_start="import sys, time\nif '--worker' in sys.argv: time.sleep(300)\n",
        start_s=1.0,
    )
    assert time.monotonic() - begun < 15
    assert set(outcomes(results).values()) == {"timeout"}
    assert began(events) == []


def test_hang_leaves_no_child_behind(tmp_path: Path) -> None:
    results, _ = run(tmp_path, group(check("spawn", limit_s=1)))
    assert outcomes(results) == {"spawn": "timeout"}
    command_lines = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command_lines.append(process.read_bytes())
        except OSError:
            continue
    assert not [line for line in command_lines if bytes(tmp_path) in line]


def test_flood_of_output_is_capped(tmp_path: Path) -> None:
    results, events = run(tmp_path, group(check("flood"), check("well")))
    assert outcomes(results) == {"flood": "passed", "well": "passed"}
    assert len(json.dumps(events)) < 100_000
    assert results["flood"]["log_bytes"] >= 64 * 1024 * 1024


def test_printed_text_is_never_a_result(tmp_path: Path) -> None:
    results, _ = run(tmp_path, group(check("lie"), check("well")))
    assert outcomes(results) == {"lie": "passed", "well": "passed"}
    assert results["lie"]["observed"] == "the truth"


def test_log_belongs_to_its_check(tmp_path: Path) -> None:
    results, _ = run(tmp_path, group(check("throw", arguments={"text": "first text"}), check("throw", "other")))
    assert "first text" in results["throw"]["log"]
    assert "first text" not in results["other"]["log"]


@rows
def test_known_error_text_gives_its_code(text: str, expected: str) -> None:
    result = {"name": "one", "outcome": "error", "observed": text, "findings": []}
    assert code(known_errors.classify(result)) == expected


def test_side_lane_waits_for_timed_checks(tmp_path: Path) -> None:
    _, events = run(
        tmp_path,
        group(check("well", "side"), name="s", lane="side"),
        group(check("well", "timed", quiet=True), check("well", "last")),
    )
    order_of = [(one["event"], one.get("name") or one["result"]["name"]) for one in events[1:-1]]
    assert order_of.index(("result", "timed")) < order_of.index(("begin", "side"))
    assert ("result", "last") in order_of


def test_worker_gets_a_writable_home(tmp_path: Path) -> None:
    results, _ = run(tmp_path, group(check("well")), at_start="import os\nos.environ['HOME'] = '/nonexistent'\n")
    assert outcomes(results) == {"well": "passed"}


FOREIGN_LINE = "import os, sys\nif '--worker' in sys.argv: os.write(int(sys.argv[-1]), b'{\"event\": \"result\"}\\n')\n"


@pytest.mark.parametrize("at_start", [FOREIGN_LINE, beside(__file__)["forged_result"]])
def test_foreign_text_on_the_results_is_a_violation(tmp_path: Path, at_start: str) -> None:
    results, events = run(tmp_path, group(check("well")), group(check("well", "other"), name="g2"), at_start=at_start)
    assert outcomes(results) == {"well": "error", "other": "error"}
    assert {code(result) for result in results.values()} == {"PROTOCOL_VIOLATION"}
    assert [event["event"] for event in events].count("spoiled") == 2


def test_worker_that_exits_well_without_results_is_a_crash(tmp_path: Path) -> None:
    results, _ = run(
        tmp_path, group(check("well")), at_start="import os, sys\nif '--worker' in sys.argv: os._exit(0)\n"
    )
    assert (outcomes(results), code(results["well"])) == ({"well": "error"}, "PROBE_CRASHED")


def test_durations_are_the_runner_s(tmp_path: Path) -> None:
    clock = "import time\ntime.monotonic = time.perf_counter = lambda: 0.0\n"
    results, _ = run(tmp_path, group(check("nap", arguments={"seconds": 0.5})), at_start=clock)
    assert 0.5 <= results["nap"]["duration_s"] < 60


def test_line_without_end_is_bounded_and_linear() -> None:
    reader = Reader("k")
    for _ in range(1024):
        assert list(reader.feed(b"x" * 65536)) == []
    assert len(reader._line) <= LONGEST
    assert reader.strange_bytes >= 56 << 20
    assert list(reader.feed(b"\n" + message("k", {}))) == [b"{}"]


START = Path(__file__).parents[2] / "envbuilder/probes/suite/start.sh"
CHECK = {"name": "well", "tier": "cpu", "group": "g", "probe": "misbehaving_probes:well", "limit_s": 60}
PLAN = {"facts": {}, "groups": [{"name": "g", "lane": "main", "env": {}, "checks": [CHECK]}]}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Make a folder that another user may write to, with the suite and a Python's packages in it."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        place = Path(name)
        place.chmod(0o777)
        write_suite(place / "probes").chmod(0o755)
        shutil.copy(START, place / "probes" / "start.sh")
        (place / "site" / "tensorflow").mkdir(parents=True)
        (place / "site" / "tensorflow" / "__init__.py").write_text("")
        (place / "site").chmod(0o777)
        (place / "bin").mkdir()
        yield place


def start(folder: Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    """Start the probes as in a container, whose user is not root and owns the streams (runc gives them to it)."""
    reading, writing = os.pipe()
    if os.geteuid() == 0:
        os.fchown(reading, 65534, 65534)
    os.write(writing, order(PLAN))
    os.close(writing)
    path = f"{folder / 'bin'}:{Path(python()).parent}:/usr/bin:/bin"
    with os.fdopen(reading, "rb") as stdin:
        return subprocess.run(
            ["/bin/sh", str(folder / "probes" / "start.sh")],
            stdin=stdin,
            env={"PATH": path, "PYTHONPATH": str(folder / "site"), **env},
            capture_output=True,
            timeout=120,
            check=False,
            user=65534 if os.geteuid() == 0 else None,
        )


def python() -> str:
    found = sys.executable if os.geteuid() else shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if not found:
        pytest.skip("no Python here that another user may start")
    return found


def program(folder: Path, name: str, text: str) -> None:
    (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / "bin" / name).chmod(0o755)


def outcomes_of(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    return [event["result"]["outcome"] for event in events_of(done.stdout) if event["event"] == "result"]


def test_process_that_a_check_leaves_running_ends_with_the_run(folder: Path) -> None:
    (folder / "site" / "sitecustomize.py").write_text(beside(__file__)["stays"])
    done = start(folder)
    assert (done.returncode, outcomes_of(done)) == (0, ["passed"]), done.stderr.decode()[-2000:]
    left = int((folder / "site" / "stays").read_text())
    stat = Path(f"/proc/{left}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z", "it still runs"


LACKS = 'case "$1" in -c) exit 11;; esac; exec {} "$@"'


@pytest.mark.parametrize(
    "programs", [{"python": LACKS, "python3": LACKS}, {"python": "exit 1"}], ids=["without TensorFlow", "broken"]
)
def test_first_python_that_starts_and_has_tensorflow_runs_the_probes(folder: Path, programs: dict[str, str]) -> None:
    for name, text in programs.items():
        program(folder, name, text.format(python()))
    done = start(folder)
    assert (done.returncode, outcomes_of(done)) == (0, ["passed"]), done.stderr.decode()[-2000:]


@rows
def test_exit_code_tells_why_no_python_runs_the_probes(folder: Path, text: str, code: int, message: str) -> None:
    shutil.rmtree(folder / "site" / "tensorflow")
    if text:
        program(folder, "python", text)
    done = start(folder)
    assert (done.returncode, done.stdout) == (code, b"")
    assert message.encode() in done.stderr
