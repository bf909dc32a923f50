"""Run a user's tests: pytest files and scripts, each file in a process, each outcome as soon as it is known.

A test that kills its process only costs itself: the file is started again with the tests that have no result. A script
passes if it exits with 0. pytest is last on the import path, so that the image's own packages are used.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from ..suite.channel import Writer

HERE = os.path.dirname(os.path.abspath(__file__))
KEPT = 1000
FLOOD = 64 << 20
"""Bytes of output after which a test is stopped; they are in memory."""


def main(writer: Writer, wanted: Mapping[str, Any]) -> int:
    """Run every file, or, as a child, the tests of one file."""
    if "file" in wanted:
        return pytest_file(writer, wanted)
    for path in wanted["tests"]:
        run_tests(writer, path, wanted)
    for path in wanted["scripts"]:
        writer.send(run_script(path, wanted))
    writer.send({"end": True})
    return 0


def run_tests(writer: Writer, path: str, wanted: Mapping[str, Any]) -> None:
    """Run the tests of one file, again without those that have a result, as long as each run adds one.

    If pytest does not start with the options and plugins of the folder (``-n auto`` without pytest-xdist), it runs once
    more without them. A file that hangs or floods before its first test is stopped once.
    """
    done: list[str] = list(wanted.get("skip", ()))
    broken = {path}
    plain = False
    while True:
        run = FileRun(path, wanted, done, plain=plain)
        run.follow(writer)
        if run.ended:
            if run.code:  # negative for a signal; 0 if it had to be killed
                text = "after the tests of its file, the process crashed at its exit: " + how(run.code)
                writer.send(result(run.passed or path, "error", text))
            return
        if not (run.began or run.stopped or plain):
            plain = True
            continue
        name = run.open_test or path
        writer.send(result(name, run.stopped or "error", run.trouble or "the process ended: " + how(run.code)))
        if name in broken:
            return
        broken.add(name)
        done.append(name)


def how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


SILENT = "killed at its time limit"
EXIT_S = 10  # to exit after the last test: threads that a test left running may not end
FLOODS = f"floods: killed after {FLOOD >> 20} MiB of output"


class FileRun:
    """One file in one child process; its results are passed on.

    ``began`` if a test began or has a result, ``passed`` the last test that did, ``stopped`` the outcome of the test
    for which it was killed, ``trouble`` why, or why pytest could not start. What it prints past pytest counts too.
    """

    def __init__(self, path: str, wanted: Mapping[str, Any], done: list[str], *, plain: bool) -> None:
        self.wanted, self.done = wanted, done
        self.ended = self.began = False
        self.open_test: str | None = None
        self.code = 0
        self.stopped = self.trouble = self.passed = ""
        order = {"file": path, "done": done, "pytest": wanted["pytest"], "root": wanted["root"], "plain": plain}
        env = dict(os.environ, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1") if plain else None
        command = [sys.executable, HERE, "user_tests", json.dumps(order)]
        with tempfile.TemporaryFile() as printed:
            self.child = started(command, wanted, stdout=subprocess.PIPE, stderr=printed, env=env)

    def follow(self, writer: Writer) -> None:
        """Read results until the child has ended, is silent for too long, or floods; kill what it left running."""
        assert self.child.stdout is not None  # asked for above
        pipe, rest, last = self.child.stdout.fileno(), b"", time.monotonic()
        while not self.stopped:
            data = os.read(pipe, 1 << 16) if select.select([pipe], [], [], 0.2)[0] else b""
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                last = time.monotonic()
                self.take(line, writer)
            code = self.child.poll()
            if code is not None and not lines:
                self.code = code
                break  # a process that it left behind may keep the pipe open
            limit_s = min(EXIT_S, self.wanted["limit_s"]) if self.ended else self.wanted["limit_s"]
            self.stopped, why = stop_reason(self.child, last, limit_s)
            self.trouble = why or self.trouble
            if not data:
                time.sleep(0.05)  # closed: only the end of the process is missing
        end_group(self.child)

    def take(self, line: bytes, writer: Writer) -> None:
        """Pass one result on; any other line was written by a test."""
        try:
            document = json.loads(line.decode("utf-8", "replace"))
        except ValueError:
            return
        if not isinstance(document, dict):
            return
        if "begin" in document:
            self.began, self.open_test = True, document["begin"]
        elif "ended" in document:
            self.ended = True
        elif "trouble" in document:
            self.trouble = document["trouble"]
        elif "name" in document and "outcome" in document:
            self.began = True
            self.done.append(document["name"])
            self.passed = document["name"] if document["outcome"] == "passed" else self.passed
            writer.send(document)


def stop_reason(child: subprocess.Popen[bytes], since: float, limit_s: float) -> tuple[str, str]:
    """Return outcome and message of a child that is silent for too long, or floods (a test floods pytest's capture)."""
    if time.monotonic() - since > limit_s:
        return "timeout", SILENT
    try:
        printed = max(os.stat(f"/proc/{child.pid}/fd/{descriptor}").st_size for descriptor in (1, 2))
    except OSError:
        return "", ""  # it has ended
    return ("error", FLOODS) if printed > FLOOD else ("", "")


def started(command: list[str], wanted: Mapping[str, Any], **options: Any) -> subprocess.Popen[bytes]:
    null = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=null, cwd=wanted["root"], start_new_session=True, **options)


def end_group(child: subprocess.Popen[bytes]) -> None:
    """Kill what a process left running, also outside its group, and collect it: the number of processes is limited."""
    in_container = os.getpid() == 1  # then -1 means all others, and the dead wait for this process
    for group in (-child.pid, -1) if in_container else (-child.pid,):
        try:
            os.kill(group, signal.SIGKILL)
        except OSError:
            pass  # nothing is left
    child.wait()
    if child.stdout is not None:
        child.stdout.close()
    while in_container:
        try:
            os.wait()
        except ChildProcessError:
            break


ENDED = (0, 1, 5)
"""Exit codes of pytest for a file that was read: all passed, some failed, no test in it."""
OPTIONS = ["-p", "no:cacheprovider", "-p", "no:xdist", "-q", "--no-header", "--capture=fd"]
PLAIN = ["-o", "addopts=", "-o", "required_plugins="]
"""What takes a folder's own options away."""


def pytest_file(writer: Writer, order: Mapping[str, Any]) -> int:
    """Run one file under pytest and report each test; one that ends the session does not hide the others."""
    sys.path.append(order["pytest"])
    import pytest

    plugin = Reporter(writer, set(order["done"]))
    options = [*OPTIONS, "--rootdir", order["root"], *(PLAIN if order["plain"] else []), "--maxfail=0", order["file"]]
    code = int(pytest.main(options, plugins=[plugin]))
    if code not in ENDED and not plugin.collected and not plugin.failed_to_collect:
        plugin.say({"trouble": f"pytest could not run it (exit code {code})"})
        os._exit(code)
    for name in plugin.collected:
        if name not in plugin.answered:
            plugin.say(result(name, "error", "was not run: pytest ended before it"))
    plugin.say({"ended": True})
    return 0


OUTCOMES = ("passed", "failed", "skipped")
"""The outcomes of a report; plugins add others ("rerun"), which are ignored."""


class Reporter:
    """A pytest plugin that skips tests with a result and reports the others, only in its own process."""

    def __init__(self, writer: Writer, done: set[str]) -> None:
        self.writer, self.done, self.failed_to_collect = writer, done, False
        self.process = os.getpid()
        self.collected: list[str] = []
        self.answered: set[str] = set()

    def say(self, document: dict[str, Any]) -> None:
        """Report something, except in a copy of the process that a test forked."""
        if os.getpid() == self.process:
            os.write(self.writer.descriptor, b"\n")  # ends what a test may have written there
            self.writer.send(document)

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if item.nodeid not in self.done]

    def pytest_collection_finish(self, session: Any) -> None:
        self.collected = [item.nodeid for item in session.items]

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.failed_to_collect = True
            self.say(result(report.nodeid or "collection", "error", last_lines(report)))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.say({"begin": nodeid})

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Report the outcome of a test: of its call, or of the set-up or tear-down that failed."""
        if report.outcome in OUTCOMES and (report.when == "call" or report.outcome != "passed"):
            outcome = report.outcome if report.when == "call" or report.skipped else "error"
            self.answered.add(report.nodeid)
            self.say(result(report.nodeid, outcome, last_lines(report), report.duration))


def last_lines(report: Any) -> str:
    """Return the message of a failure: the exception's own line, or the end of pytest's output."""
    crash = getattr(getattr(report, "longrepr", None), "reprcrash", None)
    if crash is not None:
        return str(crash.message)
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[-1])
    text = str(report.longrepr or "").strip()
    errors = [line[2:].strip() for line in text.splitlines() if line.startswith("E ")]
    return "\n".join(errors[-3:]) or "\n".join(text.splitlines()[-3:])


def run_script(path: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Run one script in a process of its own, and kill what it leaves running."""
    command = ["sh", path] if path.endswith(".sh") else [sys.executable, path]
    begun = time.monotonic()
    with tempfile.TemporaryFile() as printed:
        child = started(command, wanted, stdout=printed, stderr=subprocess.STDOUT)
        outcome = message = ""
        while child.poll() is None and not outcome:
            time.sleep(0.05)
            outcome, message = stop_reason(child, begun, wanted["limit_s"])
        end_group(child)
        printed.seek(max(0, printed.seek(0, os.SEEK_END) - (KEPT << 4)))
        text = printed.read().decode("utf-8", "replace")
    if child.returncode and not outcome:
        lines = [line for line in text.splitlines() if line.strip()]
        outcome, message = "failed", how(child.returncode) + ": " + "\n".join(lines[-3:])
    return result(path, outcome or "passed", message, time.monotonic() - begun)


def result(name: str, outcome: str, message: str, seconds: float = 0.0) -> dict[str, Any]:
    return {"name": name, "outcome": outcome, "message": message.strip()[:KEPT], "seconds": seconds}
