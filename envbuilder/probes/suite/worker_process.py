"""Run checks in one worker process: results on one pipe, its log on another, killed at the limit of a check."""

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
from typing import Any, NamedTuple

from .channel import Reader
from .log_capture import LogByCheck
from .result import Order

HERE = os.path.dirname(os.path.abspath(__file__))
_POLL_S = 1.0
"""How often the end of the run is checked: another lane may have moved it."""


class End(NamedTuple):
    """How a worker ended: ``done``, ``crash``, ``timeout``, or ``spoiled`` if something else wrote to its results.

    ``name`` is the check that was running, None if there was none; ``log`` what it printed; ``limit_s`` how many
    seconds it had before it was killed; ``is_cut`` whether that was the end of the run and not its own limit.
    """

    kind: str
    name: str | None = None
    exit_code: int | None = None
    log: str = ""
    limit_s: float = 0.0
    is_cut: bool = False


class WorkerProcess:
    """One worker; ``run`` yields ``("begin", name)`` and ``("result", document)`` and sets ``end``.

    ``limit_of`` returns the limit of a check, ``start_s`` is the limit between checks, and ``stop_at`` returns when the
    run has to end, by the monotonic clock. That may change during the run.
    """

    def __init__(
        self,
        order: Mapping[str, Any],
        env: Mapping[str, str],
        limit_of: Callable[[Order], float],
        start_s: float,
        stop_at: Callable[[], float],
    ) -> None:
        token = secrets.token_hex(16)
        self.order = dict(order, token=token)
        self.env = env
        self.limit_of = limit_of
        self.start_s = start_s
        self.stop_at = stop_at
        self.due: list[Order] = list(order["checks"])
        self.log = LogByCheck(token)
        self.reader = Reader(token)
        self.spoiled = ""
        self.current: str | None = None
        self.begun = self.message_at = self.deadline = 0.0
        self.limit_s = 0.0
        self.end = End("crash")

    def run(self) -> Iterator[tuple[str, Any]]:
        """Start the process and yield what it reports until it ends or has to be killed."""
        read_results, write_results = os.pipe()
        read_log, write_log = os.pipe()
        self.order["spawned"] = self.message_at = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-S", HERE, "--worker", str(write_results)],
            stdin=subprocess.PIPE,
            stdout=write_log,
            stderr=write_log,
            pass_fds=(write_results,),
            env=self.env,
            start_new_session=True,
        )
        os.close(write_results)
        os.close(write_log)
        try:
            _give(process, json.dumps(self.order).encode())
            yield from self._follow(read_results, read_log)
            timed_out = self._over() <= time.monotonic()
        finally:
            _kill(process)
            self._drain(read_log)
            os.close(read_results)
            os.close(read_log)
        self._conclude(process.returncode, timed_out=timed_out)

    def _follow(self, read_results: int, read_log: int) -> Iterator[tuple[str, Any]]:
        os.set_blocking(read_log, False)
        os.set_blocking(read_results, False)
        self.deadline = time.monotonic() + self.start_s
        with selectors.DefaultSelector() as selector:
            selector.register(read_results, selectors.EVENT_READ, "results")
            selector.register(read_log, selectors.EVENT_READ, "log")
            while time.monotonic() < self._over():
                for key, _ in selector.select(max(0.0, min(_POLL_S, self._over() - time.monotonic()))):
                    if key.data == "log":
                        self._read_log(read_log)
                        continue
                    data = _read(read_results)
                    if data == b"":
                        return
                    yield from self._parse(data or b"", read_log)
                    if self.spoiled:
                        return

    def _over(self) -> float:
        return min(self.deadline, self.stop_at())

    def _parse(self, data: bytes, read_log: int) -> Iterator[tuple[str, Any]]:
        """Take what was read; anything but this worker's own next message spoils its results."""
        for payload in self.reader.feed(data):
            if self.reader.strange:
                break
            document = json.loads(payload.decode())
            now = time.monotonic()
            if document["event"] == "begin" and not self.current and self._is_next(document["name"]):
                check = self.due.pop(0)
                self.current = check["name"]
                # A busy host reads this late, possibly together with the result: the worker's own time is earlier.
                self.begun = min(now, max(self.message_at, document["at"]))
                self.limit_s = self.limit_of(check)
                self.deadline = now + self.limit_s
                yield "begin", self.current
            elif document["event"] == "result" and self.current and self.current == document["result"]["name"]:
                result = dict(document["result"], duration_s=now - self.begun)
                self._await_log(read_log, self.current)
                result["log"] = self.log.text(self.current)
                result["log_bytes"] = self.log.total(self.current)
                self.current = None
                self.deadline = now + self.start_s
                yield "result", result
            else:
                self.spoiled = "a message out of order"
                return
            self.message_at = now
        if self.reader.strange:
            self.spoiled = "not a message: " + self.reader.strange[0][:200]

    def _is_next(self, name: str) -> bool:
        return bool(self.due) and self.due[0]["name"] == name

    def _await_log(self, read_log: int, name: str) -> None:
        """Read the log up to the marker that the worker wrote before the result."""
        while name not in self.log.ended and self._read_log(read_log):
            pass

    def _read_log(self, read_log: int) -> bool:
        data = _read(read_log)
        self.log.feed(data or b"")
        return bool(data)

    def _drain(self, read_log: int) -> None:
        for _ in range(64):
            if not self._read_log(read_log):
                break
        self.log.close()

    def _conclude(self, code: int | None, *, timed_out: bool) -> None:
        if self.spoiled or self.reader.strange_bytes:
            kind = "spoiled"
        elif not self.due and self.current is None:
            kind = "done"
        else:
            kind = "timeout" if timed_out else "crash"
        log = (self.spoiled + "\n" if kind == "spoiled" else "") + self.log.text(self.current or "")
        limit_s = min(self.limit_s, max(0.0, self.stop_at() - self.begun))
        self.end = End(kind, self.current, code, log, limit_s, timed_out and self.stop_at() < self.deadline)


def _give(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(data)
        process.stdin.close()
    except BrokenPipeError:
        pass


def _read(descriptor: int) -> bytes | None:
    """Return the bytes that are there: empty at the end of the stream, None if nothing is there yet."""
    try:
        return os.read(descriptor, 65536)
    except BlockingIOError:
        return None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the group of the process and wait for it."""
    if process.poll() is None:
        # A worker that closed its results is about to exit: wait for that.
        try:
            process.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()
