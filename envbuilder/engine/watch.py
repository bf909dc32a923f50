"""Watch a stream of the engine from beside it: an engine that hangs, and a stream without end, are cut off."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import requests
from docker import APIClient
from requests.exceptions import RequestException

from envbuilder.errors import InfrastructureError

PING_EVERY_S = 10.0
PING_WAITS_S = 10.0
PINGS_MISSED = 3
"""An engine that misses this many in a row hangs: it is given up after about a minute, however long a stream may be."""

_HINT = "look at the engine's log (journalctl -u docker), restart it, and run the same command again"


class Watch:
    """Pings the engine while a stream is read; ``why`` says for what reason the stream was cut, '' where it was not."""

    def __init__(self, api: APIClient, cut: Callable[[], None], limit_s: float) -> None:
        self.why = ""
        self._api, self._cut, self._limit_s = api, cut, limit_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the watch."""
        self._over.set()

    def _watch(self) -> None:
        ends, missed = time.monotonic() + self._limit_s, 0
        while not self._over.wait(min(PING_EVERY_S, max(0.0, ends - time.monotonic()))):
            if time.monotonic() >= ends:
                self._end(f"it went on for longer than {self._limit_s:.0f} s")
                return
            missed = 0 if self._answers() else missed + 1
            if missed >= PINGS_MISSED:
                self._end(f"the engine has not answered for {missed * (PING_EVERY_S + PING_WAITS_S):.0f} s")
                return

    def _answers(self) -> bool:
        try:
            return self._api.get(f"{self._api.base_url}/_ping", timeout=PING_WAITS_S).status_code < 500  # noqa: PLR2004
        except RequestException:
            return False

    def _end(self, why: str) -> None:
        if not self._over.is_set():
            self.why = why
            self._cut()


@contextmanager
def watched(api: APIClient, what: str, response: requests.Response, limit_s: float) -> Iterator[Watch]:
    """Watch while a streaming answer is read, for ``limit_s`` seconds at most.

    Raises InfrastructureError where it was cut, even if it seemed to end well.
    """
    watch = Watch(api, lambda: cut(response), limit_s)
    try:
        yield watch
    except InfrastructureError as error:
        if not watch.why:
            raise
        raise InfrastructureError(f"could not {what}: {watch.why}", hint=_HINT) from error
    finally:
        watch.stop()
    if watch.why:
        raise InfrastructureError(f"could not {what}: {watch.why}", hint=_HINT)


def cut(response: requests.Response) -> None:
    """Shut the connection of a streaming answer down, so that who waits for more of it goes on."""
    with suppress(OSError, AttributeError):
        # Neither requests nor urllib3 has a public way to the socket.
        answer: Any = response.raw
        fp = answer._fp.fp  # noqa: SLF001
        raw = getattr(fp, "raw", fp)
        found = getattr(raw, "_sock", None) or raw.sock
        found.shutdown(socket.SHUT_RDWR)
