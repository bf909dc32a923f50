"""A server that answers as a word says: ``python strange_server.py WORD FILE``; its port is written into the file.

It stands where an index, a registry or an engine should, and is none, or a broken one.
"""

import contextlib
import socket
import socketserver
import ssl
import sys
import time
from pathlib import Path

HEAD = b"HTTP/1.1 %s\r\nConnection: close\r\n"
JSON = b"Content-Type: application/json\r\n"
LOGIN = b"<!DOCTYPE html><html><title>Welcome to our network</title><form action=/login>accept</form></html>"


def whole(status: bytes, body: bytes, *headers: bytes) -> bytes:
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
FURTHER: dict[str, bytes] = {
    "busy until a date": whole(b"429 Too Many Requests", b"", b"Retry-After: Fri, 31 Dec 2099 23:59:59 GMT\r\n"),
    "too many requests": whole(b"429 Too Many Requests", b"", b"Retry-After: -1\r\n"),
    "a proxy's login": whole(b"407 Proxy Authentication Required", b"", b'Proxy-Authenticate: Basic realm="x"\r\n'),
    "nothing here, by IPv6": ANSWERS["nothing here"],
    "an ended certificate": ANSWERS["nothing here"],
    "its own certificate": ANSWERS["nothing here"],
}
"""What is tried where it says something that the others do not."""
CERTIFIED = {"an ended certificate": -1, "its own certificate": 30}
"""Servers that speak TLS, and for how many days more their certificate holds."""
HANGS = ("a reset", "hanging", "a drop a second", "no end")
WORDS = (*ANSWERS, *HANGS)


class Handler(socketserver.BaseRequestHandler):
    word = ""

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            self.request.recv(65536)
            answer = {**ANSWERS, **FURTHER}.get(self.word)
            if answer is not None:
                self.request.sendall(answer)
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
    daemon_threads = True
    allow_reuse_address = True


def secured(plain: socket.socket, days: int, folder: Path) -> ssl.SSLSocket:
    """Put TLS before a server, with a certificate that nobody vouches for and that ends in so many days."""
    from certificates import certificate  # noqa: PLC0415 - these servers alone need its library

    file = certificate(folder, days=days)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, file.with_name("key.pem"))
    return context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)


def main(word: str, file: str) -> None:
    Handler.word = word
    by_ipv6 = word.endswith("IPv6")
    Server.address_family = socket.AF_INET6 if by_ipv6 else socket.AF_INET
    with Server(("::1" if by_ipv6 else "127.0.0.1", 0), Handler) as server:
        if word in CERTIFIED:
            server.socket = secured(server.socket, CERTIFIED[word], Path(file).parent)
        Path(file).write_text(str(server.server_address[1]))
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
