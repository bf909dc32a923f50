"""A server that answers as a word says: ``python strange_server.py WORD FILE``; its port is written into the file.

It stands where an index, a registry or an engine should, and is none, or a broken one.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import sys
import time
from pathlib import Path

HEAD = b"HTTP/1.1 %s\r\nConnection: close\r\n"
JSON = b"Content-Type: application/json\r\n"
LOGIN = b"<!DOCTYPE html><html><title>Welcome to our network</title><form action=/login>accept</form></html>"


def whole(status: bytes, body: bytes, *headers: bytes) -> bytes:
    """Write an answer with its length."""
    return HEAD % status + b"".join(headers) + b"Content-Length: %d\r\n\r\n" % len(body) + body


ANSWERS: dict[str, bytes] = {
    "nothing here": whole(b"404 Not Found", b"no"),
    "an internal error": whole(b"500 Internal Server Error", b"boom \x1b[2J"),
    "busy for ever": whole(b"503 Service Unavailable", b"", b"Retry-After: 86400\r\n"),
    "a login": whole(b"401 Unauthorized", b"", b'WWW-Authenticate: Bearer realm="http://127.0.0.1:1/token"\r\n'),
    "a refusal": whole(b"403 Forbidden", b"no"),
    "a portal": whole(b"200 OK", LOGIN, b"Content-Type: text/html\r\n"),
    "a circle": whole(b"302 Found", b"", b"Location: /again\r\n"),
    "another scheme": whole(b"302 Found", b"", b"Location: file:///etc/passwd\r\n"),
    "bytes": whole(b"200 OK", b"\xff\xfe\x00" * 5000),
    "null": whole(b"200 OK", b"null", JSON),
    "a list": whole(b"200 OK", b"[1, 2]", JSON),
    "nesting": whole(b"200 OK", b'{"a":' * 60_000, JSON),
    "not UTF-8": whole(b"200 OK", b'{"name": "\xff", "manifests": [], "tags": ["\xff"], "files": []}', JSON),
    "an empty page": whole(b"200 OK", b"", JSON),
    "a part": HEAD % b"200 OK" + JSON + b'Content-Length: 100000\r\n\r\n{"a": 1',
    "broken chunks": HEAD % b"200 OK" + JSON + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}",
    "packed wrong": whole(b"200 OK", b"no gzip", JSON, b"Content-Encoding: gzip\r\n"),
    "a header without end": HEAD % b"200 OK" + b"X: " + b"a" * 200_000,
    "no HTTP": b"220 mail.example ESMTP\r\n",
    "silence at once": b"",
}
HANGS = ("a reset", "hanging", "a drop a second", "no end")
WORDS = (*ANSWERS, *HANGS)


class Handler(socketserver.BaseRequestHandler):
    """Answers every request of a connection in the same way."""

    word = ""

    def handle(self) -> None:
        """Read a request's head, and answer."""
        with contextlib.suppress(OSError):
            self.request.recv(65536)
            if self.word in ANSWERS:
                self.request.sendall(ANSWERS[self.word])
            else:
                self._hang()

    def _hang(self) -> None:
        if self.word == "a reset":
            self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            return
        if self.word == "hanging":
            time.sleep(600)
        self.request.sendall(HEAD % b"200 OK" + JSON + b"\r\n")
        while True:
            self.request.sendall(b" " if self.word == "a drop a second" else b" " * 65536)
            time.sleep(1.0 if self.word == "a drop a second" else 0.01)


class Server(socketserver.ThreadingTCPServer):
    """Many at once, none of which keeps it from ending."""

    daemon_threads = True
    allow_reuse_address = True


def main(word: str, file: str) -> None:
    """Serve until killed."""
    Handler.word = word
    with Server(("127.0.0.1", 0), Handler) as server:
        Path(file).write_text(str(server.server_address[1]))
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
