"""A Docker engine on a Unix socket that answers as a test says: strange documents, silence, streams without end."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any

from servers import QuietHandler, running

Answer = Callable[["Handler"], None]

GOOD: dict[str, Any] = {
    "/version": {"ApiVersion": "1.41", "Version": "20.10.24", "MinAPIVersion": "1.12"},
    "/info": {"ServerVersion": "20.10.24", "Driver": "overlay2", "DockerRootDir": "/var/lib/docker"},
}


class Server(ThreadingMixIn, UnixStreamServer):
    """A server that knows its answers; ``frozen`` makes it take connections and answer none."""

    daemon_threads = True
    answers: dict[str, Any]
    frozen = threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that leave early are what is tested."""


class Handler(QuietHandler):
    """Answers by the path without its version: a value as JSON, bytes as they are, a function by calling it."""

    protocol_version = "HTTP/1.1"
    server: Server

    def _route(self) -> None:
        while self.server.frozen.is_set():
            time.sleep(0.05)
        path = "/" + self.path.partition("?")[0].lstrip("/").removeprefix("v1.41/")
        length = int(self.headers.get("Content-Length") or 0)
        with suppress(OSError):
            self.rfile.read(length)
        if self.headers.get("Transfer-Encoding") == "chunked":
            self._read_chunks()
        answer = next((value for start, value in self.server.answers.items() if path.startswith(start)), None)
        if callable(answer):
            answer(self)
        elif path == "/_ping":
            self.send(b"OK")
        elif answer is None:
            self.send(json.dumps({"message": f"no {path}"}).encode(), 404)
        else:
            self.send(answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    def send(self, content: bytes, status: int = 200) -> None:
        self._answer(status, content, {"Content-Type": "application/json"})

    def begin(self) -> None:
        """Begin an answer that ends with the connection."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True

    def address_string(self) -> str:
        """Name no client: a Unix socket has none."""
        return ""

    def _read_chunks(self) -> None:
        while size := int(self.rfile.readline().strip() or b"0", 16):
            self.rfile.read(size + 2)
        self.rfile.readline()


def forever(piece: bytes) -> Answer:
    """Answer with a piece again and again, until the client leaves."""

    def answer(handler: Handler) -> None:
        handler.begin()
        with suppress(OSError):
            while True:
                handler.wfile.write(piece)

    return answer


def silence(first: bytes = b"") -> Answer:
    """Begin an answer and then say nothing more, the connection open."""

    def answer(handler: Handler) -> None:
        handler.begin()
        handler.wfile.write(first)
        handler.wfile.flush()
        handler.connection.settimeout(60)
        with suppress(OSError):
            handler.connection.recv(1)

    return answer


@contextmanager
def answering(folder: Path, **answers: Any) -> Iterator[Server]:
    """Serve an engine on ``<folder>/e.sock``; each answer is given for paths that start with its key."""
    path = folder / "e.sock"
    server = Server(str(path), Handler)
    server.frozen = threading.Event()
    server.answers = {**{f"/{key.replace('__', '/')}": value for key, value in answers.items()}, **GOOD}
    for key, value in answers.items():
        server.answers[f"/{key.replace('__', '/')}"] = value
    with running(server):
        try:
            yield server
        finally:
            server.frozen.clear()
