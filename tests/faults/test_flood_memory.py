"""Whatever a registry, an index or an engine pours out, a command takes 256 MB at most, ends in time, and says so."""

import gzip
import hashlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from registries import Server
from servers import QuietHandler, running
from table_rows import beside

REPOSITORY = Path(__file__).parents[2]
MOST_BYTES = 256 << 20
"""Of a command's memory at its peak."""
MOST_S = 240.0
"""Of a command on a busy machine; what has no end is cut long before."""

MANIFEST = json.dumps({"schemaVersion": 2, "config": {"mediaType": "a/b", "digest": f"sha256:{'a' * 64}", "size": 2}})
DIGEST = f"sha256:{hashlib.sha256(MANIFEST.encode()).hexdigest()}"
OCI_MANIFEST, OCI_INDEX = (f"application/vnd.oci.image.{kind}.v1+json" for kind in ("manifest", "index"))
PAGE = "application/vnd.pypi.simple.v1+json"
PIECE = b"x" * (1 << 16)


@dataclass(frozen=True)
class Poured:
    """An answer: a status, headers, and a body that may have no end."""

    body: Callable[[], Iterable[bytes]]
    headers: tuple[tuple[str, str], ...] = ()
    status: int = 200
    kind: str = "application/json"


def just(text: str | bytes, *headers: tuple[str, str], status: int = 200, kind: str = "application/json") -> Poured:
    return Poured(lambda: (text.encode() if isinstance(text, str) else text,), headers, status, kind)


def endless(piece: bytes = PIECE, head: bytes = b"", **more: object) -> Poured:
    return Poured(lambda: itertools.chain((head,), itertools.repeat(piece)), **more)  # type: ignore[arg-type]


def listed(head: str, row: str, size: int, tail: str, **more: object) -> Poured:
    """Answer with a list of the same row, about so many bytes in all."""
    rows = (row.encode() + b",") * max(1, (1 << 16) // (len(row) + 1))
    times = size // len(rows)
    return Poured(lambda: (head.encode(), *itertools.repeat(rows, times), row.encode(), tail.encode()), **more)  # type: ignore[arg-type]


def bomb(size: int = 8 << 30) -> Poured:
    """Answer with a few megabytes that unpack to gigabytes."""
    one = cache(lambda: gzip.compress(bytes(64 << 20), 9))
    return Poured(lambda: (one() for _ in range(size >> 26)), (("Content-Encoding", "gzip"),), kind=OCI_MANIFEST)


Answers = dict[str, Poured]
"""What is poured, by a pattern of the path; the first that fits."""

TRUE = {r"/v2/$": just("{}"), r"/manifests/": just(MANIFEST, ("Docker-Content-Digest", DIGEST), kind=OCI_MANIFEST)}
ROW = json.dumps({"mediaType": OCI_MANIFEST, "digest": f"sha256:{'b' * 64}", "size": 9, "artifactType": "a/b"})
FAT = json.dumps({**json.loads(ROW), "annotations": {"org.example": "y" * 1500}})
INDEX = '{"schemaVersion":2,"manifests":['
NEXT = ("Link", f'</v2/team/image/referrers/{DIGEST}>; rel="next"')
MANY = listed(INDEX, ROW, 1 << 20, "]}", kind=OCI_INDEX)
FILE = json.dumps({"filename": "tensorflow-2.99.0-cp311-cp311-manylinux_2_17_x86_64.whl", "url": "x", "hashes": {}})


@dataclass(frozen=True)
class Flood:
    """A command before a server that pours: ``where`` is how the command is led to it."""

    name: str
    words: tuple[str, ...]
    answers: Answers
    codes: tuple[int, ...]
    where: dict[str, str] = field(default_factory=dict)


VERIFY = ("verify", "127.0.0.1:{port}/team/image:tag", "--key", "k/envbuilder.pub")


def before(**answers: Poured) -> Answers:
    """Put answers before those of an honest registry."""
    return {name.replace("__", "/"): answer for name, answer in answers.items()} | TRUE


def referrers(poured: Poured) -> Answers:
    return {r"/referrers/": poured} | TRUE


REGISTRY = [
    Flood(f"registry: {name}", VERIFY, answers, (5, 7))
    for name, answers in {
        "a manifest without end": before(__manifests__=endless(kind=OCI_MANIFEST)),
        "a manifest that is nested": before(__manifests__=just('{"a":' * 800_000, kind=OCI_MANIFEST)),
        "a manifest of escapes": before(__manifests__=just(r'{"a":"' + r"\u00e4" * 600_000 + '"}', kind=OCI_MANIFEST)),
        "a manifest that unpacks": before(__manifests__=bomb()),
        "attached without end": referrers(endless(b"[" * 65536, kind=OCI_INDEX)),
        "31 MB of small rows": referrers(listed(INDEX, "{}", 31 << 20, "]}", kind=OCI_INDEX)),
        "31 MB of fat rows": referrers(listed(INDEX, FAT, 31 << 20, "]}", kind=OCI_INDEX)),
        "31 MB of numbers": referrers(listed('{"manifests":[],"a":[', "1", 31 << 20, "]}", kind=OCI_INDEX)),
        "pages without end": referrers(listed(INDEX, FAT, 2 << 20, "]}", headers=(NEXT,), kind=OCI_INDEX)),
        "a header without end": referrers(just("{}", *((f"X-{number}", "y" * 60_000) for number in range(90)))),
        "a complaint without end": before(__manifests__=endless(status=500)),
        "a token without end": {
            "/token": endless(b'{"token":"' + b"t" * 60000),
            "/manifests/": just("", ("WWW-Authenticate", 'Bearer realm="http://127.0.0.1:{port}/token"'), status=401),
            "/v2/$": just("{}"),
        },
        "a redirect with a flood": before(__manifests__=endless(status=302, headers=(("Location", "/v2/again"),))),
        "every statement without end": {"/manifests/sha256:b": endless(kind=OCI_MANIFEST)} | referrers(MANY),
    }.items()
]  # fmt: skip
HTML = "<!DOCTYPE html><body>"
AT_INDEX = {"UV_DEFAULT_INDEX": "http://127.0.0.1:{port}/simple", "PIP_CONFIG_FILE": "/dev/null"}
INDEXES = [
    Flood(f"index: {name}", ("catalog", "refresh", "2.99.0"), {"/simple/": poured}, (5, 8), AT_INDEX)
    for name, poured in {
        "a page without end": endless(kind=PAGE),
        "a page of text without end": endless(b"<a href=x>y</a>" * 4000, kind="text/html"),
        "a page that unpacks": bomb(),
        "60 MB of files": listed('{"meta":{"api-version":"1.0"},"name":"a","files":[', FILE, 60 << 20, "]}", kind=PAGE),
        "60 MB of empty rows": listed('{"meta":{},"name":"a","files":[', "{}", 60 << 20, "]}", kind=PAGE),
        "60 MB of links": listed(HTML, "<a href='tensorflow-2.99.0.tar.gz'>t</a>", 60 << 20, "", kind="text/html"),
        "60 MB of open marks": listed(HTML, "<a b='", 60 << 20, "", kind="text/html"),
        "60 MB in one word": listed('{"name":"', "y", 60 << 20, '","files":[]}', kind=PAGE),
    }.items()
]  # fmt: skip
AT_ENGINE = {"DOCKER_HOST": "tcp://127.0.0.1:{port}"}
HONEST = {"/_ping": just("OK"), "/version": just('{"ApiVersion":"1.41","Version":"20.10.24","MinAPIVersion":"1.12"}')}
CLEAN = ("clean", "--dry-run")
ONE = '{"Id":"sha256:1","RepoTags":["a:b"]}'
VARIABLES = '{"Id":"sha256:1","Config":{"Env":['
IMAGES = {"/containers/json": just("[]"), "/volumes": just("{}")}
ENGINES = [
    Flood(f"engine: {' '.join(words)}: {name}", words, HONEST | answers, codes, AT_ENGINE)
    for name, words, answers, codes in (
        ("a version without end", CLEAN, {"/version": endless()}, (5,)),
        ("60 MB about itself", CLEAN, {"/info": listed('{"Warnings":[', '"w"', 60 << 20, "]}")}, (0, 5)),
        ("60 MB of containers", CLEAN, {"/containers/json": listed("[", "{}", 60 << 20, "]")}, (0, 5)),
        ("30 MB of images", CLEAN, IMAGES | {"/images/json": listed("[", ONE, 30 << 20, "]")}, (5, 0)),
        ("60 MB of variables", ("validate", "x:y"), {"/images/": listed(VARIABLES, '"A=b"', 60 << 20, "]}}")}, (5,)),
        ("about itself without end", ("doctor",), {"/info": endless(b"[" * 65536)}, (5,)),
    )
]  # fmt: skip
FLOODS = (*REGISTRY, *INDEXES, *ENGINES)
ALWAYS = FLOODS[::6]
"""Those that are tried in each run of the tests."""


@contextmanager
def pouring(answers: Answers) -> Iterator[int]:
    class Handler(QuietHandler):
        def _route(self) -> None:
            poured = next((one for path, one in answers.items() if re.search(path, self.path)), just("{}", status=404))
            port = self.headers["Host"].rpartition(":")[2]
            self.send_response(poured.status)
            self.send_header("Content-Type", poured.kind)
            self.send_header("Connection", "close")
            for name, value in poured.headers:
                self.send_header(name, value.replace("{port}", port))
            self.end_headers()
            if self.command != "HEAD":
                for piece in poured.body():
                    self.wfile.write(piece)
            self.close_connection = True

    server = Server(("127.0.0.1", 0), Handler)
    with running(server):
        yield server.server_port


_MEASURED = beside(__file__)["measured"]
"""Start a program from a small process: of one that a large one starts, the kernel counts what that had, too."""


def ran(words: Iterable[str], folder: Path, environment: dict[str, str]) -> tuple[int, str, int]:
    """Run a command to its end; return its exit code, what it printed, and the most memory of its own process."""
    out = folder / "printed"
    with out.open("wb") as stream:
        command = (sys.executable, "-m", "envbuilder", *words)
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _MEASURED, folder / "memory", *command],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "XDG_CACHE_HOME": str(folder / "cache"), **environment},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
        try:
            code = process.wait(MOST_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise AssertionError(f"did not end: {out.read_bytes()[-500:]!r}") from None
    return code, out.read_text(errors="replace"), int((folder / "memory").read_text())


@pytest.mark.parametrize(
    "flood", [pytest.param(one, id=one.name, marks=() if one in ALWAYS else pytest.mark.full) for one in FLOODS]
)
def test_flood_is_bounded_in_memory_and_time(flood: Flood, tmp_path: Path) -> None:
    assert ran(("keys", "new", "k"), tmp_path, {})[0] == 0
    with pouring(flood.answers) as port:
        words = [word.replace("{port}", str(port)) for word in flood.words]
        where = {name: value.replace("{port}", str(port)) for name, value in flood.where.items()}
        code, printed, memory = ran(words, tmp_path, where)
    assert code in flood.codes, printed[-2000:]
    assert "Traceback" not in printed
    assert memory < MOST_BYTES, f"{memory >> 20} MB"
    assert len(printed) < 100_000
