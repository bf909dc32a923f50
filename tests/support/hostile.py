"""A front before a registry that answers what it likes: whatever a registry, or somebody in between, could do."""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from registries import Server
from servers import QuietHandler, running

Action = Callable[["Front"], None]


@dataclass
class Rules:
    """Pattern of ``METHOD path`` → what is done instead of asking the registry; the first that fits counts."""

    upstream: str
    actions: list[tuple[str, Action]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def on(self, pattern: str, action: Action) -> Rules:
        self.actions.append((pattern, action))
        return self


class Front(QuietHandler):
    """One request: an action answers it by `say`, or by the socket itself."""

    rules: Rules
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _route(self) -> None:
        line = f"{self.command} {self.path}"
        self.rules.asked.append(line)
        action = next((action for pattern, action in self.rules.actions if re.search(pattern, line)), None)
        with suppress(OSError):  # the client has had enough
            (action or Front.forward)(self)

    def forward(self) -> None:
        status, headers, body = self.upstream()
        self.say(status, body, **headers)

    def upstream(self) -> tuple[int, dict[str, str], bytes]:
        body = self.body()
        connection = http.client.HTTPConnection(self.rules.upstream, timeout=30)
        sent = {name: value for name, value in self.headers.items() if name not in ("Host", "Content-Length")}
        connection.request(self.command, self.path, body or None, sent)
        answer = connection.getresponse()
        content = answer.read()
        dropped = ("Connection", "Transfer-Encoding", *(() if self.command == "HEAD" else ("Content-Length",)))
        headers = {name: value for name, value in answer.getheaders() if name not in dropped}
        connection.close()
        return answer.status, headers, content

    def body(self) -> bytes:
        """Read what was sent, once; what is left unread would be taken for the next request."""
        length = int(self.headers.get("Content-Length") or 0)
        if length:
            self.headers.replace_header("Content-Length", "0")
        return self.rfile.read(length)

    def say(self, status: int, body: bytes = b"", /, **headers: str) -> None:
        """Answer; ``_`` in a header's name stands for ``-``."""
        self.body()
        self._answer(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


@contextmanager
def hostile(upstream: str) -> Iterator[tuple[str, Rules]]:
    """Run a front before a registry; yields its address and its rules."""
    rules = Rules(upstream)
    server = Server(("127.0.0.1", 0), type("Handler", (Front,), {"rules": rules}))
    server.block_on_close = False
    with running(server):
        try:
            yield f"127.0.0.1:{server.server_port}", rules
        finally:
            rules.over.set()
