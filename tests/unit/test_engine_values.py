"""Pure parts of the engine: archives, layers, GPU requests, output limits, and BuildKit's progress as recorded."""

import base64
import io
import json
import os
import tarfile
from pathlib import Path

import msgspec
import pytest
from docker import APIClient
from hypothesis import example, given
from hypothesis import strategies as st
from table_rows import rows

from envbuilder.engine.archive import MODIFIED, context_entries, stream
from envbuilder.engine.buildkit import Trace, fields
from envbuilder.engine.connection import Connection
from envbuilder.engine.containers import OutputLimit, gpu_requests
from envbuilder.engine.docker import DockerEngine, HistoryEntry, Inspected, to_image, to_layers
from envbuilder.engine.port import BuildRequest, ContainerSpec, Image
from envbuilder.errors import UsageError
from envbuilder.support.console import Step


def read(data: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {member.name: member for member in archive}


def test_equal_content_gives_equal_archives(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for folder, names in (("a", ("x", "y")), ("b", ("y", "x"))):
        for name in names:
            (tmp_path / folder / name).write_text(name)
            os.utime(tmp_path / folder / name, (len(folder + name) * ord(folder), ord(folder)))
    one, two = (b"".join(stream(context_entries(tmp_path / folder, {}))) for folder in "ab")
    assert one == two
    assert {member.mtime for member in read(one).values()} == {MODIFIED}


def test_archive_holds_folders_modes_links_and_long_names(tmp_path: Path) -> None:
    long = "/".join(["folder" * 5] * 6) + "/file"
    (tmp_path / "tool").write_bytes(b"#!")
    (tmp_path / "tool").chmod(0o700)
    (tmp_path / "link").symlink_to("tool")
    data = b"".join(stream(context_entries(tmp_path, {long: b"deep", "tool2": b"x" * 513})))
    members = read(data)
    assert members["tool"].mode == 0o755
    assert members["tool2"].mode == 0o644
    assert members["link"].linkname == "tool"
    assert members[long].size == 4
    assert members[long.split("/")[0]].isdir()
    assert len(data) % tarfile.BLOCKSIZE == 0


def test_first_header_has_no_extension(tmp_path: Path) -> None:
    """BuildKit recognises a context by a plain header in its first block, not by a pax header."""
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    first = b"".join(stream(context_entries(tmp_path, {})))[: tarfile.BLOCKSIZE]
    assert first.startswith(b"Dockerfile\0")
    assert first[156:157] == tarfile.REGTYPE


@pytest.mark.parametrize("name", ["/etc/passwd", "../up", "a/../../up"])
def test_paths_outside_the_context_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="inside a build context"):
        context_entries(tmp_path, {name: b""})


@rows
def test_layers_have_their_instructions(
    diff_ids: tuple[str, ...], history: list[HistoryEntry], sizes: list[int]
) -> None:
    """Every diff id appears once, in order, with the size of its instruction."""
    layers = to_layers(diff_ids, history)
    assert tuple(layer.diff_id for layer in layers) == diff_ids
    assert [layer.size for layer in layers] == sizes


def test_image_without_configuration_is_read() -> None:
    inspected = {"Id": "sha256:1", "Config": {"Env": None, "Labels": None, "Entrypoint": "sh"}}
    image = to_image(msgspec.convert(inspected, Inspected), [])
    assert (image.env, image.labels, image.entrypoint, image.layers) == ({}, {}, ("sh",), ())


def test_gpus_are_none_all_or_indices() -> None:
    assert gpu_requests("none") is None
    (every,) = gpu_requests("all") or []
    assert every["Count"] == -1
    (some,) = gpu_requests("0,2") or []
    assert some["DeviceIDs"] == ["0", "2"]


@pytest.mark.parametrize("gpus", ["", "0,", "GPU-1; rm", "-1"])
def test_other_gpu_texts_are_refused(gpus: str) -> None:
    with pytest.raises(UsageError, match="gpus"):
        gpu_requests(gpus)


@rows
def test_build_uses_the_hosts_network_for_a_proxy_on_loopback(proxy: str, network: str) -> None:
    """A build step cannot reach it otherwise."""
    connection = Connection(APIClient("tcp://127.0.0.1:1", version="1.41"))
    engine = DockerEngine(connection, {"https_proxy": proxy, "NO_PROXY": "localhost"})
    assert engine._build_query(BuildRequest(Path(), "a"))["networkmode"] == network


@rows
def test_image_is_pinned_in_the_repository_of_its_name(name: str, digest: str) -> None:
    """Two registries may have two digests for one image."""
    known = ("one.example:5000/tf@sha256:1", "two.example/tf@sha256:2")
    assert Image("sha256:0", (), known, 1, {}, {}, "", "amd64").pinned(name) == digest
    assert Image("sha256:0", (), (), 1, {}, {}, "", "amd64").pinned(name) is None


@given(
    st.lists(st.binary(max_size=20).map(lambda data: data.replace(b"a", b"\n")), max_size=12),
    st.integers(0, 40),
    st.integers(0, 6),
)
@example([b"\n\n", b"\n"], 40, 2)
def test_output_is_cut_to_the_longest_start_within_its_limits(pieces: list[bytes], size: int, lines: int) -> None:
    limit = OutputLimit(ContainerSpec("a:b", ("true",), output=size, lines=lines))
    output, cut = b"".join(pieces), b"".join(map(limit.cut, pieces))
    assert output.startswith(cut)
    assert len(cut) <= size
    assert cut.count(b"\n") <= lines
    assert limit.reached == (len(cut) < len(output))
    if limit.reached:  # one byte more would be above a limit
        more = output[: len(cut) + 1]
        assert len(more) > size or more.count(b"\n") > lines or cut.count(b"\n") == lines


RECORDED = Path(__file__).parents[1] / "golden" / "buildkit"


def replay(name: str) -> tuple[Trace, list[Step]]:
    steps: list[Step] = []
    trace = Trace()
    for line in (RECORDED / name).read_text().splitlines():
        record = json.loads(line)
        if record.get("id") == "moby.buildkit.trace":
            steps += trace.feed(base64.b64decode(record["aux"]))
    return trace, [*steps, *trace.finish()]


def varint(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80]) + varint(value >> 7) if value > 0x7F else bytes([value])


def block(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def log(text: str) -> bytes:
    return block(3, block(1, b"v") + block(4, text.encode()))


def vertex(*, started: int = 0, completed: int = 0, error: str = "", cached: bool = False) -> bytes:
    """Encode a message with one state of the vertex ``v``."""
    parts = block(1, b"v") + block(3, b"[1/1] RUN it") + (b"\x20\x01" if cached else b"")
    for number, seconds in ((5, started), (6, completed)):
        parts += block(number, b"\x08" + varint(seconds)) if seconds else b""
    return block(1, parts + (block(7, error.encode()) if error else b""))


def test_recorded_failure_is_read() -> None:
    trace, steps = replay("failed.jsonl")
    failure = trace.failure()
    assert failure.name.startswith("[3/3] RUN echo to stderr")
    assert failure.error.endswith("exit code: 3")
    assert list(failure.lines) == ["to stderr", "red"]
    assert [step.kind for step in steps if step.name == failure.name] == ["started", "log", "log", "failed"]
    second = [step for step in steps if step.name.startswith("[2/3]")]
    assert [step.text for step in second if step.kind == "log"] == ["one", "100%", "unfinished"]
    (done,) = [step for step in second if step.kind == "done"]
    assert 0.1 < done.seconds < 60


def test_recorded_cache_hits_differ_from_executed_steps() -> None:
    trace, steps = replay("cached.jsonl")
    assert {step.kind for step in steps if "RUN" in step.name} == {"cached"}
    assert trace.failure() is None


def test_every_recorded_step_ends_once() -> None:
    for name in ("failed.jsonl", "cached.jsonl"):
        _, steps = replay(name)
        ends = [step.name for step in steps if step.kind in {"done", "cached", "failed"}]
        assert len(ends) == len(set(ends)) > 3


@pytest.mark.parametrize(("error", "is_cause"), [("gone", True), ("context canceled", False)])
def test_error_after_the_end_counts_except_of_a_cancelled_step(error: str, *, is_cause: bool) -> None:
    trace = Trace()
    messages = (vertex(started=5, completed=6), vertex(started=7), vertex(started=7, completed=8, error=error))
    kinds = [step.kind for message in messages for step in trace.feed(message)]
    assert kinds == ["started", "done", "failed"]
    assert (trace.failure() is not None) is is_cause


@given(st.text(alphabet=st.sampled_from("ab\n"), max_size=40), st.integers(1, 7))
def test_lines_do_not_depend_on_how_they_are_cut(text: str, size: int) -> None:
    trace = Trace()
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    steps = [step for piece in pieces for step in trace.feed(log(piece))] + list(trace.finish())
    assert [step.text for step in steps] == text.split("\n")[: None if text.rpartition("\n")[2] else -1]


@rows
def test_wire_format(data: str, found: list[tuple[int, int | str]]) -> None:
    read_ = [(number, one.decode() if isinstance(one, bytes) else one) for number, one in fields(bytes.fromhex(data))]
    assert read_ == found


@pytest.mark.parametrize("data", [b"\x08", b"\x12\x07test", b"\x0d\x01", b"\x0b", b"\x08" + b"\xff" * 11])
def test_broken_message_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="byte"):
        list(fields(data))
