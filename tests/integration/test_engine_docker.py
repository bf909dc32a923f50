"""What only a real engine can show: closed containers, nothing left behind, nothing of the host in a layer."""

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from table_rows import beside
from tiny_image import write_tiny_root
from waiting import wait_for

from envbuilder.engine.docker import DockerEngine, connect
from envbuilder.engine.port import BuildRequest, ContainerResult, ContainerSpec
from envbuilder.support.console import Step

pytestmark = pytest.mark.engine
INTERRUPTED = beside(__file__)["interrupted"]


@pytest.fixture(scope="module")
def engine() -> DockerEngine:
    return connect({**os.environ, "http_proxy": "http://user:secret@proxy.example:3128"})


@pytest.fixture(scope="module")
def base(engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    name = f"scratch-engine-{uuid.uuid4().hex[:8]}"
    tar = tmp_path_factory.mktemp("base") / "base.tar"
    write_tiny_root(tar)
    engine.import_base(tar, f"{name}:base", {})
    yield f"{name}:base"
    engine.remove(f"{name}:base")
    for image in engine._api.images(quiet=True, filters={"label": f"scratch={name}:base"}):
        engine._api.remove_image(image, force=True)


def shell(engine: DockerEngine, image: str, command: str, **given: object) -> tuple[str, str, ContainerResult]:
    out, err = bytearray(), bytearray()
    spec = ContainerSpec(image, ("/bin/sh", "-c", command), **given)  # type: ignore[arg-type]
    ended = engine.run(spec, out.extend, err.extend)
    return out.decode(), err.decode(), ended


def request(context: Path, base: str, extra: dict[str, bytes] | None = None, *, no_cache: bool = False) -> BuildRequest:
    tag = base.replace(":base", ":built")
    return BuildRequest(context, tag, extra=extra or {}, labels={"scratch": base}, no_cache=no_cache)


def test_container_is_closed(engine: DockerEngine, base: str) -> None:
    out, err, _ = shell(engine, base, "id -u; ls /sys/class/net; cat /proc/self/status /etc/hosts; touch /x")
    assert out.splitlines()[:2] == ["65534", "lo"]
    assert "CapEff:\t0000000000000000" in out
    assert "CapBnd:\t0000000000000000" in out
    assert "NoNewPrivs:\t1" in out
    assert "127.0.0.1\tlocalhost" in out.splitlines()
    assert "Read-only" in err


def test_scratch_is_writable_and_files_are_not(engine: DockerEngine, base: str) -> None:
    files = {"deep/tool": b"#!/bin/sh\necho ran\n"}
    out, err, _ = shell(
        engine, base, "/envbuilder/deep/tool; touch /tmp/ok && ls /tmp; touch /envbuilder/x", files=files
    )
    assert out.split() == ["ran", "ok"]
    assert "Permission denied" in err


def test_container_is_kept_from_the_host(engine: DockerEngine, base: str) -> None:
    out, _, _ = shell(engine, base, "ulimit -n; ulimit -c; ulimit -f; cat /proc/self/mounts", memory=256 << 20)
    files, core, size, *mounts = out.splitlines()
    assert (files, core) == ("16384", "0")
    assert int(size) in {(256 << 20) // 512, (256 << 20) // 1024}
    (scratch,) = (mount for mount in mounts if mount.split()[1] == "/tmp")
    assert "size=131072k" in scratch.split()[3].split(",")
    groups, _, _ = shell(engine, base, "cat /proc/self/cgroup")
    assert groups.splitlines()
    assert all(group.endswith(":/") for group in groups.splitlines()), groups
    assert engine.info().memory > 0
    _, _, ended = shell(engine, base, "true", memory=1 << 50)
    assert ended.exit_code == 0


def test_output_arrives_while_it_runs(engine: DockerEngine, base: str) -> None:
    times: list[float] = []
    spec = ContainerSpec(base, ("/bin/sh", "-c", "echo a; sleep 1; echo b"))
    engine.run(spec, lambda _: times.append(time.monotonic()), print)
    assert times[-1] - times[0] > 0.7


def test_program_that_the_image_lacks_is_the_images_fault(engine: DockerEngine, base: str) -> None:
    err = bytearray()
    ended = engine.run(ContainerSpec(base, ("python3",)), print, err.extend)
    assert ended.exit_code == 127
    assert b"python3" in err
    assert "python3" in ended.refusal
    _, _, ended = shell(engine, base, "exit 127")
    assert (ended.exit_code, ended.refusal) == (127, "")


def test_containers_run_side_by_side(engine: DockerEngine, base: str) -> None:
    said: dict[int, str] = {}

    def one(number: int) -> None:
        said[number] = shell(engine, base, f"sleep 0.5; echo {number}")[0]

    threads = [threading.Thread(target=one, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == {number: f"{number}\n" for number in range(4)}


@pytest.mark.parametrize(("sent", "swept"), [(signal.SIGINT, 0), (signal.SIGKILL, 1)], ids=["Ctrl-C", "killed"])
def test_interrupted_run_leaves_nothing(engine: DockerEngine, base: str, sent: signal.Signals, swept: int) -> None:
    command = [sys.executable, "-c", INTERRUPTED, base]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert b"up" in process.stdout.readline()
        engine.sweep()
        assert left_of(engine, process.pid) == (1, 1), "a run that is alive is not swept"
        process.send_signal(sent)
    assert process.returncode, "it was not interrupted"
    assert left_of(engine, process.pid) == (swept, swept)
    assert engine.sweep() >= swept
    assert left_of(engine, process.pid) == (0, 0)


def left_of(engine: DockerEngine, pid: int) -> tuple[int, int]:
    mine = {"label": [f"org.envbuilder.run={pid}"]}
    return len(engine._api.containers(all=True, filters=mine)), len(engine._api.volumes(filters=mine)["Volumes"] or [])


def test_files_of_the_host_for_a_step_are_in_no_layer(engine: DockerEngine, base: str, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(
        f"FROM {base}\n"
        "RUN --mount=type=bind,source=host,target=/run/host --mount=type=cache,target=/cache "
        'cat /run/host/bundle.crt; echo "proxy $http_proxy"; touch /cache/kept\n'
    )
    said: list[str] = []
    wish = request(tmp_path, base, {"host/bundle.crt": b"HOST-AUTHORITY"}, no_cache=True)
    image = engine.build(wish, lambda step: said.append(step.text))
    assert any("HOST-AUTHORITY" in line for line in said)
    assert any("user:secret@proxy.example" in line for line in said)
    with engine.export(image.id) as chunks:
        saved = b"".join(chunks)
    for secret in (b"HOST-AUTHORITY", b"proxy.example"):
        assert secret not in saved
    assert layer_files(saved) == []


def layer_files(saved: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(saved)) as archive:
        manifest = archive.extractfile("manifest.json")
        assert manifest is not None
        last = archive.extractfile(json.load(manifest)[0]["Layers"][-1])
        assert last is not None
        with tarfile.open(fileobj=last) as layer:
            return [member.name for member in layer if not member.isdir()]


def test_layer_that_images_share_is_read_once(engine: DockerEngine, base: str, tmp_path: Path) -> None:
    images = []
    for name in ("a", "b"):
        (tmp_path / "Dockerfile").write_text(f"FROM {base}\nRUN echo {name} > /{name}\n")
        images.append(engine.build(request(tmp_path, base), lambda _: None))
    with engine.layer_files(*(image.id for image in images)) as streams:
        read = list(streams)
    assert {stream.diff_id for stream in read} == {layer.diff_id for image in images for layer in image.layers}
    assert len(read) == 3
    with engine.layer_files(images[0].id, without={max(stream.size for stream in read)}) as streams:
        (own,) = list(streams)
    assert own.diff_id == images[0].layers[1].diff_id


def test_unchanged_step_is_taken_from_the_cache(engine: DockerEngine, base: str, tmp_path: Path) -> None:
    text = f"FROM {base}\nRUN --mount=type=bind,source=host,target=/run/host cat /run/host/a; echo {uuid.uuid4()}\n"

    def kinds(folder: str, content: bytes, other: str) -> set[str]:
        context = tmp_path / folder
        context.mkdir()
        (context / "Dockerfile").write_text(text)
        (context / "other").write_text(other)
        steps: list[Step] = []
        engine.build(request(context, base, {"host/a": content}), steps.append)
        return {step.kind for step in steps if "] RUN" in step.name and step.kind in {"started", "cached"}}

    assert kinds("first", b"same\n", "1") == {"started"}
    assert kinds("again", b"same\n", "2") == {"cached"}
    assert kinds("changed", b"not the same\n", "2") == {"started"}


def test_build_that_is_given_up_stops(engine: DockerEngine, base: str, tmp_path: Path) -> None:
    seconds = f"97{uuid.uuid4().int % 10000}"
    (tmp_path / "Dockerfile").write_text(f"FROM {base}\nRUN echo up; sleep {seconds}\n")

    def give_up(step: Step) -> None:
        if step.text == "up":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.build(request(tmp_path, base), give_up)
    wait_for(lambda: not running(f"sleep {seconds}"), 15)


def running(words: str) -> list[str]:
    lines = [path.read_bytes().replace(b"\0", b" ").decode() for path in Path("/proc").glob("[0-9]*/cmdline")]
    return [line for line in lines if line.strip() == words]
