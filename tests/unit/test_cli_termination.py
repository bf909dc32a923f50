"""Streams that are closed or full, a reader that has gone, a folder that was removed, a signal: each has its end."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from table_rows import rows

from envbuilder import cli, errors
from envbuilder.errors import ExitCode, InfrastructureError, UsageError

ENVBUILDER = f"{sys.executable} -m envbuilder"


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of shell in a folder; ``E`` is envbuilder."""
    environment = {**os.environ, "E": ENVBUILDER}
    return subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@rows
def test_every_end_has_its_code(line: str, code: int, said: str, tmp_path: Path) -> None:
    done = shell(line, tmp_path)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not said or "next: " in done.stderr


def test_closed_streams_leave_files_alone(tmp_path: Path) -> None:
    """With standard error closed, nothing that is meant for it gets into a file of ours."""
    done = shell("$E check --tensorflow 2.20.0 2>&- --format json", tmp_path)
    assert json.loads(done.stdout)["schema"] == "envbuilder/check/v1"


SLEEPER = """
import time
from envbuilder import cli
from envbuilder.cli import termination
termination.GRACE_S = 1.0
def main(*_, **__):
    print("ready", flush=True)
    try:
        time.sleep(60)
    finally:
        time.sleep({cleanup})
cli.root.main = main
cli.main([])
"""


def test_signal_that_nohup_ignores_stays_ignored() -> None:
    """A closed terminal means nothing to a command under nohup; a request to terminate goes on ending it."""
    code = SLEEPER.format(cleanup=0)
    line = ["nohup", sys.executable, "-c", code]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 130


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("cleanup", [0, 60], ids=["clean", "cleaning up hangs"])
def test_signal_ends_it_in_time(number: signal.Signals, cleanup: int) -> None:
    code = SLEEPER.format(cleanup=cleanup)
    # A job in the background ignores SIGINT, and one under nohup SIGHUP.
    unignored = "signal.signal(signal.SIGINT, signal.default_int_handler); signal.signal(signal.SIGHUP, signal.SIG_DFL)"
    code = f"import signal; {unignored}\n{code}"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        began = time.monotonic()
        process.send_signal(number)
        assert process.wait(timeout=30) == 130
        assert time.monotonic() - began < 10.0


@pytest.mark.parametrize("number", sorted(errno.errorcode))
def test_every_trouble_of_the_machine_has_a_next_step(number: int) -> None:
    ours = errors.of_system(OSError(number, os.strerror(number), "/some/path"))
    assert isinstance(ours, InfrastructureError)
    assert "/some/path" in ours.message
    assert os.strerror(number) in ours.message
    assert ours.hint
    users = errors.of_system(OSError(number, os.strerror(number), "/some/path"), "read /some/path", users=True)
    assert isinstance(users, UsageError)
    assert users.hint


def test_interruption_within_a_class_is_an_interruption(capsys: pytest.CaptureFixture[str]) -> None:
    """An interruption while a class is being made is Python's RuntimeError, and no bug: it ends with 130."""

    class Field:
        def __set_name__(self, owner: type, name: str) -> None:
            raise KeyboardInterrupt

    with pytest.raises((RuntimeError, KeyboardInterrupt)) as raised:  # as Python before 3.12 has it, and after
        type("Made", (), {"field": Field()})
    assert cli._report(raised.value) == ExitCode.INTERRUPTED
    said = capsys.readouterr().err
    assert "interrupted" in said
    assert "Traceback" not in said
