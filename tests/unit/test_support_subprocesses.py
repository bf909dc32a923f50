"""Programs of others: one error, bounds on time and output, and no process that outlives the one that started it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from table_rows import rows
from waiting import wait_for

from envbuilder.errors import ExitCode
from envbuilder.probes.suite import watchdog
from envbuilder.support import lifeline, subprocesses
from envbuilder.support.subprocesses import ProgramError, run, started

ENDS_S = 8.0
"""How long an end may take on a busy machine; what it is about sleeps for minutes."""

STARTS_S = 60.0
"""How long two Pythons may take to start on a busy machine."""

STARTER = """
import signal, sys
from envbuilder.support.subprocesses import run
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job starts without one
run(["sh", "-c", sys.argv[1]], within=300)
"""


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def number_in(path: Path) -> int:
    return int(wait_for(lambda: read(path).strip(), STARTS_S))


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@rows
def test_program_ends_with_its_starter(line: str, sent: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(subprocesses.__file__).parents[2])}
    with subprocess.Popen([sys.executable, "-c", STARTER, line], cwd=tmp_path, env=environment, stderr=-3) as starter:
        try:
            pid = number_in(tmp_path / "pid")
            assert alive(pid)
            starter.send_signal(signal.Signals[sent])
            starter.wait(ENDS_S)
        finally:
            starter.kill()  # otherwise a failure waits for the program, which sleeps for minutes
    wait_for(lambda: not alive(pid), ENDS_S)


def test_answer_is_whole() -> None:
    done = run(["sh", "-c", "cat; printf '\\377' >&2; exit 3"], within=30, stdin=b"\xfe read")
    assert (done.code, done.out, done.errors) == (3, b"\xfe read", b"\xff")
    assert (done.text, done.error_text) == ("\ufffd read", "\ufffd")


def test_missing_program_is_a_program_error(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    for name in ("envbuilder-no-such-program", str(tmp_path), str(tmp_path / "text")):
        with pytest.raises(ProgramError, match="cannot be started") as told:
            run([name], within=5)
        assert told.value.exit_code == ExitCode.INFRASTRUCTURE
        assert told.value.hint


def test_program_without_end_is_ended() -> None:
    sleep = f"sleep 3{os.getpid()}"
    lines = (sleep, f"{sleep} & wait", f"exec >&- 2>&-; exec {sleep}", "while :; do echo x; sleep 0.01; done")
    for line in lines:
        began = time.monotonic()
        with pytest.raises(ProgramError, match="did not end"):
            run(["sh", "-c", line], within=0.3)
        assert time.monotonic() - began < ENDS_S
    words = sleep.replace(" ", "\0").encode()
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if words in read(path)]


def test_output_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocesses, "MOST_OUTPUT", 1 << 20)
    with pytest.raises(ProgramError, match="printed more"):
        run(["sh", "-c", "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done"], within=60)


def test_held_pipe_does_not_hold_the_caller() -> None:
    """The program has ended, although another process keeps its output open."""
    began = time.monotonic()
    assert run(["sh", "-c", "sleep 20 & echo done"], within=60).out == b"done\n"
    assert time.monotonic() - began < ENDS_S


def test_block_ends_the_program(tmp_path: Path) -> None:
    with started(["sh", "-c", "echo $$ >pid; exec sleep 300"], folder=tmp_path) as process:
        pid = number_in(tmp_path / "pid")
    wait_for(lambda: not alive(pid), ENDS_S)
    assert process.returncode not in (None, 0)


def test_signal_is_passed_on() -> None:
    assert run(["sh", "-c", "kill -9 $$"], within=30).code == -signal.SIGKILL


def test_lifeline_and_watchdog_find_the_same_descendants() -> None:
    """The lifeline and the suite have separate code for it, because each uses only the standard library."""
    with subprocess.Popen(
        ["sh", "-c", "sleep 60 & sh -c 'sleep 60 & wait' & echo on; wait"], stdout=subprocess.PIPE
    ) as shell:
        try:
            shell.stdout.readline()
            wait_for(lambda: len(lifeline._below(shell.pid)) == 3, ENDS_S)
            assert sorted(lifeline._below(shell.pid)) == sorted(watchdog.descendants(shell.pid))
            assert len(watchdog.descendants(shell.pid)) == 3
        finally:
            for pid in (*watchdog.descendants(shell.pid), shell.pid):
                os.kill(pid, signal.SIGKILL)
