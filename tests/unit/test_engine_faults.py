"""A strange, slow, endless or frozen engine ends in one of our errors, in bounded time and memory."""

from __future__ import annotations

import base64
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peak_memory
import pytest
from strange_engine import Handler, answering, forever, silence

from envbuilder.engine import docker, watch
from envbuilder.engine.docker import DockerEngine, connect
from envbuilder.engine.port import BuildRequest, ContainerSpec
from envbuilder.errors import InfrastructureError

Ask = Callable[[DockerEngine, Path], Any]


def build(engine: DockerEngine, folder: Path) -> object:
    """Build a context of one file."""
    (folder / "Dockerfile").write_text("FROM scratch")
    return engine.build(BuildRequest(folder, "a:b"), lambda _: None)


def run(engine: DockerEngine, folder: Path) -> object:
    """Run a container without files."""
    return engine.run(ContainerSpec("a:b", ("true",), time_limit=1.0), lambda _: None, lambda _: None)


def export(engine: DockerEngine, folder: Path) -> int:
    """Read an export to its end."""
    with engine.export("a:b") as pieces:
        return sum(map(len, pieces))


def import_base(engine: DockerEngine, folder: Path) -> object:
    """Import an empty archive."""
    (folder / "a.tar").write_bytes(bytes(1024))
    return engine.import_base(folder / "a.tar", "a:b", {})


def line(**record: Any) -> bytes:
    """Write a record of a stream."""
    return json.dumps(record).encode() + b"\n"


def trace(message: bytes) -> bytes:
    """Write a record of BuildKit's trace."""
    return line(id="moby.buildkit.trace", aux=base64.b64encode(message).decode())


INSPECTED = {"Id": "sha256:1", "Config": {}, "RootFS": {"Layers": ["sha256:2"]}}
ASK_INFO: Ask = lambda engine, _: engine.info()  # noqa: E731 - rows of a table
ASK_IMAGE: Ask = lambda engine, _: engine.image("a:b")  # noqa: E731
STRANGE: dict[str, tuple[dict[str, Any], Ask]] = {
    "info null": ({"info": b"null"}, ASK_INFO),
    "info a list": ({"info": []}, ASK_INFO),
    "info not JSON": ({"info": b"<html>"}, ASK_INFO),
    "info not UTF-8": ({"info": b'{"ServerVersion":"\xff"}'}, ASK_INFO),
    "info deep": ({"info": b'{"Runtimes":' + b"[" * 100_000}, ASK_INFO),
    "info with a number for a text": ({"info": {"ServerVersion": 7}}, ASK_INFO),
    "info without end": ({"info": forever(b" " * 65_536)}, ASK_INFO),
    "info cut": ({"info": lambda handler: cut(handler, b'{"a"')}, ASK_INFO),
    "inspect empty": ({"images__a:b__json": {}, "images__a:b__history": []}, ASK_IMAGE),
    "inspect a list": ({"images__a:b__json": [], "images__a:b__history": []}, ASK_IMAGE),
    "labels a list": (
        {"images__a:b__json": {**INSPECTED, "Config": {"Labels": []}}, "images__a:b__history": []},
        ASK_IMAGE,
    ),
    "layers numbers": (
        {"images__a:b__json": {**INSPECTED, "RootFS": {"Layers": [1]}}, "images__a:b__history": []},
        ASK_IMAGE,
    ),
    "history null": ({"images__a:b__json": INSPECTED, "images__a:b__history": b"null"}, ASK_IMAGE),
    "history of texts": ({"images__a:b__json": INSPECTED, "images__a:b__history": ["x"]}, ASK_IMAGE),
    "history with a text for a size": (
        {"images__a:b__json": INSPECTED, "images__a:b__history": [{"Size": "1", "CreatedBy": "x"}]},
        ASK_IMAGE,
    ),
    "a list of images that is none": ({"images__json": {}}, lambda engine, _: engine.names("a")),
    "containers null": ({"containers__json": b'"x"', "volumes": {}}, lambda engine, _: engine.sweep()),
    "containers without labels or ids": (
        {"containers__json": [{"Labels": [1]}], "volumes": {}},
        lambda engine, _: engine.sweep(),
    ),
    "volumes a list": ({"containers__json": [], "volumes": [1]}, lambda engine, _: engine.sweep()),
    "prune a text": ({"images__prune": "all"}, lambda engine, _: engine.prune("x")),
    "cache a text": ({"build__prune": "all"}, lambda engine, _: engine.trim_cache(0)),
    "created empty": ({"containers__create": {}}, run),
    "created a list": ({"containers__create": []}, run),
    "a record list": ({"build": b"[1]\n"}, build),
    "a record no JSON": ({"build": b"<html>\n"}, build),
    "a record not UTF-8": ({"build": b'{"id":"\xff"}\n'}, build),
    "a record without end": ({"build": forever(b"x" * 65_536)}, build),
    "a record's id a number": ({"build": line(id=7)}, build),
    "image id without aux": ({"build": line(id="moby.image.id")}, build),
    "image id of another shape": ({"build": line(id="moby.image.id", aux=["x"])}, build),
    "trace no base64": ({"build": line(id="moby.buildkit.trace", aux="***")}, build),
    "trace null": ({"build": line(id="moby.buildkit.trace")}, build),
    "trace no protobuf": ({"build": trace(b"\xff" * 20)}, build),
    "trace cut": ({"build": trace(b"\x0a\x7f")}, build),
    "an image that is not there afterwards": ({"build": line(id="moby.image.id", aux={"ID": "sha256:9"})}, build),
    "pull a list": ({"images__create": b"[]\n"}, lambda engine, _: engine.pull("a:b")),
    "pull an error": ({"images__create": line(error="no such")}, lambda engine, _: engine.pull("a:b")),
    "push without a digest": ({"images__a__push": line(status="x")}, lambda engine, _: engine.push("a:b")),
    "push a digest of another shape": (
        {"images__a__push": line(aux={"Digest": 7})},
        lambda engine, _: engine.push("a:b"),
    ),
    "import an error": ({"images__create": line(error="no space")}, import_base),
    "export refused": ({"images__a:b__get": lambda handler: handler.send(b"[]", 500)}, export),
    "export cut": ({"images__a:b__get": lambda handler: cut(handler, b"x")}, export),
}


def cut(handler: Handler, content: bytes) -> None:
    """Announce more than is sent, and leave."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(content)
    handler.wfile.flush()
    handler.close_connection = True


@pytest.mark.parametrize(("answers", "asked"), STRANGE.values(), ids=STRANGE.keys())
def test_a_strange_answer_is_the_engines_failure(answers: dict[str, Any], asked: Ask, tmp_path: Path) -> None:
    """Whatever shape an answer has, it ends in exit 5 and says what was asked; never in a traceback."""
    before = peak_memory.from_now_on()
    with answering(tmp_path, **answers):
        engine = connect({"DOCKER_HOST": f"unix://{tmp_path}/e.sock"})
        with pytest.raises(InfrastructureError) as caught:
            asked(engine, tmp_path)
    assert caught.value.exit_code == 5
    assert "engine" in caught.value.message or "could not" in caught.value.message
    assert peak_memory.most() - before < 300 << 20


@pytest.mark.parametrize("version", [{"ApiVersion": "banana"}, {"ApiVersion": None}, [], {}, b"null", b"<html>"])
def test_what_is_no_engine_is_named(version: Any, tmp_path: Path) -> None:
    """Something else that listens on the socket is exit 5 with what to do next."""
    with (
        answering(tmp_path, version=version),
        pytest.raises(InfrastructureError, match="no container engine") as caught,
    ):
        connect({"DOCKER_HOST": f"unix://{tmp_path}/e.sock"})
    assert caught.value.hint


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give an engine up after a second, not after a minute."""
    monkeypatch.setattr(watch, "PING_EVERY_S", 0.2)
    monkeypatch.setattr(watch, "PING_WAITS_S", 0.2)


STREAMS: dict[str, tuple[str, Ask]] = {
    "build": ("build", build),
    "export": ("images__a:b__get", export),
    "pull": ("images__create", lambda engine, _: engine.pull("a:b")),
    "push": ("images__a__push", lambda engine, _: engine.push("a:b")),
    "import": ("images__create", import_base),
}


@pytest.mark.parametrize(("path", "asked"), STREAMS.values(), ids=STREAMS.keys())
def test_an_engine_that_freezes_is_given_up(path: str, asked: Ask, tmp_path: Path, hurried: None) -> None:
    """An engine that stops answering in the middle of a stream is noticed by pings, and the stream is cut."""
    with answering(tmp_path, **{path: None}) as server:

        def freeze(handler: Handler) -> None:
            server.frozen.set()
            silence()(handler)

        server.answers[f"/{path.replace('__', '/')}"] = freeze
        engine = connect({"DOCKER_HOST": f"unix://{tmp_path}/e.sock"})
        began = time.monotonic()
        with pytest.raises(InfrastructureError, match="has not answered") as caught:
            asked(engine, tmp_path)
        assert time.monotonic() - began < 15
        assert "restart it" in caught.value.hint


@pytest.mark.parametrize(("path", "asked"), STREAMS.values(), ids=STREAMS.keys())
def test_a_stream_without_end_is_cut(
    path: str, asked: Ask, tmp_path: Path, hurried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that is alive and never ends is cut at its limit, and what was read is not taken for the whole."""
    monkeypatch.setattr(docker, "_TOTAL_S", 1.0)
    with answering(tmp_path, **{path: silence(b"{}\n")}):
        engine = connect({"DOCKER_HOST": f"unix://{tmp_path}/e.sock"})
        began = time.monotonic()
        with pytest.raises(InfrastructureError, match="longer than 1 s"):
            asked(engine, tmp_path)
        assert time.monotonic() - began < 15


def test_a_context_waits_for_a_busy_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than a connection may take, the engine may leave a context unread; for ever, it may not."""
    (tmp_path / "large").write_bytes(os.urandom(8 << 20))
    with answering(tmp_path, build=b"[]") as server:
        engine = connect({"DOCKER_HOST": f"unix://{tmp_path}/e.sock"})
        monkeypatch.setattr(docker, "CONNECT_S", 0.2)
        server.frozen.set()
        threading.Timer(1.0, server.frozen.clear).start()
        with pytest.raises(InfrastructureError) as late:
            build(engine, tmp_path)
        assert not server.frozen.is_set()
        assert "did not answer" not in str(late.value)  # it is what came then that is strange
        monkeypatch.setattr(docker, "_SEND_S", 0.2)
        server.frozen.set()
        with pytest.raises(InfrastructureError, match="did not answer"):
            build(engine, tmp_path)


PODMAN = {
    "Platform": {"Name": "linux/amd64/debian-12"},
    "Components": [
        {"Name": "Podman Engine", "Version": "4.3.1"},
        {"Name": "Conmon", "Version": "conmon version 2.1.6"},
    ],
    "Version": "4.3.1",
    "ApiVersion": "1.41",
    "MinAPIVersion": "1.24",
}
"""What the socket of Debian's Podman 4.3.1 says of itself, in extracts."""


def test_podman_is_refused_with_the_reason(tmp_path: Path) -> None:
    """An engine that takes a BuildKit build without a word and makes no image is known before one is tried."""
    with (
        answering(tmp_path, version=PODMAN),
        pytest.raises(InfrastructureError, match=r"Podman 4\.3\.1: .* BuildKit") as caught,
    ):
        connect({"DOCKER_HOST": f"unix://{tmp_path}/e.sock"})
    assert "Docker Engine" in (caught.value.hint or "")
