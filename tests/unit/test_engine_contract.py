"""The contract of the engine's port: the fake always answers to it, the real engine where there is one."""

import io
import tarfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from fake_engine import FakeEngine, Script
from tiny_image import write_tiny_root

from envbuilder.engine.docker import DockerEngine, connect
from envbuilder.engine.port import BuildRequest, ContainerSpec, Engine
from envbuilder.errors import BuildFailedError, InfrastructureError
from envbuilder.support.console import Step

SH = "/bin/sh"
MANY_BYTES = "while :; do printf %01000d 0; done; echo never"
MANY_LINES = "while :; do echo; done; echo never"
SCRIPTS = {
    MANY_BYTES: Script(b"0" * 1_000_000 + b"never"),
    MANY_LINES: Script(b"\n" * 100_000 + b"never"),
    "echo out; echo err >&2; exit 7": Script(b"out\n", b"err\n", 7),
    "sleep 30": Script(seconds=30),
    "true": Script(),
}


@dataclass(frozen=True)
class Bench:
    """An engine that holds a base image, and a prefix for the names of a test's own images."""

    engine: Engine
    base: str
    prefix: str

    def context(self, folder: Path, *instructions: str) -> Path:
        folder.mkdir(exist_ok=True)
        (folder / "Dockerfile").write_text("\n".join(["ARG BASE", "FROM ${BASE}", *instructions]) + "\n")
        return folder

    def request(self, folder: Path, name: str, *instructions: str) -> BuildRequest:
        context = self.context(folder, *instructions)
        tag, labels = f"{self.prefix}-{name}:t", {"scratch": self.prefix}
        return BuildRequest(context, tag, build_args={"BASE": self.base}, labels=labels)


@pytest.fixture(scope="module", params=["fake", pytest.param("docker", marks=pytest.mark.engine)])
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    engine: Engine = FakeEngine(script=lambda spec: SCRIPTS[spec.command[-1]]) if request.param == "fake" else connect()
    prefix = f"scratch-contract-{uuid.uuid4().hex[:8]}"
    tar = tmp_path_factory.mktemp("base") / "base.tar"
    write_tiny_root(tar)
    engine.import_base(tar, f"{prefix}:base", {"made": "of the host"})
    yield Bench(engine, f"{prefix}:base", prefix)
    engine.remove(f"{prefix}:base")
    if isinstance(engine, DockerEngine):
        for image in engine._api.images(quiet=True, filters={"label": f"scratch={prefix}"}):
            engine._api.remove_image(image, force=True)


def test_engine_describes_itself(bench: Bench) -> None:
    info = bench.engine.info()
    assert info.name
    assert info.version
    assert info.builder


def test_imported_base_has_one_layer_and_its_labels(bench: Bench) -> None:
    image = bench.engine.image(bench.base)
    assert image.labels["made"] == "of the host"
    assert [layer.size > 1 << 20 for layer in image.layers] == [True]


def test_build_reports_each_step_and_keeps_the_image(bench: Bench, tmp_path: Path) -> None:
    steps: list[Step] = []
    request = replace(bench.request(tmp_path, "first", "RUN echo hello world"), no_cache=True)
    image = bench.engine.build(request, steps.append)
    (name,) = {step.name for step in steps if "RUN echo hello" in step.name}
    kinds = [step.kind for step in steps if step.name == name]
    assert kinds == ["started", "log", "done"]
    assert "hello world" in [step.text for step in steps]
    assert bench.engine.image(f"{bench.prefix}-first:t") == bench.engine.image(image.id) == image


def test_stage_builds_on_an_earlier_one(bench: Bench, tmp_path: Path) -> None:
    lines = ("FROM ${BASE} AS tools", "RUN echo \\", "# said first", "    one", "FROM tools", "RUN echo two")
    steps: list[Step] = []
    bench.engine.build(replace(bench.request(tmp_path, "stages", *lines), no_cache=True), steps.append)
    assert [step.text for step in steps if step.kind == "log"] == ["one", "two"]


def test_build_keeps_labels(bench: Bench, tmp_path: Path) -> None:
    labels = {"scratch": bench.prefix, "org.envbuilder.test": 'a "quoted" $word'}
    image = bench.engine.build(replace(bench.request(tmp_path, "labels"), labels=labels), lambda _: None)
    assert labels.items() <= dict(image.labels).items()


def test_extra_files_are_part_of_the_context(bench: Bench, tmp_path: Path) -> None:
    request = bench.request(tmp_path, "extra", "COPY added.txt /added.txt")
    one = bench.engine.build(replace(request, extra={"added.txt": b"1"}), lambda _: None)
    assert one.id != bench.engine.build(replace(request, extra={"added.txt": b"2"}), lambda _: None).id


def test_failed_step_is_named(bench: Bench, tmp_path: Path) -> None:
    steps: list[Step] = []
    with pytest.raises(BuildFailedError, match="RUN exit 3") as caught:
        bench.engine.build(bench.request(tmp_path, "failing", "RUN exit 3"), steps.append)
    assert caught.value.exit_code == 6
    assert [step.kind for step in steps if "RUN exit 3" in step.name] == ["started", "failed"]


def test_missing_base_is_not_the_images_fault(bench: Bench, tmp_path: Path) -> None:
    request = replace(bench.request(tmp_path, "nobase"), build_args={"BASE": "scratch-nonsuch:never"})
    with pytest.raises(InfrastructureError, match="scratch-nonsuch"):
        bench.engine.build(request, lambda _: None)


def test_exception_of_the_caller_passes_through(bench: Bench, tmp_path: Path) -> None:
    """An exception of the caller, even an OSError, is not taken for the engine's."""

    def full(_: Step) -> None:
        raise OSError("the log's disk is full")

    with pytest.raises(OSError, match="log's disk"):
        bench.engine.build(bench.request(tmp_path, "second"), full)


def test_tags_come_and_go(bench: Bench) -> None:
    bench.engine.tag(bench.base, f"{bench.prefix}:other")
    image = bench.engine.image(f"{bench.prefix}:other")
    assert set(image.tags) == {bench.base, f"{bench.prefix}:other"}
    assert bench.engine.names(bench.prefix) == tuple(sorted((bench.base, f"{bench.prefix}:other")))
    bench.engine.remove(f"{bench.prefix}:other")
    bench.engine.remove(f"{bench.prefix}:other")
    assert bench.engine.image(f"{bench.prefix}:other") is None
    assert bench.engine.image(bench.base) is not None
    assert bench.engine.names(bench.prefix) == (bench.base,)
    assert bench.engine.names(f"{bench.prefix}-no-such") == ()


def test_run_keeps_the_streams_apart(bench: Bench) -> None:
    out, err = bytearray(), bytearray()
    spec = ContainerSpec(bench.base, (SH, "-c", "echo out; echo err >&2; exit 7"))
    ended = bench.engine.run(spec, out.extend, err.extend)
    assert (bytes(out), bytes(err), ended.exit_code) == (b"out\n", b"err\n", 7)
    assert not ended.timed_out


@pytest.mark.parametrize("script", [MANY_BYTES, MANY_LINES])
def test_flood_is_stopped(bench: Bench, script: str) -> None:
    out = bytearray()
    spec = ContainerSpec(bench.base, (SH, "-c", script), output=200_000, lines=5_000)
    ended = bench.engine.run(spec, out.extend, lambda _: None)
    assert ended.flooded
    assert ended.exit_code == 137
    assert len(out) <= 200_000
    assert out.count(b"\n") <= 5_000
    assert b"never" not in out


def test_time_limit_kills(bench: Bench) -> None:
    ended = bench.engine.run(ContainerSpec(bench.base, (SH, "-c", "sleep 30"), time_limit=0.5), print, print)
    assert ended.timed_out
    assert ended.exit_code == 137
    assert ended.seconds < 10


def test_unknown_image_is_none_and_cannot_be_used(bench: Bench) -> None:
    unknown = "scratch-nonsuch:never"
    assert bench.engine.image(unknown) is None
    with pytest.raises(InfrastructureError, match="scratch-nonsuch"):
        bench.engine.run(ContainerSpec(unknown, ("true",)), print, print)
    with pytest.raises(InfrastructureError), bench.engine.export(unknown) as chunks:
        list(chunks)


def test_pull_that_nothing_answers_fails(bench: Bench) -> None:
    with pytest.raises(InfrastructureError, match="pull"):
        bench.engine.pull("127.0.0.1:1/scratch/nonsuch:never")
    with pytest.raises(InfrastructureError, match="reach"):
        bench.engine.reach("127.0.0.1:1/scratch/nonsuch:never")


def test_export_is_an_archive_with_a_manifest(bench: Bench) -> None:
    with bench.engine.export(bench.base) as chunks, tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
        assert "manifest.json" in archive.getnames()


def test_nothing_of_a_finished_run_is_left_to_sweep(bench: Bench) -> None:
    bench.engine.sweep()
    bench.engine.run(ContainerSpec(bench.base, (SH, "-c", "true"), files={"a": b""}), print, print)
    assert bench.engine.sweep() == 0
