"""Which engine is used, and what a strange, slow, endless or frozen one causes: an error, within limits."""

import base64
import gc
import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peak_memory
import pytest
from strange_engine import Handler, answering, forever, silence
from table_rows import beside, rows

from envbuilder.engine import connection
from envbuilder.engine.docker import DockerEngine, connect
from envbuilder.engine.port import BuildRequest, ContainerSpec
from envbuilder.errors import InfrastructureError, UsageError

Ask = Callable[[DockerEngine, Path], Any]


def build(engine: DockerEngine, folder: Path) -> object:
    (folder / "Dockerfile").write_text("FROM scratch")
    return engine.build(BuildRequest(folder, "a:b"), lambda _: None)


def run(engine: DockerEngine, folder: Path) -> object:
    return engine.run(ContainerSpec("a:b", ("true",), time_limit=1.0), lambda _: None, lambda _: None)


def export(engine: DockerEngine, folder: Path) -> int:
    with engine.export("a:b") as pieces:
        return sum(map(len, pieces))


def import_base(engine: DockerEngine, folder: Path) -> object:
    (folder / "a.tar").write_bytes(bytes(1024))
    return engine.import_base(folder / "a.tar", "a:b", {})


def line(**record: Any) -> bytes:
    return json.dumps(record).encode() + b"\n"


def trace(message: bytes) -> bytes:
    return line(id="moby.buildkit.trace", aux=base64.b64encode(message).decode())


ASK_INFO: Ask = lambda engine, _: engine.info()  # noqa: E731 - rows of a table
ASK_IMAGE: Ask = lambda engine, _: engine.image("a:b")  # noqa: E731
STRANGE: dict[str, tuple[dict[str, Any], Ask]] = {
    "info null": ({"info": b"null"}, ASK_INFO),
    "info not JSON": ({"info": b"<html>"}, ASK_INFO),
    "info not UTF-8": ({"info": b'{"ServerVersion":"\xff"}'}, ASK_INFO),
    "info deep": ({"info": b'{"Runtimes":' + b"[" * 100_000}, ASK_INFO),
    "info without end": ({"info": forever(b" " * 65_536)}, ASK_INFO),
    "info cut": ({"info": lambda handler: cut(handler, b'{"a"')}, ASK_INFO),
    "inspect empty": ({"images__a:b__json": {}, "images__a:b__history": []}, ASK_IMAGE),
    "history of texts": ({"images__a:b__json": {"Id": "1", "Config": {}}, "images__a:b__history": ["x"]}, ASK_IMAGE),
    "a list of images that is none": ({"images__json": {}}, lambda engine, _: engine.names("a")),
    "containers null": ({"containers__json": b'"x"', "volumes": {}}, lambda engine, _: engine.sweep()),
    "volumes a list": ({"containers__json": [], "volumes": [1]}, lambda engine, _: engine.sweep()),
    "prune a text": ({"images__prune": "all"}, lambda engine, _: engine.prune("x")),
    "cache a text": ({"build__prune": "all"}, lambda engine, _: engine.trim_cache(0)),
    "created empty": ({"containers__create": {}}, run),
    "a record list": ({"build": b"[1]\n"}, build),
    "a record no JSON": ({"build": b"<html>\n"}, build),
    "a record without end": ({"build": forever(b"x" * 65_536)}, build),
    "image id without aux": ({"build": line(id="moby.image.id")}, build),
    "trace no base64": ({"build": line(id="moby.buildkit.trace", aux="***")}, build),
    "trace no protobuf": ({"build": trace(b"\xff" * 20)}, build),
    "an image that is not there afterwards": ({"build": line(id="moby.image.id", aux={"ID": "sha256:9"})}, build),
    "pull a list": ({"images__create": b"[]\n"}, lambda engine, _: engine.pull("a:b")),
    "pull an error": ({"images__create": line(error="no such")}, lambda engine, _: engine.pull("a:b")),
    "push without a digest": ({"images__a__push": line(status="x")}, lambda engine, _: engine.push("a:b")),
    "import an error": ({"images__create": line(error="no space")}, import_base),
    "export refused": ({"images__get": lambda handler: handler.send(b"[]", 500)}, export),
    "export cut": ({"images__get": lambda handler: cut(handler, b"x")}, export),
}


def cut(handler: Handler, content: bytes) -> None:
    """Announce more than is sent, and leave."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(content)
    handler.wfile.flush()
    handler.close_connection = True


@pytest.mark.parametrize(("answers", "ask"), STRANGE.values(), ids=STRANGE.keys())
def test_strange_answer_is_the_engines_failure(answers: dict[str, Any], ask: Ask, tmp_path: Path) -> None:
    before = peak_memory.from_now_on()
    with answering(tmp_path, **answers):
        engine = connect({"DOCKER_HOST": f"unix://{tmp_path}/e.sock"})
        with pytest.raises(InfrastructureError, match=r"engine|could not") as caught:
            ask(engine, tmp_path)
    assert caught.value.exit_code == 5
    assert peak_memory.most() - before < 300 << 20


def test_name_of_no_image_is_a_usage_error(tmp_path: Path) -> None:
    text = b'{"message": "no such image: Foo/Bar: invalid reference format: repository name must be lowercase"}'
    answer = answering(tmp_path, images__Foo__Bar__json=lambda handler: handler.send(text, 400))
    with answer, pytest.raises(UsageError, match="Foo/Bar") as refused:
        connect({"DOCKER_HOST": f"unix://{tmp_path}/e.sock"}).image("Foo/Bar")
    assert "lower case" in refused.value.hint


def test_bytes_of_layers_are_reported(tmp_path: Path) -> None:
    def layer(name: str, status: str, current: int, total: int) -> bytes:
        return line(id=name, status=status, progressDetail={"current": current, "total": total})

    moved: list[tuple[int, int]] = []
    answer = layer("a", "Downloading", 5, 10) + layer("b", "Pushing", 1, 90) + layer("a", "Extracting", 9, 9)
    with answering(tmp_path, images__create=line(status="Pulling", progressDetail={}) + answer):
        engine = connect({"DOCKER_HOST": f"unix://{tmp_path}/e.sock"})
        with pytest.raises(InfrastructureError, match="does not have a:b"):
            engine.pull("a:b", lambda done, of: moved.append((done, of)))
    assert moved == [(5, 10), (6, 100)]


@rows
def test_other_programs_on_the_socket_are_refused(version: Any, message: str, tmp_path: Path) -> None:
    answer = version.encode() if isinstance(version, str) else version
    with answering(tmp_path, version=answer), pytest.raises(InfrastructureError, match=message) as caught:
        connect({"DOCKER_HOST": f"unix://{tmp_path}/e.sock"})
    assert "Docker" in caught.value.hint


STREAMS: dict[str, tuple[str, Ask]] = {
    "build": ("build", build),
    "export": ("images__get", export),
    "pull": ("images__create", lambda engine, _: engine.pull("a:b")),
    "push": ("images__a__push", lambda engine, _: engine.push("a:b")),
    "import": ("images__create", import_base),
}


@pytest.mark.parametrize(("long", "says"), [(False, "has not answered"), (True, "longer than 1 s")])
@pytest.mark.parametrize(("path", "ask"), STREAMS.values(), ids=STREAMS.keys())
def test_frozen_engine_is_given_up_and_a_long_stream_is_cut(
    path: str, ask: Ask, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, long: bool
) -> None:
    """After a second, not after a minute; a long stream is of an engine that answers all along."""
    monkeypatch.setattr(connection, "PING_EVERY_S", 0.2)
    monkeypatch.setattr(connection, "PING_WAITS_S", 0.2)
    monkeypatch.setattr(connection, "STREAM_S", 1.0 if long else 60.0)
    with answering(tmp_path) as server:

        def freeze(handler: Handler) -> None:
            server.frozen.set()
            silence()(handler)

        server.answers[f"/{path.replace('__', '/')}"] = silence(b"{}\n") if long else freeze
        engine = connect({"DOCKER_HOST": f"unix://{tmp_path}/e.sock"})
        began = time.monotonic()
        with pytest.raises(InfrastructureError, match=says) as caught:
            ask(engine, tmp_path)
        assert time.monotonic() - began < 15
        assert long or "restart it" in caught.value.hint


def test_build_waits_for_a_busy_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine may read a context late, within a limit of its own."""
    (tmp_path / "large").write_bytes(os.urandom(8 << 20))
    with answering(tmp_path, build=b"[]") as server:
        engine = connect({"DOCKER_HOST": f"unix://{tmp_path}/e.sock"})
        monkeypatch.setattr(connection, "CONNECT_S", 0.2)
        server.frozen.set()
        threading.Timer(1.0, server.frozen.clear).start()
        with pytest.raises(InfrastructureError) as late:
            build(engine, tmp_path)
        assert not server.frozen.is_set()
        assert "did not answer" not in str(late.value)  # the later answer is strange
        monkeypatch.setattr(connection, "SEND_S", 0.2)
        server.frozen.set()
        with pytest.raises(InfrastructureError, match="did not answer"):
            build(engine, tmp_path)


KEY = hashlib.sha256(b"far").hexdigest()
FAR = "tcp://far.example.org:2376"


def settings(folder: Path, config: object, meta: object = None) -> None:
    """Write Docker's settings: its configuration, and a context called ``far`` unless ``meta`` is None."""
    (folder / "config.json").write_text(json.dumps(config))
    if meta is not None:
        file = folder / "contexts/meta" / KEY / "meta.json"
        file.parent.mkdir(parents=True)
        file.write_text(meta if isinstance(meta, str) else json.dumps(meta))


def far(**endpoint: Any) -> dict[str, Any]:
    return {"Name": "far", "Metadata": {}, "Endpoints": {"docker": {"Host": FAR, "SkipTLSVerify": False, **endpoint}}}


@pytest.fixture
def docker_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return {"DOCKER_CONFIG": str(tmp_path)}


@pytest.mark.parametrize(("current", "name"), [("far", ""), ("x", "far")])
def test_context_gives_the_address(tmp_path: Path, docker_config: dict[str, str], current: str, name: str) -> None:
    """DOCKER_CONTEXT precedes the configuration's current context."""
    settings(tmp_path, {"currentContext": current}, far())
    assert connection._arguments(docker_config | {"DOCKER_CONTEXT": name})["base_url"] == FAR


@pytest.mark.parametrize("skips", [True, False])
def test_context_has_its_own_certificates(tmp_path: Path, docker_config: dict[str, str], *, skips: bool) -> None:
    settings(tmp_path, {"currentContext": "far"}, far(SkipTLSVerify=skips))
    environment = docker_config | {"DOCKER_CERT_PATH": "/elsewhere", "DOCKER_TLS_VERIFY": "1"}
    assert connection._arguments(environment)["tls"] is False
    folder = tmp_path / "contexts/tls" / KEY / "docker"
    folder.mkdir(parents=True)
    for name in ("ca", "cert", "key"):
        (folder / f"{name}.pem").touch()
    tls = connection._arguments(environment)["tls"]
    assert (tls.ca_cert, bool(tls.verify)) == (str(folder / "ca.pem"), not skips)


@pytest.mark.parametrize("variable", [{"DOCKER_HOST": "tcp://near:1"}, {"DOCKER_CONTEXT": "default"}])
def test_variables_precede_contexts(tmp_path: Path, docker_config: dict[str, str], variable: dict[str, str]) -> None:
    settings(tmp_path, {"currentContext": "nonsuch"})
    assert connection._arguments(docker_config | variable).get("base_url") == variable.get("DOCKER_HOST")


def test_default_engine_is_used_without_a_configuration(tmp_path: Path) -> None:
    assert connection._arguments({"HOME": str(tmp_path)}) == {}


DAMAGED: dict[str, tuple[object, object]] = {
    "no such context": ({"currentContext": "far"}, None),
    "a path as name": ({"currentContext": "../../far"}, far()),
    "cut": ({"currentContext": "far"}, "{"),
    "null": ({"currentContext": "far"}, "null"),
    "no endpoints": ({"currentContext": "far"}, {"Name": "far"}),
    "an endpoint that is a text": ({"currentContext": "far"}, {"Endpoints": {"docker": "x"}}),
    "no host": ({"currentContext": "far"}, far(Host="")),
    "nesting": ({"currentContext": "far"}, "[" * 100_000),
}


@pytest.mark.parametrize(("config", "meta"), DAMAGED.values(), ids=DAMAGED.keys())
def test_unreadable_context_is_an_error_not_the_default_engine(
    tmp_path: Path, docker_config: dict[str, str], config: object, meta: object
) -> None:
    settings(tmp_path, config, meta)
    with pytest.raises(InfrastructureError) as caught:
        connect(docker_config)
    assert str(tmp_path) in caught.value.message
    assert "docker context" in caught.value.hint


def test_context_without_a_configuration_is_not_read_from_the_working_folder(
    tmp_path: Path, docker_config: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings(tmp_path, {}, far())
    (tmp_path / "config.json").unlink()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InfrastructureError, match=r"config\.json does not exist") as caught:
        connect(docker_config | {"DOCKER_CONTEXT": "far"})
    assert "docker context use far" in caught.value.hint


@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda path: path.symlink_to("/dev/ptmx"), lambda path: path.symlink_to("/dev/zero")]
)
def test_pipe_or_device_as_configuration_is_refused_at_once(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "config.json")
    with pytest.raises(InfrastructureError, match=r"config\.json"):
        connect({"DOCKER_CONFIG": str(tmp_path), "DOCKER_HOST": "tcp://127.0.0.1:1"})


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a place for a program ssh, the only one in PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "ssh"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the SDK does not wait for its ssh
def test_engine_of_another_host_answers_by_the_users_ssh(ssh: Path, tmp_path: Path) -> None:
    with answering(tmp_path, images__a=lambda handler: handler.send(b"{}", 404)):
        ssh.write_text(beside(__file__)["ssh"].format(python=sys.executable, path=str(tmp_path / "e.sock")))
        ssh.chmod(0o755)
        engine = connect({"DOCKER_HOST": "ssh://me@far.example.org:2222"})
        assert engine.info().version == "20.10.24"
        assert engine.image("a:b") is None
        del engine
        gc.collect()


@pytest.mark.parametrize("lacks", ["program", "package"])
def test_engine_by_ssh_needs_its_two_programs(ssh: Path, monkeypatch: pytest.MonkeyPatch, lacks: str) -> None:
    if lacks == "package":
        ssh.touch(0o755)
        monkeypatch.setattr(connection, "find_spec", lambda _: None)
    with pytest.raises(InfrastructureError, match="ssh") as failed:
        connect({"DOCKER_HOST": "ssh://far.example.org"})
    assert "pip install 'tf-envbuilder[ssh]'" in failed.value.hint
    assert "openssh-client" in failed.value.hint
