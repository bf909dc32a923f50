"""Run a user's tests: pytest files and scripts, one file in one process, every test's outcome as soon as it is known.

A test that kills its process costs that test alone: the file is started again with the tests that have no answer.
A script passes when it exits with 0. pytest comes as files and stands last on the import path, so that the image's
own packages are the ones that are tested.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any, NoReturn

from .upgrade_answer import Channel

HERE = os.path.dirname(os.path.abspath(__file__))
KEPT = 1000


def main(channel: Channel, wanted: Mapping[str, Any]) -> int:
    """Run every file, or, as a child, one file's tests."""
    if "file" in wanted:
        return pytest_file(channel, wanted)
    for path in wanted["tests"]:
        run_tests(channel, path, wanted)
    for path in wanted["scripts"]:
        channel.say(run_script(path, wanted))
    channel.say({"end": True})
    return 0


def run_tests(channel: Channel, path: str, wanted: Mapping[str, Any]) -> None:
    """Run one file's tests, again without those that are done for as long as one more gets an answer."""
    done: list[str] = []
    while True:
        ended, open_test, code = run_once(channel, path, wanted, done)
        if ended:
            return
        name = open_test or path
        if open_test is None or open_test in done:
            channel.say(result(path if open_test is None else name, "error", "the process ended: " + how(code)))
            return
        done.append(open_test)
        channel.say(result(name, "timeout" if code is None else "error", "the process ended: " + how(code)))


def how(code: int | None) -> str:
    """Say in words how a process ended."""
    if code is None:
        return "killed at its time limit"
    return "signal {0}".format(-code) if code < 0 else "exit code {0}".format(code)


def run_once(
    channel: Channel, path: str, wanted: Mapping[str, Any], done: list[str]
) -> tuple[bool, str | None, int | None]:
    """Run one file in a child and pass its answers on; return whether it ended, the open test, the exit code."""
    order = {"file": path, "done": done, "pytest": wanted["pytest"], "root": wanted["root"]}
    command = [sys.executable, HERE, "upgrade_tests", json.dumps(order)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=wanted["root"])
    watch = Watch(child, wanted["limit_s"])
    ended, open_test = False, None
    assert child.stdout is not None  # asked for above
    for line in child.stdout:
        watch.renew()
        document = json.loads(line.decode())
        if "begin" in document:
            open_test = document["begin"]
        elif "ended" in document:
            ended = True
        else:
            done.append(document["name"])
            open_test = None if document["name"] == open_test else open_test
            channel.say(document)
    code = child.wait()
    watch.stop()
    return ended, open_test, None if watch.expired else code


class Watch:
    """Kills a child that has said nothing for so many seconds."""

    def __init__(self, child: subprocess.Popen[bytes], limit: float) -> None:
        import threading

        self.child, self.limit, self.expired = child, limit, False
        self.last = time.monotonic()
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.daemon = True
        self.thread.start()

    def watch(self) -> None:
        """Wait for silence."""
        while not self.stopped.wait(0.2):
            if time.monotonic() - self.last > self.limit:
                self.expired = True
                self.child.kill()
                return

    def renew(self) -> None:
        """Note that the child is alive."""
        self.last = time.monotonic()

    def stop(self) -> None:
        """End the watch."""
        self.stopped.set()
        self.thread.join()


def pytest_file(channel: Channel, order: Mapping[str, Any]) -> NoReturn:
    """Run one file under pytest and say what each test answered."""
    sys.path.append(order["pytest"])
    import pytest

    plugin = Reporter(channel, set(order["done"]))
    options = ["-p", "no:cacheprovider", "-q", "--no-header", "--rootdir", order["root"], order["file"]]
    code = int(pytest.main(options, plugins=[plugin]))
    if code in (2, 3, 4) and not plugin.failed_to_collect:
        channel.say(result(order["file"], "error", "pytest could not run it (exit code {0})".format(code)))
    channel.say({"ended": True})
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


class Reporter:
    """A pytest plugin that leaves out what is done and says what happens."""

    def __init__(self, channel: Channel, done: set[str]) -> None:
        self.channel, self.done, self.failed_to_collect = channel, done, False

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Leave out the tests that have their answer."""
        items[:] = [item for item in items if item.nodeid not in self.done]

    def pytest_collectreport(self, report: Any) -> None:
        """Say that a file cannot even be imported."""
        if report.failed:
            self.failed_to_collect = True
            self.channel.say(result(report.nodeid or "collection", "error", last_lines(report)))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Say which test begins, so that a crash has a name."""
        self.channel.say({"begin": nodeid})

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Say what a test answered: by its call, or by the set-up or tear-down that went wrong."""
        if report.when == "call" or report.outcome != "passed":
            outcome = report.outcome if report.when == "call" or report.skipped else "error"
            self.channel.say(result(report.nodeid, outcome, last_lines(report), report.duration))


def last_lines(report: Any) -> str:
    """Return the message of a failure: the exception's own line, or the end of what pytest would print."""
    crash = getattr(getattr(report, "longrepr", None), "reprcrash", None)
    if crash is not None:
        return str(crash.message)
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[-1])
    text = str(report.longrepr or "").strip()
    errors = [line[2:].strip() for line in text.splitlines() if line.startswith("E ")]
    return "\n".join(errors[-3:]) or "\n".join(text.splitlines()[-3:])


def run_script(path: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Run one script in a process of its own."""
    command = ["sh", path] if path.endswith(".sh") else [sys.executable, path]
    begun = time.monotonic()
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=wanted["root"],
            timeout=wanted["limit_s"],
            check=False,
        )
    except subprocess.TimeoutExpired:
        return result(path, "timeout", "killed at its time limit", time.monotonic() - begun)
    lines = [line for line in done.stdout.decode("utf-8", "replace").splitlines() if line.strip()]
    message = "" if not done.returncode else how(done.returncode) + ": " + "\n".join(lines[-3:])
    return result(path, "failed" if done.returncode else "passed", message, time.monotonic() - begun)


def result(name: str, outcome: str, message: str, seconds: float = 0.0) -> dict[str, Any]:
    """Give a test's answer its shape."""
    return {"name": name, "outcome": outcome, "message": message.strip()[:KEPT], "seconds": seconds}
