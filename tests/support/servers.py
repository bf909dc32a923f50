"""What servers of tests share: each runs in a thread of its own, and says nothing."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from socketserver import BaseServer


@contextmanager
def running(server: BaseServer) -> Iterator[None]:
    threading.Thread(target=server.serve_forever, args=(0.005,), daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


class QuietHandler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._route()

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 - the base class's names

    def _route(self) -> None:
        """Answer a request, whatever its method is."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
