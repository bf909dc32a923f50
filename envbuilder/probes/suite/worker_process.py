"""Run checks in one worker process: results on one pipe, its log on another, killed at the limit of a check."""

from __future__ import annotations

import json
import os
import re
import secrets
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from .channel import Reader
from .result import Order
from .watchdog import Clock

HERE = os.path.dirname(os.path.abspath(__file__))
_POLL_S = 1.0
"""How often the end of the run is checked: another lane may have moved it."""

LOG_HEAD = 8 * 1024
LOG_TAIL = 24 * 1024
LONGEST_MARKER = 512


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
    """One worker; ``run`` yields ``("begin", name)`` and ``("result", document)`` and sets ``end``."""

    def __init__(self, order: Mapping[str, Any], env: Mapping[str, str], clock: Clock) -> None:
        token = secrets.token_hex(16)
        self.order, self.env, self.clock = dict(order, token=token), env, clock
        self.due: list[Order] = list(order["checks"])
        self.log, self.reader = LogByCheck(token), Reader(token)
        self.spoiled = ""
        self.current: str | None = None
        self.begun = self.message_at = self.deadline = self.limit_s = 0.0
        self.end = End("crash")

    def run(self) -> Iterator[tuple[str, Any]]:
        """Start the process and yield what it reports until it ends or has to be killed."""
        self.read_results, write_results = os.pipe()
        self.read_log, write_log = os.pipe()
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
            yield from self._follow()
            timed_out = self._over() <= time.monotonic()
        finally:
            _kill(process)
            for _ in range(64):  # what is still in the pipe
                if not self._read_log():
                    break
            self.log.close()
            os.close(self.read_results)
            os.close(self.read_log)
        self._conclude(process.returncode, timed_out=timed_out)

    def _follow(self) -> Iterator[tuple[str, Any]]:
        os.set_blocking(self.read_log, False)
        os.set_blocking(self.read_results, False)
        self.deadline = time.monotonic() + self.clock.limits.start_s
        with selectors.DefaultSelector() as selector:
            selector.register(self.read_results, selectors.EVENT_READ)
            selector.register(self.read_log, selectors.EVENT_READ)
            while time.monotonic() < self._over():
                for key, _ in selector.select(max(0.0, min(_POLL_S, self._over() - time.monotonic()))):
                    if key.fd == self.read_log:
                        self._read_log()
                        continue
                    data = _read(self.read_results)
                    if data == b"":
                        return
                    yield from self._parse(data or b"")
                    if self.spoiled:
                        return

    def _over(self) -> float:
        return min(self.deadline, self.clock.stop_at)

    def _parse(self, data: bytes) -> Iterator[tuple[str, Any]]:
        """Take what was read; anything but this worker's own next message spoils its results."""
        for payload in self.reader.feed(data):
            if self.reader.strange:
                break
            document = json.loads(payload.decode())
            now = time.monotonic()
            following = self.due[0]["name"] if self.due else None
            if document["event"] == "begin" and not self.current and document["name"] == following:
                check = self.due.pop(0)
                self.current = check["name"]
                # A busy host reads this late, possibly together with the result: the worker's own time is earlier.
                self.begun = min(now, max(self.message_at, document["at"]))
                self.limit_s = self.clock.scaled(float(check["limit_s"]))
                self.deadline = now + self.limit_s
                yield "begin", self.current
            elif document["event"] == "result" and self.current and self.current == document["result"]["name"]:
                while self.current not in self.log.ended and self._read_log():
                    pass  # up to the marker that the worker wrote before the result
                log = self.log.parts.get(self.current, BoundedLog())
                yield (
                    "result",
                    dict(document["result"], duration_s=now - self.begun, log=log.text(), log_bytes=log.total),
                )
                self.current = None
                self.deadline = now + self.clock.limits.start_s
            else:
                self.spoiled = "a message out of order"
                return
            self.message_at = now
        if self.reader.strange:
            self.spoiled = "not a message: " + self.reader.strange[0][:200]

    def _read_log(self) -> bool:
        data = _read(self.read_log)
        self.log.feed(data or b"")
        return bool(data)

    def _conclude(self, code: int | None, *, timed_out: bool) -> None:
        log = self.log.parts.get(self.current or "", BoundedLog()).text()
        if self.spoiled or self.reader.strange_bytes:
            kind, log = "spoiled", f"{self.spoiled}\n{log}"
        elif not self.due and self.current is None:
            kind = "done"
        else:
            kind = "timeout" if timed_out else "crash"
        limit_s = min(self.limit_s, max(0.0, self.clock.stop_at - self.begun))
        self.end = End(kind, self.current, code, log, limit_s, timed_out and self.clock.stop_at < self.deadline)


def _give(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.write(data)
        process.stdin.close()


def _read(descriptor: int) -> bytes | None:
    """Return the bytes that are there: empty at the end of the stream, None if nothing is there yet."""
    try:
        return os.read(descriptor, 65536)
    except BlockingIOError:
        return None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the group of the process and wait for it. A worker that closed its results is about to exit."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=0.2)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class BoundedLog:
    """Bytes, of which the first and the last are kept; ``total`` counts all."""

    def __init__(self) -> None:
        self.head = self.tail = b""
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        space = LOG_HEAD - len(self.head)
        self.head += data[:space]
        if len(data) > space:
            self.tail = (self.tail + data[space:][-LOG_TAIL:])[-LOG_TAIL:]

    def text(self) -> str:
        """Return what was kept, with the count of the bytes that are missing in the middle."""
        missing = self.total - len(self.head) - len(self.tail)
        middle = f"\n[... {missing} bytes left out ...]\n".encode() if missing else b""
        return (self.head + middle + self.tail).decode("utf-8", "replace")


class LogByCheck:
    """A worker's log, divided by its markers; ``parts`` has it by check, with '' for what no check printed.

    ``ended`` has the checks whose end marker was read.
    """

    def __init__(self, token: str) -> None:
        self.pattern = re.compile(("\x1e" + re.escape(token) + r":(begin|end):([^\x1e]{1,120})\x1e").encode())
        self.parts: dict[str, BoundedLog] = {}
        self.ended: set[str] = set()
        self.current = ""
        self.incomplete = b""

    def feed(self, data: bytes) -> None:
        data = self.incomplete + data
        start = 0
        for marker in self.pattern.finditer(data):
            self._add(data[start : marker.start()])
            name = marker.group(2).decode()
            self.current = name if marker.group(1) == b"begin" else ""
            self.ended |= set() if self.current else {name}
            start = marker.end()
        rest = data[start:]
        cut = rest.rfind(b"\x1e", max(0, len(rest) - LONGEST_MARKER))
        self.incomplete = rest[cut:] if cut >= 0 else b""
        self._add(rest[:cut] if cut >= 0 else rest)

    def close(self) -> None:
        """Take the bytes that were held back in case that they are the start of a marker."""
        self._add(self.incomplete)
        self.incomplete = b""

    def _add(self, data: bytes) -> None:
        if data:
            self.parts.setdefault(self.current, BoundedLog()).add(data)
