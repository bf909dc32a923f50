"""The engine room's pure parts: archives, layers from history, and the words for GPUs."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from docker import APIClient

from envbuilder.engine.archive import MODIFIED, context_entries, stream
from envbuilder.engine.containers import _gpus
from envbuilder.engine.docker import DockerEngine
from envbuilder.engine.images import to_image, to_layers
from envbuilder.engine.port import BuildRequest, Image
from envbuilder.errors import UsageError

RUN = {"CreatedBy": "RUN /bin/sh -c make # buildkit", "Size": 7}
EMPTY_RUN = {"CreatedBy": "RUN /bin/sh -c true # buildkit", "Size": 0}
ENV = {"CreatedBy": "ENV A=b", "Size": 0}
CLASSIC_CMD = {"CreatedBy": '/bin/sh -c #(nop)  CMD ["sh"]', "Size": 0}
BASE = {"CreatedBy": "", "Size": 100}


def read(data: bytes) -> dict[str, tarfile.TarInfo]:
    """Open an archive with the standard library's own reader."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {member.name: member for member in archive}


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    """Times, owners and the order of creation leave no trace in an archive."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for folder, names in (("a", ("x", "y")), ("b", ("y", "x"))):
        for name in names:
            (tmp_path / folder / name).write_text(name)
            os.utime(tmp_path / folder / name, (len(folder + name) * ord(folder), ord(folder)))
    one, two = (b"".join(stream(context_entries(tmp_path / folder, {}))) for folder in "ab")
    assert one == two
    assert {member.mtime for member in read(one).values()} == {MODIFIED}


def test_an_archive_holds_folders_modes_links_and_long_names(tmp_path: Path) -> None:
    """A standard reader finds every file, its folders first, executables executable and links as links."""
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


def test_the_first_header_needs_no_extension(tmp_path: Path) -> None:
    """BuildKit looks for a plain header in the first block of a context, and knows no pax header there."""
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    first = b"".join(stream(context_entries(tmp_path, {})))[: tarfile.BLOCKSIZE]
    assert first.startswith(b"Dockerfile\0")
    assert first[156:157] == tarfile.REGTYPE


@pytest.mark.parametrize("name", ["/etc/passwd", "../up", "a/../../up"])
def test_paths_stay_inside_the_context(tmp_path: Path, name: str) -> None:
    """A path that is absolute or climbs out is refused."""
    with pytest.raises(UsageError, match="inside a build context"):
        context_entries(tmp_path, {name: b""})


@pytest.mark.parametrize(
    ("diff_ids", "history", "sizes"),
    [
        (("b", "r"), [CLASSIC_CMD, RUN, ENV, BASE], [100, 7]),
        (("b", "e", "r"), [RUN, ENV, EMPTY_RUN, BASE], [100, 0, 7]),
        (("b", "r"), [RUN, EMPTY_RUN, BASE], [100, 7]),
        (("b", "x"), [], [0, 0]),
        ((), [ENV], []),
    ],
    ids=["metadata", "an empty layer", "more entries than layers", "no history", "scratch"],
)
def test_layers_are_paired_with_what_made_them(
    diff_ids: tuple[str, ...], history: list[dict[str, object]], sizes: list[int]
) -> None:
    """Every diff id appears once, in order, with the size of the instruction that made it."""
    layers = to_layers(diff_ids, history)
    assert tuple(layer.diff_id for layer in layers) == diff_ids
    assert [layer.size for layer in layers] == sizes


def test_an_image_without_configuration_is_read() -> None:
    """Fields that an engine leaves out or sets to null are empty, not errors."""
    image = to_image({"Id": "sha256:1", "Config": {"Env": None, "Labels": None, "Entrypoint": "sh"}}, [])
    assert (image.env, image.labels, image.entrypoint, image.layers) == ({}, {}, ("sh",), ())


def test_gpus_by_word_and_index() -> None:
    """``none`` asks for nothing, ``all`` for every GPU, numbers for those."""
    assert _gpus("none") is None
    (every,) = _gpus("all") or []
    assert every["Count"] == -1
    (some,) = _gpus("0,2") or []
    assert some["DeviceIDs"] == ["0", "2"]


@pytest.mark.parametrize("wish", ["", "0,", "GPU-1; rm", "-1"])
def test_other_words_for_gpus_are_refused(wish: str) -> None:
    """Nothing else reaches the engine."""
    with pytest.raises(UsageError, match="gpus"):
        _gpus(wish)


@pytest.mark.parametrize(
    ("proxy", "network"),
    [
        ("http://127.0.0.1:3128", "host"),
        ("http://user:word@localhost:3128/", "host"),
        ("[::1]:8080", "host"),
        ("http://127.0.0.1.example:3128", "default"),
        ("http://proxy.example:3128", "default"),
    ],
)
def test_a_proxy_on_loopback_is_reached_through_the_hosts_network(proxy: str, network: str) -> None:
    """A build step could not reach it otherwise; a wish for another network is kept."""
    engine = DockerEngine(
        APIClient("tcp://127.0.0.1:1", version="1.41"), {"https_proxy": proxy, "NO_PROXY": "localhost"}
    )
    assert engine._network(BuildRequest(Path(), "a")) == network
    assert engine._network(BuildRequest(Path(), "a", network="none")) == "none"


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("one.example:5000/tf:2.20", "one.example:5000/tf@sha256:1"),
        ("two.example/tf", "two.example/tf@sha256:2"),
        ("two.example/tf@sha256:2", "two.example/tf@sha256:2"),
        ("elsewhere/tf:2.20", "one.example:5000/tf@sha256:1"),
    ],
)
def test_an_image_is_pinned_in_the_repository_it_was_named_in(name: str, digest: str) -> None:
    """Two registries may know one image by two digests: the one that was asked for counts."""
    known = ("one.example:5000/tf@sha256:1", "two.example/tf@sha256:2")
    image = Image("sha256:0", (), known, 1, {}, {}, "", "amd64")
    assert image.pinned(name) == digest
    assert Image("sha256:0", (), (), 1, {}, {}, "", "amd64").pinned(name) is None
