"""Registries for tests: Debian's docker-registry as it is, and a small one with what that lacks.

docker-registry 2.8.2 has neither the referrers API nor, without a token service, bearer tokens. `modern_registry`
has both, as the distribution specification 1.1 has them; `test_publish_registry` compares the two.
"""

import base64
import hashlib
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from servers import QuietHandler, running
from waiting import wait_for

OCI_INDEX = "application/vnd.oci.image.index.v1+json"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def docker_registry(
    folder: Path, *, extra: str = "", memory: bool = False, address: str = "127.0.0.1", port: int = 0
) -> Iterator[str]:
    """Run docker-registry on an address, its data in a folder, or in ``memory``; yields ``<address>:<port>``.

    With a ``port`` it is that one: a registry that comes back is where it was.
    """
    program = shutil.which("docker-registry")
    assert program, "docker-registry is not installed: scripts/setup installs it"
    sweep()
    port = port or free_port()
    config = folder / "registry.yml"
    config.parent.mkdir(parents=True, exist_ok=True)
    store = "inmemory: {}" if memory else f"filesystem: {{rootdirectory: {folder / 'data'}}}"
    config.write_text(
        f"version: 0.1\nlog: {{level: error}}\n"
        f"storage: {{{store}, delete: {{enabled: true}}}}\n"
        f"http:\n  addr: {address}:{port}\n{extra}"
    )
    with (folder / "registry.log").open("wb") as log:
        process = subprocess.Popen([program, "serve", str(config)], stdout=log, stderr=log)
    try:
        wait_for(lambda: process.poll() is not None or answers(port, address), 20)
        assert process.poll() is None, "docker-registry ended at once"
        yield f"{address}:{port}"
    finally:
        process.terminate()
        process.wait(10)


def sweep() -> None:
    """Take names out of the engine that belong to registries of killed tests: nobody answers at their port."""
    if not shutil.which("docker"):
        return
    form = "{{.Repository}} {{.Tag}} {{.Digest}}"
    words = ["docker", "image", "ls", "--digests", "--filter", "reference=127.0.0.1:*/team/*", "--format", form]
    left = []
    for line in subprocess.run(words, capture_output=True, check=False, text=True).stdout.splitlines():
        name, tag, digest = line.split()
        if not answers(int(name.partition("/")[0].rpartition(":")[2])):
            left += [f"{name}:{tag}"] * (tag != "<none>") + [f"{name}@{digest}"] * (digest != "<none>")
    if left:
        subprocess.run(["docker", "image", "rm", *left], capture_output=True, check=False)


def answers(port: int, address: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0


def _nothing(_: str, __: str) -> bool:
    return False


@dataclass
class State:
    """What the modern registry holds, and how often its token service was asked.

    ``forgets`` says of a method and a path whether the registry says yes and keeps nothing. A ``strict`` one takes no
    manifest whose blobs it has not, as docker-registry does.
    """

    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    user: str = ""
    tokens: set[str] = field(default_factory=set)
    page: int = 1_000
    missing: bool = False
    asked: list[dict[str, list[str]]] = field(default_factory=list)
    forgets: Callable[[str, str], bool] = _nothing
    strict: bool = False

    def collect(self) -> None:
        """Remove what no tag leads to: manifests, what is said about those, and the blobs of both."""
        kept = set(self.tags.values())
        kept |= {name for name, (_, content) in self.manifests.items() if _subject(content) in kept}
        self.manifests = {name: one for name, one in self.manifests.items() if name in kept}
        needed = {blob for _, content in self.manifests.values() for blob in _blobs(content)}
        self.blobs = {name: content for name, content in self.blobs.items() if name in needed}


def _subject(manifest: bytes) -> str:
    return str((json.loads(manifest).get("subject") or {}).get("digest", ""))


def _blobs(manifest: bytes) -> list[str]:
    """Name the blobs that a manifest is made of; an index has none."""
    document = json.loads(manifest)
    parts = [document.get("config"), *(document.get("layers") or ())]
    return [part["digest"] for part in parts if part]


@contextmanager
def modern_registry(*, user: str = "") -> Iterator[tuple[str, State]]:
    """Run a registry with the referrers API; with ``user`` (``name:password``) it wants a bearer token."""
    state = State(user=user)
    server = Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"state": state}))
    with running(server):
        yield f"127.0.0.1:{server.server_port}", state


class Server(ThreadingHTTPServer):
    """A server that says nothing of clients who hang up: that is what they are here for."""

    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *args: Any) -> None:
        """Raise what is no client's doing."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(*args)


class _Handler(QuietHandler):
    state: State
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body leave together: apart, the second waits 40 ms for an acknowledgement

    def _route(self) -> None:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if url.path == "/token":
            self._token(parse_qs(url.query))
            return
        if not self._allowed():
            self._answer(401, headers={"WWW-Authenticate": self._challenge()})
            return
        table = (
            ("GET", r"/v2/$", self._ping),
            ("PUT", r"/v2/.+/manifests/(.+)", self._put_manifest),
            ("DELETE", r"/v2/.+/manifests/(.+)", self._delete_manifest),
            ("(GET|HEAD)", r"/v2/.+/manifests/(.+)", self._get_manifest),
            ("(GET|HEAD)", r"/v2/.+/blobs/(sha256:.+)", self._get_blob),
            ("POST", r"/v2/(.+)/blobs/uploads/", self._begin),
            ("PUT", r"/v2/.+/blobs/uploads/(.+)", self._put_blob),
            ("GET", r"/v2/.+/referrers/(.+)", self._referrers),
            ("GET", r"/v2/.+/tags/list", self._tags),
        )
        for method, pattern, action in table:
            found = re.match(pattern, url.path)
            if found and re.fullmatch(method, self.command):
                action(found[1] if found.groups() else "", body, parse_qs(url.query))
                return
        self._error(404, "UNSUPPORTED")

    def _allowed(self) -> bool:
        header = self.headers.get("Authorization", "")
        return not self.state.user or header.removeprefix("Bearer ") in self.state.tokens

    def _challenge(self) -> str:
        host = self.headers["Host"]
        return f'Bearer realm="http://{host}/token",service="{host}",scope="repository:team/image:pull,push"'

    def _token(self, query: dict[str, list[str]]) -> None:
        self.state.asked.append(query)
        login = base64.b64decode(self.headers.get("Authorization", "").removeprefix("Basic ")).decode()
        if login != self.state.user:
            self._answer(401)
            return
        token = uuid.uuid4().hex
        self.state.tokens.add(token)
        self._answer(200, json.dumps({"token": token}).encode())

    def _ping(self, _: str, __: bytes, ___: dict[str, list[str]]) -> None:
        self._answer(200, b"{}")

    def _put_manifest(self, target: str, body: bytes, _: dict[str, list[str]]) -> None:
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        try:
            subject = json.loads(body).get("subject")
        except (ValueError, AttributeError):
            self._error(400, "MANIFEST_INVALID")
            return
        if target.startswith("sha256:") and target != digest:
            self._error(400, "DIGEST_INVALID")
            return
        if self.state.strict and not self.state.blobs.keys() >= set(_blobs(body)):
            self._error(400, "MANIFEST_BLOB_UNKNOWN")
            return
        if not self.state.forgets(self.command, self.path):
            self.state.manifests[digest] = (self.headers["Content-Type"], body)
            if not target.startswith("sha256:"):
                self.state.tags[target] = digest
        headers = {"Docker-Content-Digest": digest, "Location": self.path}
        if subject:
            headers["OCI-Subject"] = subject["digest"]
        self._answer(201, headers=headers)

    def _delete_manifest(self, target: str, _: bytes, __: dict[str, list[str]]) -> None:
        known = target in self.state.tags or target in self.state.manifests
        self.state.tags.pop(target, None)
        self.state.manifests.pop(target, None)
        if known:
            self._answer(202)
        else:
            self._error(404, "MANIFEST_UNKNOWN")

    def _get_manifest(self, target: str, _: bytes, __: dict[str, list[str]]) -> None:
        digest = self.state.tags.get(target, target)
        if digest not in self.state.manifests:
            self._error(404, "MANIFEST_UNKNOWN")
            return
        kind, content = self.state.manifests[digest]
        self._answer(200, content, {"Content-Type": kind, "Docker-Content-Digest": digest})

    def _get_blob(self, digest: str, _: bytes, __: dict[str, list[str]]) -> None:
        if digest in self.state.blobs:
            self._answer(200, self.state.blobs[digest])
        else:
            self._error(404, "BLOB_UNKNOWN")

    def _begin(self, repository: str, _: bytes, __: dict[str, list[str]]) -> None:
        self._answer(202, headers={"Location": f"/v2/{repository}/blobs/uploads/{uuid.uuid4()}?state=1#part"})

    def _put_blob(self, _: str, body: bytes, query: dict[str, list[str]]) -> None:
        digest = query["digest"][0]
        if digest != f"sha256:{hashlib.sha256(body).hexdigest()}":
            self._error(400, "DIGEST_INVALID")
            return
        if not self.state.forgets(self.command, self.path):
            self.state.blobs[digest] = body
        self._answer(201, headers={"Location": f"/v2/team/image/blobs/{digest}"})

    def _referrers(self, subject: str, _: bytes, query: dict[str, list[str]]) -> None:
        """List referrers, a page at a time; a subject that is not there has none (distribution 1.1)."""
        if not re.fullmatch(r"sha256:[0-9a-f]{64}", subject):
            self._error(400, "DIGEST_INVALID")
            return
        found = [
            {
                "mediaType": kind,
                "digest": digest,
                "size": len(content),
                "artifactType": json.loads(content)["artifactType"],
            }
            for digest, (kind, content) in list(self.state.manifests.items())
            if _subject(content) == subject
        ]
        headers = {"Content-Type": OCI_INDEX}
        start = int(query.get("start", ["0"])[0])
        if start + self.state.page < len(found):
            following = urlsplit(self.path)._replace(query=f"start={start + self.state.page}").geturl()
            headers["Link"] = f'<{following}>; rel="next"'
        page = found[start : start + self.state.page]
        index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": page}
        self._answer(200, json.dumps(index).encode(), headers)

    def _tags(self, _: str, __: bytes, query: dict[str, list[str]]) -> None:
        """List tags in order, ``n`` at a time after ``last``."""
        if self.state.missing:
            self._error(404, "NAME_UNKNOWN")
            return
        names = sorted(name for name in self.state.tags if name > query.get("last", [""])[0])
        count = int(query.get("n", [len(names) or 1])[0])
        headers = {"Content-Type": "application/json"}
        if len(names) > count:
            path = urlsplit(self.path).path
            headers["Link"] = f'<{path}?n={count}&last={names[count - 1]}>; rel="next"'
        self._answer(200, json.dumps({"name": "team/image", "tags": names[:count]}).encode(), headers)

    def _error(self, status: int, code: str) -> None:
        body = json.dumps({"errors": [{"code": code, "message": code.lower()}]}).encode()
        self._answer(status, body, {"Content-Type": "application/json"})


if __name__ == "__main__":
    with modern_registry() as (address, _state):
        print(address, flush=True)  # noqa: T201 - for the test that waits for it
        threading.Event().wait()


SECRET_BCRYPT = "$2b$04$S2Kj/ObEdjUqKKn43epyMOs72MNBty1CEEmSRwc.nol/5IPehgCJ2"  # noqa: S105 - a test's
"""The password ``secret`` as docker-registry's password file wants it."""


def login(folder: Path, host: str, user: str) -> dict[str, str]:
    """Write Docker's configuration with a login and return the environment that names it."""
    config = {"auths": {host: {"auth": base64.b64encode(user.encode()).decode()}}}
    (folder / "config.json").write_bytes(json.dumps(config).encode())
    return {"DOCKER_CONFIG": str(folder)}


def own_address() -> str:
    """Return an address of this machine that is not loopback, where the engine insists on a known authority."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent: the system only says by which way it would be
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
