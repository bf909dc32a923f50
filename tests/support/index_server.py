"""A package index on loopback for tests: the real client speaks to it over HTTP, with ranges and failures."""

from __future__ import annotations

import hashlib
import json
import re
import ssl
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from io import BytesIO
from pathlib import Path

from servers import QuietHandler, running


def wheel(name: str, version: str, members: dict[str, bytes], metadata: str = "") -> bytes:
    content = BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in members.items():
            archive.writestr(path, data)
        head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}"
        archive.writestr(f"{name}-{version}.dist-info/METADATA", head)
    return content.getvalue()


@dataclass
class Site:
    """What the index holds and how it behaves; ``asked`` records every request's path and Range header.

    ``secret`` is the Authorization header without which nothing is answered ('' for none); ``signed`` records those
    that were sent. ``stated`` is the size that pages state of every file, in bytes (0 for the true one). ``send_on`` is
    the address below which everything is to be asked instead ('' for none). ``beside`` are METADATA files that are
    served in place of a wheel's own, with the digest that a JSON page states of them ('' for none). ``happens`` is
    called before each answer. ``yanked`` are files that pages say are not to be chosen any more.
    """

    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    json: bool = False
    ranges: bool = True
    fail_first: int = 0
    break_after: int = 0
    asked: list[tuple[str, str]] = field(default_factory=list)
    url: str = ""
    secret: str = ""
    signed: list[str] = field(default_factory=list)
    send_on: str = ""
    stated: int = 0
    beside: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    happens: Callable[[Site], None] = field(default=lambda _: None)
    yanked: set[str] = field(default_factory=set)

    def add(self, project: str, filename: str, content: bytes) -> None:
        self.files.setdefault(project, {})[filename] = content


class _Server(ThreadingHTTPServer):
    """A server that knows its site."""

    site: Site


class _Handler(QuietHandler):
    """Answers the simple API below /simple/ and files below /files/."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def _route(self) -> None:
        site = self.server.site
        site.asked.append((self.path, self.headers.get("Range", "")))
        site.happens(site)
        site.signed += [sent] if (sent := self.headers.get("Authorization", "")) else []
        if site.secret and sent != site.secret:
            self._say(401, b"", "text/plain")
        elif site.send_on:
            self._answer(302, headers={"Location": site.send_on + self.path})
        elif site.fail_first > 0:
            site.fail_first -= 1
            self._say(503, b"busy", "text/plain")
        elif self.path.startswith("/simple/"):
            self._page(site, self.path.split("/")[2])
        else:
            self._file(site, self.path.removeprefix("/files/"))

    def _page(self, site: Site, project: str) -> None:
        held = site.files.get(project)
        if held is None:
            self._say(404, b"", "text/plain")
        elif site.json:
            self._say(200, _json(held, site), "application/vnd.pypi.simple.v1+json")
        else:
            self._say(200, _html(held), "text/html; charset=utf-8")

    def _file(self, site: Site, name: str) -> None:
        whole = {file: content for held in site.files.values() for file, content in held.items()}
        beside = name.removesuffix(".metadata")
        if beside != name and beside in site.beside:
            self._say(200, site.beside[beside][0], "text/plain")
        elif name not in whole:
            self._say(404, b"", "text/plain")
        elif site.ranges and (found := re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))):
            self._say(206, whole[name][int(found[1]) : int(found[2]) + 1], "application/zip", site.break_after)
        else:
            self._say(200, whole[name], "application/zip")

    def _say(self, status: int, content: bytes, kind: str, break_after: int = 0) -> None:
        headers = {"Content-Type": kind, "Content-Length": str(len(content))}
        self._answer(status, content[: break_after or None], headers)
        self.close_connection = bool(break_after)


@contextmanager
def serving(site: Site, address: tuple[str, int] = ("127.0.0.1", 0), certificate: Path | None = None) -> Iterator[Site]:
    """Serve a site while this lasts, on a free port where none is named; by TLS where it has a certificate."""
    server = _Server(address, _Handler)
    server.site = site
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, certificate.with_name("key.pem"))
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    site.url = f"http{'s' * bool(certificate)}://{address[0]}:{server.server_port}/simple"
    with running(server):
        yield site


def _html(held: dict[str, bytes]) -> bytes:
    links = (
        f'<a href="/files/{name}#sha256={hashlib.sha256(content).hexdigest()}" '
        f'data-requires-python="&gt;=3.9">{name}</a>'
        for name, content in held.items()
    )
    return ("<!DOCTYPE html><html><body>" + "<br>".join(links) + "</body></html>").encode()


def _beside(site: Site, name: str) -> bool | dict[str, str]:
    digest = site.beside[name][1] if name in site.beside else ""
    return {"sha256": digest} if digest else name in site.beside


def _json(held: dict[str, bytes], site: Site) -> bytes:
    files = [
        {
            "filename": name,
            "url": f"../../files/{name}",
            "hashes": {"sha256": hashlib.sha256(content).hexdigest()},
            "size": site.stated or len(content),
            "upload-time": "2025-08-13T16:53:42Z",
            "requires-python": ">=3.9",
            "core-metadata": _beside(site, name),
            "yanked": name in site.yanked,
        }
        for name, content in held.items()
    ]
    return json.dumps({"meta": {"api-version": "1.1"}, "name": "x", "files": files}).encode()
