"""A run of the suite in a container or on this host: why it did not come to its end, and that nothing of it is left."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_engine import FakeEngine, Script
from misbehaving import MISBEHAVE, write_suite
from suite_messages import row

from envbuilder.engine.port import ContainerSpec
from envbuilder.errors import InfrastructureError, UsageError
from envbuilder.finding import Code
from envbuilder.support import subprocesses
from envbuilder.validation import suite_plan
from envbuilder.validation.suite_plan import Check, Facts
from envbuilder.validation.suite_session import PROBES, START, Session, Unfinished, here, in_container

LIMIT_S = 1.5
SLACK_S = 8.0
"""How late a result may come on a busy machine, on which Python may take a second to start."""


SPEC = ContainerSpec("some:image", START, time_limit=10.0)


def run(script: Script, foreign: str = "") -> Unfinished | None:
    engine = FakeEngine(script=lambda _: script)
    engine.add("some:image")
    return in_container(engine, SPEC, b"{}", Session((), lambda _: None, token="secret"), foreign=foreign)


@pytest.mark.parametrize(
    ("script", "text", "code"),
    [
        (Script(exit_code=127, stderr=b"gone"), "not run: the runner ended with exit code 127: gone", None),
        (Script(seconds=11.0), "time limit", Code.PROBE_TIMEOUT),
        (Script(exit_code=137, out_of_memory=True), "out of memory", None),
        (Script(stderr=b"\n" * 1_000_001), "a million lines", Code.PROTOCOL_VIOLATION),
        (Script(exit_code=4, stderr=b"No module named 'encodings'"), "No module named 'encodings'", None),
        (Script(exit_code=3), "no Python in it has TensorFlow", None),
        (Script(refusal="no such file"), "cannot start", None),
    ],
)
def test_run_that_did_not_end_well_has_its_reason(script: Script, text: str, code: Code | None) -> None:
    why = run(script)
    assert text in why.why
    assert why.code is (code or Code.PROBE_CRASHED)


def test_run_that_ends_well_needs_no_reason() -> None:
    """The engine reports out of memory for any process: a check that was killed for it is a result of the run."""
    assert run(Script()) is None
    assert run(Script(exit_code=0, out_of_memory=True)) is None


@pytest.mark.parametrize(
    ("script", "text", "hint"),
    [
        (
            Script(exit_code=127, refusal="no /bin/sh for start.sh\n"),
            r"\Amine:latest: the container cannot start: no /bin/sh for start\.sh",
            "the image needs /bin/sh",
        ),
        (
            Script(exit_code=3),
            r"\Amine:latest: no Python in it has TensorFlow",
            "validate an image that brings TensorFlow",
        ),
    ],
)
def test_foreign_image_that_cannot_run_the_suite_is_a_usage_error(script: Script, text: str, hint: str) -> None:
    """The error has the name that the user gave, not the id of the image."""
    with pytest.raises(UsageError, match=text) as caught:
        run(script, "mine:latest")
    assert caught.value.hint == hint


def test_token_is_only_on_standard_input() -> None:
    engine = FakeEngine(script=lambda _: Script())
    engine.add("some:image")
    in_container(engine, SPEC, b"{}", Session((), lambda _: None, token="the-token-of-the-run"))
    (spec,) = engine.runs
    assert b"the-token-of-the-run" in spec.stdin
    assert "the-token-of-the-run" not in repr((spec.command, spec.env, spec.files))


def follow(command: list[str], take: Callable[[bytes], None], *, time_limit: float) -> int | None:
    return subprocesses.follow(command, take, within=time_limit, group=True, patience=0.0)


def is_gone(pid: int) -> bool:
    until = time.monotonic() + SLACK_S
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def with_child(tmp_path: Path, how: str, then: str) -> list[str]:
    program = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'], {how})\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        f"print('begun', flush=True)\n{then}\n"
    )
    return [sys.executable, "-c", program]


@pytest.mark.parametrize("how", ["", "start_new_session=True"], ids=["its group", "a session of its own"])
def test_limit_ends_the_children_too(tmp_path: Path, how: str) -> None:
    began, deaf = time.monotonic(), "import signal; signal.signal(15, signal.SIG_IGN); time.sleep(300)"
    assert follow(with_child(tmp_path, how, deaf), lambda _: None, time_limit=LIMIT_S) is None
    assert LIMIT_S <= time.monotonic() - began < LIMIT_S + SLACK_S
    assert is_gone(int((tmp_path / "pid").read_text()))


def test_error_of_the_reader_ends_the_process(tmp_path: Path) -> None:
    def refuse(_: bytes) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        follow(with_child(tmp_path, "", "time.sleep(300)"), refuse, time_limit=60)
    assert is_gone(int((tmp_path / "pid").read_text()))


def checks(*names: str) -> tuple[Check, ...]:
    return tuple(row(name, "static", f"misbehaving_probes:{name}", limit_s=600) for name in names)


def test_run_here_ends_at_its_limit_like_a_container() -> None:
    session = Session(checks("well", "hang", "throw"), lambda _: None)
    plan = suite_plan.plan(checks("well", "hang", "throw"), Facts(flavor="cpu"))
    began = time.monotonic()
    files = {f"{PROBES}/{name}": content for name, content in MISBEHAVE.items()}
    why = here(sys.executable, plan, session, files=files, time_limit=3)
    assert time.monotonic() - began < 3 + SLACK_S
    found = {one.name: one for one in session.results(why)}
    assert {name: one.outcome for name, one in found.items()} == {
        "well": "passed",
        "hang": "timeout",
        "throw": "timeout",
    }
    assert [one.code for one in found["hang"].findings] == [Code.PROBE_TIMEOUT]
    assert session.violations(why) == ()
    assert "time limit was reached" in found["hang"].observed


@pytest.mark.parametrize(
    ("program", "text"),
    [("exec >&-; sleep 300", "the run's time limit was reached"), ("exit 9", "the runner ended with exit code 9")],
)
def test_program_in_place_of_python_is_reported(tmp_path: Path, program: str, text: str) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{program}\n")
    python.chmod(0o755)
    why = here(str(python), b"{}", Session((), lambda _: None), time_limit=LIMIT_S)
    assert why.why == f"not run: {text}"


def test_missing_python_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="cannot run"):
        here(os.fspath(tmp_path / "none"), b"{}", Session((), lambda _: None))


def test_runner_without_a_host_ends_itself(tmp_path: Path) -> None:
    """If the host process was killed, the first process of a container ends at the time in its order."""
    session = Session(checks("hang"), lambda _: None)
    order = session.order(suite_plan.plan(checks("hang"), Facts(flavor="cpu")), 2.0)
    assert json.loads(order)["limit_s"] == 2.0
    began = time.monotonic()
    command = [sys.executable, "-I", "-S", str(write_suite(tmp_path / "probes"))]
    done = subprocess.run(command, input=order, capture_output=True, timeout=60, check=False)
    session.feed(done.stdout)
    assert done.returncode == 124
    assert 1.5 < time.monotonic() - began < 2 + SLACK_S
    assert session.began == ["hang"]
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if bytes(tmp_path) in _read(path)]
    assert all(is_gone(int(path.parent.name)) for path in left)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
