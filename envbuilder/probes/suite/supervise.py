"""Run a group of checks in one process: answers on a pipe, log on another, killed at the limit of the check at hand."""

from __future__ import annotations

import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .activity import Activity
from .answer import Facts, Order
from .capped import Split
from .channel import Reader

START_LIMIT_S = 45.0
"""Until a process of ours begins its first check, and from one check to the next: no framework's code runs then."""
_LOOK_S = 1.0
"""How often it is asked whether all have to be done sooner, and what a check that reads much does."""
_LOOK_AFTER_S = 5.0
"""From when on what a check does is looked at: nearly all are done by then, and cost no look."""
HERE = os.path.dirname(os.path.abspath(__file__))


class End:
    """How a group ended: ``done``, ``crash``, ``timeout``, or ``spoiled`` where its answers were not its own.

    ``name`` is the check that was at work, None where none was; ``log`` what it printed last; ``limit_s`` how long it
    was given, where it was killed for that; ``is_cut`` where that was the end of all, before a limit of its own.
    """

    limit_s = 0.0
    is_cut = False

    def __init__(self, kind: str, name: str | None, signal_number: int, exit_code: int | None, log: str) -> None:
        self.kind = kind
        self.name = name
        self.signal = signal_number
        self.exit_code = exit_code
        self.log = log


def _kept_waiting() -> float:
    """Return how many seconds this thread was ready to run and had no processor, so far; 0 where no kernel tells."""
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as stream:
            return int(stream.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _own_limit(check: Order) -> float:
    return float(check["limit_s"])


def _for_ever(*_: object) -> float:
    return float("inf")


class Group:
    """One worker process; ``run`` yields ``("begin", name)`` and ``("result", document)`` and sets ``end``.

    ``limit_of`` says how long a check may take, and ``beside_reading`` how long it may compute, or wait, while it reads
    no file; both are asked when the check begins. ``until`` says when all of them have to be done, by the monotonic
    clock; that may change while they run.
    """

    def __init__(
        self,
        name: str,
        checks: list[Order],
        facts: Facts,
        outcomes: Mapping[str, str],
        env: Mapping[str, str],
        python: str | None = None,
        limit_of: Callable[[Order], float] = _own_limit,
        until: Callable[[], float] = _for_ever,
        beside_reading: Callable[[Order], float] = _for_ever,
    ) -> None:
        self.checks = {check["name"]: check for check in checks}
        self.limit_of = limit_of
        self.beside_reading = beside_reading
        self.until = until
        self.limit_s = 0.0
        self.beside_s = float("inf")
        self.activity: Activity | None = None
        self.log = Split("")
        self.end = End("crash", None, 0, None, "")
        self.order: dict[str, Any] = {"group": name, "checks": checks, "facts": facts, "outcomes": outcomes}
        self.env = env
        self.python = python or sys.executable
        self.due = [check["name"] for check in checks]
        self.reader = Reader("")
        self.spoiled = ""
        self.current: str | None = None
        self.begun = 0.0
        self.read_at, self.kept_s = 0.0, 0.0
        self.deadline = 0.0

    def run(self) -> Iterator[tuple[str, Any]]:
        """Start the process and yield what it reports until it ends or has to be ended."""
        token, key = secrets.token_hex(16), secrets.token_hex(32)
        self.log = Split(token)
        self.reader = Reader(key)
        self.order.update(token=token, key=key)
        read_answers, write_answers = os.pipe()
        read_log, write_log = os.pipe()
        self.order["spawned"] = self.read_at = time.monotonic()
        self.kept_s = _kept_waiting()
        process = subprocess.Popen(
            [self.python, "-S", HERE, "--worker", str(write_answers)],
            stdin=subprocess.PIPE,
            stdout=write_log,
            stderr=write_log,
            pass_fds=(write_answers,),
            env=self.env,
            start_new_session=True,
        )
        os.close(write_answers)
        os.close(write_log)
        try:
            _give(process, json.dumps(self.order).encode())
            yield from self._watch(process.pid, read_answers, read_log)
            timed_out = self._over() <= time.monotonic()
        finally:
            _kill(process)
            self._drain(read_log)
            os.close(read_answers)
            os.close(read_log)
        self._conclude(process.returncode, timed_out=timed_out)

    def _watch(self, session: int, read_answers: int, read_log: int) -> Iterator[tuple[str, Any]]:
        os.set_blocking(read_log, False)
        os.set_blocking(read_answers, False)
        self.deadline = time.monotonic() + START_LIMIT_S
        with selectors.DefaultSelector() as selector:
            selector.register(read_answers, selectors.EVENT_READ, "answers")
            selector.register(read_log, selectors.EVENT_READ, "log")
            while time.monotonic() < self._over():
                # Another lane may bring the end of all forward meanwhile: nobody tells this one.
                ready = selector.select(max(0.0, min(_LOOK_S, self._over() - time.monotonic())))
                for key, _ in ready:
                    if key.data == "log":
                        self._read_log(read_log)
                        continue
                    at, kept_s = time.monotonic(), _kept_waiting()
                    came_at = max(self.read_at, at - (kept_s - self.kept_s))
                    self.read_at, self.kept_s = at, kept_s
                    data = _read(read_answers)
                    if data == b"":
                        return
                    yield from self._parse(data or b"", read_log, came_at)
                    if self.spoiled:
                        return
                self._look(session)

    def _look(self, session: int) -> None:
        """End the check at hand where it computes, or waits, longer than it may, and reads nothing meanwhile."""
        now = time.monotonic()
        if self.current is None or self.beside_s == float("inf") or now < self.begun + _LOOK_AFTER_S:
            return
        if self.activity is None:
            self.activity = Activity(session)
            return
        self.activity.look()
        if max(self.activity.computed_s, self.activity.waited_s) + _LOOK_AFTER_S >= self.beside_s:
            self.limit_s = min(self.limit_s, now - self.begun)
            self.deadline = min(self.deadline, now)

    def _over(self) -> float:
        """Say when this process is to be killed, by the monotonic clock: at its own limit, or with all others."""
        return min(self.deadline, self.until())

    def _parse(self, data: bytes, read_log: int, came_at: float) -> Iterator[tuple[str, Any]]:
        """Take what came; anything but this group's own next message spoils it.

        ``came_at`` is when it came at the earliest. On a busy host it is read late, and a check whose beginning is read
        when its result is there too would seem to have taken no time: as if it had done no work.
        """
        for payload in self.reader.feed(data):
            if self.reader.wrong or self.reader.strange:
                break  # what comes behind a line of somebody else counts no more than that line
            document = json.loads(payload.decode())
            if document["event"] == "begin" and self.current is None and self.due[:1] == [document["name"]]:
                self.current = self.due.pop(0)
                self.begun = came_at
                self.limit_s = self.limit_of(self.checks[self.current])
                self.deadline = time.monotonic() + self.limit_s
                self.beside_s, self.activity = self.beside_reading(self.checks[self.current]), None
                yield "begin", self.current
            elif document["event"] == "result" and self.current == document["result"]["name"] is not None:
                result = document["result"]
                result["duration_s"] = time.monotonic() - self.begun
                self._await_log(read_log, result["name"])
                result["log"] = self.log.text(result["name"])
                result["log_bytes"] = self.log.total(result["name"])
                self.current = None
                self.deadline = time.monotonic() + START_LIMIT_S
                yield "result", result
            else:
                self.spoiled = "a message out of turn"
                return
        if self.reader.wrong or self.reader.strange:
            self.spoiled = "; ".join(self.reader.wrong) or "not a message: " + self.reader.strange[0][:200]

    def _await_log(self, read_log: int, name: str) -> None:
        """Read the log up to the marker that the worker wrote before it answered."""
        while name not in self.log.ended:
            if not self._read_log(read_log):
                return

    def _read_log(self, read_log: int) -> bool:
        data = _read(read_log)
        if data:
            self.log.feed(data)
        return bool(data)

    def _drain(self, read_log: int) -> None:
        for _ in range(64):
            if not self._read_log(read_log):
                break
        self.log.close()

    def _conclude(self, code: int | None, *, timed_out: bool) -> None:
        number = -code if code is not None and code < 0 else 0
        if self.spoiled or self.reader.strange_bytes:
            kind = "spoiled"
        elif timed_out:
            kind = "timeout"
        elif self.current is not None or code != 0:
            kind = "crash"
        else:
            kind = "done"
        name = self.current
        log = self.log.text(name or "")
        self.end = End(kind, name, number, code, (self.spoiled + "\n" + log) if kind == "spoiled" else log)
        self.end.is_cut = timed_out and self.until() < self.deadline
        self.end.limit_s = min(self.limit_s, max(0.0, self.until() - self.begun))


def _give(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin is not None  # asked for where it is started
    try:
        process.stdin.write(data)
        process.stdin.close()
    except BrokenPipeError:
        pass


def _read(descriptor: int) -> bytes | None:
    """Read what is there: bytes, empty at the end, None where nothing waits."""
    try:
        return os.read(descriptor, 65536)
    except BlockingIOError:
        return None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the process's whole group (harmless where it has ended) and reap it."""
    if process.poll() is None:
        # A worker that has closed its answers is on its way out; give it the moment that its exit takes.
        try:
            process.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()
