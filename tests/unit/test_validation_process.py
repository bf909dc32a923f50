"""A run on this host: its limit bounds all of it, what it printed is kept, and nothing of it is left."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from misbehaving import MISBEHAVE

from envbuilder.errors import InfrastructureError
from envbuilder.finding import Code
from envbuilder.validation import suite_plan
from envbuilder.validation.checks import Check
from envbuilder.validation.events import Session
from envbuilder.validation.launcher import PROBES, here
from envbuilder.validation.process import follow
from envbuilder.validation.suite_plan import Facts, probe_files

LIMIT_S = 1.0
SLACK_S = 8.0
"""How late an answer may come on a busy machine; without a bound each of these processes takes minutes."""

SLEEPER = "import time; print('begun', flush=True); time.sleep(300)"
CLOSER = "import os, time; print('begun', flush=True); os.close(1); time.sleep(300)"
PRINTER = "import sys\nprint('begun')\nwhile True: sys.stdout.write('x' * 4096)"
DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); print('begun', flush=True); time.sleep(300)"


def alive(pid: int) -> bool:
    """Tell whether a process runs still; one that ended and waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def is_gone(pid: int) -> bool:
    """Wait until a killed process has ended."""
    until = time.monotonic() + SLACK_S
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.05)
    return not alive(pid)


def processes_of(folder: Path) -> list[int]:
    """List the processes that were started from a folder, once those that were killed are gone."""
    for _ in range(20):
        found = []
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                with suppress(OSError):
                    found += [int(process.name)] * (bytes(folder) in (process / "cmdline").read_bytes())
        if not found:
            break
        time.sleep(0.1)
    return found


def leaves(tmp_path: Path, how: str, then: str) -> str:
    """Write a program that starts a long-lived child, writes down its id, and goes on."""
    return (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'], {how})\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        f"print('begun', flush=True)\n{then}\n"
    )


@pytest.mark.parametrize("program", [SLEEPER, CLOSER, PRINTER, DEAF], ids=["sleeper", "closer", "printer", "deaf"])
def test_the_limit_bounds_whatever_it_does_with_its_output(program: str) -> None:
    """Silent, closed, endless or deaf to signals: it is over at the limit, and what it printed before is kept."""
    output = bytearray()
    began = time.monotonic()
    code = follow([sys.executable, "-c", program], output.extend, time_limit=LIMIT_S)
    assert code is None
    assert LIMIT_S <= time.monotonic() - began < LIMIT_S + SLACK_S
    assert output.startswith(b"begun")


@pytest.mark.parametrize("how", ["", "start_new_session=True"], ids=["its group", "a session of its own"])
def test_at_the_limit_nothing_is_left(tmp_path: Path, how: str) -> None:
    """A child is killed with the process at its limit, also one that left its process group, as every check does."""
    program = leaves(tmp_path, how, "time.sleep(300)")
    assert follow([sys.executable, "-c", program], lambda _: None, time_limit=LIMIT_S) is None
    assert is_gone(int((tmp_path / "pid").read_text()))


def test_a_child_that_holds_the_pipe_does_not_hold_the_answer(tmp_path: Path) -> None:
    """A process that has ended is over, though a child keeps its output open; the child is ended too."""
    output = bytearray()
    began = time.monotonic()
    program = leaves(tmp_path, "", "sys.exit(4)")
    assert follow([sys.executable, "-c", program], output.extend, time_limit=300) == 4
    assert time.monotonic() - began < 60
    assert output == b"begun\n"
    assert is_gone(int((tmp_path / "pid").read_text()))


def test_output_is_whole_and_the_code_its_own() -> None:
    """A process that ends in time gives all that it printed, more than a pipe holds, and its own exit code."""
    output = bytearray()
    program = "import sys; sys.stdout.write('y' * 3_000_000); sys.exit(7)"
    assert follow([sys.executable, "-c", program], output.extend, time_limit=60) == 7
    assert len(output) == 3_000_000


def test_an_error_of_the_reader_ends_the_process(tmp_path: Path) -> None:
    """Where taking the output fails, or the user interrupts, the process is not left running."""

    def refuse(_: bytes) -> None:
        raise KeyboardInterrupt

    program = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n{SLEEPER}"
    with pytest.raises(KeyboardInterrupt):
        follow([sys.executable, "-c", program], refuse, time_limit=60)
    assert is_gone(int((tmp_path / "pid").read_text()))


def checks(*names: str) -> tuple[Check, ...]:
    """Make checks of the suite's own controls, each allowed more time than the run."""
    return tuple(
        Check(name=name, level="static", group="static", probe=f"misbehave:{name}", proves="x", codes=(), limit_s=600)
        for name in names
    )


def test_a_run_here_ends_at_its_limit_like_a_container() -> None:
    """What was answered before the limit stands, every other check says that the time limit was reached."""
    session = Session(checks("well", "hang", "throw"), lambda _: None)
    plan = suite_plan.plan(checks("well", "hang", "throw"), Facts(flavor="cpu"))
    began = time.monotonic()
    files = {f"{PROBES}/{name}": content for name, content in MISBEHAVE.items()}
    why = here(sys.executable, plan, session, files=files, time_limit=4)
    assert time.monotonic() - began < 4 + SLACK_S
    found = {one.name: one for one in session.results(why)}
    assert {name: one.outcome for name, one in found.items()} == {
        "well": "passed",
        "hang": "timeout",
        "throw": "timeout",
    }
    assert [one.code for one in found["hang"].findings] == [Code.PROBE_TIMEOUT]
    assert session.violations(why) == ()
    assert "time limit was reached" in found["hang"].observed


@pytest.mark.parametrize("program", ["exec >&-; sleep 300", "exit 9", "sleep 300"])
def test_a_python_that_is_none_is_told(tmp_path: Path, program: str) -> None:
    """A program in Python's place that closes its output, fails or hangs is told in words, never a traceback."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{program}\n")
    python.chmod(0o755)
    why = here(str(python), b"{}", Session((), lambda _: None), time_limit=1)
    assert why is not None
    assert why.why == (
        "not run: the runner ended with exit code 9" if "9" in program else "not run: the run's time limit was reached"
    )


def test_a_python_that_is_not_there_is_the_machines_fault(tmp_path: Path) -> None:
    """A Python that cannot be started is an error of this machine, with what to do."""
    with pytest.raises(InfrastructureError, match="cannot run"):
        here(os.fspath(tmp_path / "none"), b"{}", Session((), lambda _: None))


def test_a_runner_that_nobody_follows_ends_itself(tmp_path: Path) -> None:
    """Whoever started it may have been killed: a container's first process ends at the time that its order names."""
    session = Session(checks("hang"), lambda _: None)
    plan = suite_plan.plan(checks("hang"), Facts(flavor="cpu"))
    for name, content in {**probe_files(), **MISBEHAVE}.items():
        (tmp_path / name).write_bytes(content)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(tmp_path)],
        input=session.order(plan, 3.0),
        capture_output=True,
        timeout=60,
        check=False,
    )
    session.feed(done.stdout)
    assert done.returncode == 124
    assert 2.5 < time.monotonic() - began < 3 + SLACK_S
    assert session.began == ["hang"]
    assert processes_of(tmp_path) == []
