"""The runner among hostile neighbours: code of an image that Python loads at its start, run for real on this host."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from misbehaving import write_suite
from probe_messages import opened, order

from envbuilder.probes.suite.channel import LONGEST, Reader, sealed

KEY_SEEKER = """
import os, sys
if "--worker" in sys.argv:
    opened = []
    for whose, process in (("own", os.getpid()), ("runner", os.getppid())):
        for name in ("mem", "environ", "fd", "maps"):
            try:
                path = f"/proc/{process}/{name}"
                os.listdir(path) if name == "fd" else open(path, "rb").close()
                opened.append(f"{whose} {name}")
            except OSError:
                pass
    open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "opened"), "w").write(repr(opened))
"""
SPOILER = "import os, sys\nif '--worker' in sys.argv: os.write(int(sys.argv[-1]), b'{\"event\": \"result\"}\\n')\n"
SLEEPER = "import sys, time\nif '--worker' in sys.argv: time.sleep(300)\n"
ANSWERER = """
import json, os, sys
if "--worker" in sys.argv:
    text = sys.stdin.read()  # the order, were it still there
    result = {"name": "throw", "outcome": "passed"}
    for line in ({"event": "begin", "name": "throw"}, {"event": "result", "result": result}):
        os.write(int(sys.argv[-1]), json.dumps(line).encode() + b"\\n")
    os._exit(0)
"""
PATCHER = "import json\nplain = json.dumps\njson.dumps = lambda *a, **b: plain(*a, **b).replace('error', 'passed')\n"
CLOCK = "import time\ntime.monotonic = time.perf_counter = lambda: 0.0\n"


def check(function: str, **more: Any) -> dict[str, Any]:
    """Describe one check."""
    return {"name": function, "tier": "cpu", "group": "g", "probe": f"misbehave:{function}", "limit_s": 60} | more


def run(
    tmp_path: Path, hostile: str, *checks: dict[str, Any]
) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """Run checks where Python loads ``hostile`` at its start; return results by name, and every event."""
    (tmp_path / "sitecustomize.py").write_text(hostile)
    groups = [{"name": one["name"], "lane": "main", "env": {}, "checks": [one]} for one in checks]
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(write_suite(tmp_path / "probes"))],
        input=order({"facts": {}, "groups": groups}),
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        timeout=300,
        check=True,
    )
    events = opened(done.stdout)
    return {event["result"]["name"]: event["result"] for event in events if event["event"] == "result"}, events


def test_the_runner_s_memory_and_descriptors_are_closed_to_its_checks() -> None:
    """A process of the same user, as every check is, opens neither memory nor descriptors of the runner."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o777)
        write_suite(folder / "probes").chmod(0o755)
        (folder / "sitecustomize.py").write_text(KEY_SEEKER)
        group = {"name": "g", "lane": "main", "env": {}, "checks": [check("throw")]}
        done = subprocess.run(
            [_python(), "-I", "-S", str(folder / "probes")],
            input=order({"facts": {}, "groups": [group]}),
            env={"PYTHONPATH": name, "PATH": os.environ["PATH"]},
            capture_output=True,
            timeout=300,
            check=True,
            user=65534 if os.geteuid() == 0 else None,  # root may open everything; in a container nobody is root
        )
        found = (folder / "opened").read_text()
    assert opened(done.stdout)[0]["sealed"] is True
    assert found == "['own mem', 'own environ', 'own fd', 'own maps']"


def _python() -> str:
    """Name a Python that any user may start; skip where root has none but one in its own closed home."""
    found = sys.executable if os.geteuid() else shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if not found:
        pytest.skip("no Python here that another user may start")
    return found


def test_the_runner_says_that_it_is_sealed(tmp_path: Path) -> None:
    """Where the C library can be called, the runner is sealed before the first process of the image starts."""
    _, events = run(tmp_path, "", check("well"))
    assert events[0]["event"] == "start"
    assert events[0]["sealed"] is True


@pytest.mark.parametrize("hostile", [SPOILER, ANSWERER], ids=["a line", "a forged answer"])
def test_whoever_writes_on_the_answers_spoils_that_check_alone(tmp_path: Path, hostile: str) -> None:
    """Both are PROTOCOL_VIOLATION, neither is believed, no lane stops, and the run comes to its end."""
    results, events = run(tmp_path, hostile, check("throw"), check("well"))
    assert [found["code"] for found in results["throw"]["findings"]] == ["PROTOCOL_VIOLATION"]
    assert [found["code"] for found in results["well"]["findings"]] == ["PROTOCOL_VIOLATION"]
    assert {result["outcome"] for result in results.values()} == {"error"}
    assert [event["event"] for event in events if event["event"] in ("spoiled", "end")] == ["spoiled", "spoiled", "end"]


def test_a_patched_json_does_not_turn_results(tmp_path: Path) -> None:
    """A codec that is patched in the check's process makes no success of a failure: the runner's own is another."""
    results, _ = run(tmp_path, PATCHER, check("segfault"), check("throw"))
    assert results["segfault"]["outcome"] == "error"


def test_times_are_the_runner_s(tmp_path: Path) -> None:
    """A clock that stands still in the check's process changes no duration."""
    results, _ = run(tmp_path, CLOCK, check("flood", arguments={"megabytes": 8}))
    assert results["flood"]["outcome"] == "passed"
    assert results["flood"]["duration_s"] > 0


def test_a_python_that_never_starts_costs_one_limit(tmp_path: Path) -> None:
    """Three groups that hang before their first check are answered after one start limit, not after three."""
    begun = time.monotonic()
    results, _ = run(tmp_path, SLEEPER, check("well"), check("throw"), check("lie"))
    assert time.monotonic() - begun < 85
    assert {result["outcome"] for result in results.values()} == {"timeout"}
    assert {found["code"] for result in results.values() for found in result["findings"]} == {"PROBE_TIMEOUT"}


def test_a_line_without_an_end_is_bounded_and_linear() -> None:
    """64 MB without a newline are counted, hardly kept, and read again once a line ends."""
    reader = Reader("k")
    for _ in range(1024):
        assert list(reader.feed(b"x" * 65536)) == []
    assert len(reader._line) <= LONGEST
    assert reader.strange_bytes >= 56 << 20
    assert list(reader.feed(b"\n" + sealed(b"k", 0, b"{}"))) == [b"{}"]


def test_messages_come_through_in_any_pieces() -> None:
    """A stream cut anywhere gives the same messages; what is between them is only a log."""
    told = sealed(b"k", 0, b"one") + b"noise\n" + sealed(b"k", 1, b"two") + sealed(b"other", 2, b"three")
    for size in (1, 7, 64, 4096):
        reader = Reader("k")
        found = [message for at in range(0, len(told), size) for message in reader.feed(told[at : at + size])]
        assert found == [b"one", b"two"]
        assert reader.wrong == []
        assert len(reader.strange) == 2
