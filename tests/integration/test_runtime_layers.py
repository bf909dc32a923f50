"""Every layer is the same bytes wherever, whenever and however it is built: by envbuilder, and by `docker build`."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from envbuilder.catalog.store import load
from envbuilder.choice import choose
from envbuilder.engine.docker import DockerEngine, connect
from envbuilder.engine.port import BuildRequest
from envbuilder.environment import Environment
from envbuilder.image.bases import ensure_base
from envbuilder.image.context import build_files, standalone, system_of
from envbuilder.image.ensure import ensure
from envbuilder.image.hostfiles import host_files
from envbuilder.image.lockfile import LOCK
from envbuilder.image.names import reference
from envbuilder.workspace import Workspace, cache_dir, write_atomically

pytestmark = [
    pytest.mark.engine,
    pytest.mark.network,
    pytest.mark.full,
    pytest.mark.timeout(3600),
]
HERE = Workspace(Path(__file__).parents[2])
TAG = "envbuilder-test/layers"
LONG_AGO = 1_000_000_000


def layers(engine: DockerEngine, name: str) -> list[str]:
    image = engine.image(name)
    assert image is not None
    return [layer.diff_id for layer in image.layers]


@pytest.fixture
def engine() -> Iterator[DockerEngine]:
    engine = connect()
    yield engine
    engine.remove(TAG)


def environment(name: str) -> Environment:
    (found,) = choose("tensorflow", (name,), HERE, load()).environments
    return found


@pytest.mark.parametrize("name", ["tf2.20.0-py311-cpu-bookworm-runtime", "tf2.20.0-py39-cpu-bullseye-runtime"])
def test_two_builds_make_the_same_layers(name: str, tmp_path: Path, engine: DockerEngine) -> None:
    """A build by hand from another folder, with other times and modes of files and no cache, gives every layer again.

    Before Python 3.11 byte code depends on the hash seed, which the steps fix.
    """
    one = environment(name)
    ensure(one, load(), HERE, engine, lambda _: None)
    folder = tmp_path / "elsewhere"
    for path, content in {**build_files(name, HERE), **host_files(folder="shared/host")}.items():
        write_atomically(folder / path, content)
        (folder / path).chmod(0o755)
        os.utime(folder / path, (LONG_AGO, LONG_AGO))
    base = ensure_base(engine, system_of(one, load()), cache_dir() / "bases", lambda _: None)
    request = BuildRequest(
        context=folder, tag=TAG, dockerfile=f"{name}/Dockerfile", build_args={"BASE": base.reference}, no_cache=True
    )
    engine.build(request, lambda _: None)
    assert layers(engine, TAG) == layers(engine, reference(name))


def test_a_standalone_folder_makes_the_same_layers(tmp_path: Path, engine: DockerEngine) -> None:
    name = "tf2.20.0-py311-cpu-bookworm-runtime"
    one = environment(name)
    built = ensure(one, load(), HERE, engine, lambda _: None)
    standalone(one, (HERE.context(name) / LOCK).read_text(), HERE, tmp_path / "alone")
    base = ensure_base(engine, system_of(one, load()), cache_dir() / "bases", lambda _: None)
    request = BuildRequest(
        context=tmp_path / "alone",
        tag=TAG,
        extra=host_files(folder="shared/host"),
        build_args={"BASE": base.reference},
    )
    engine.build(request, lambda _: None)
    assert layers(engine, TAG) == [layer.diff_id for layer in built.record.layers]


def test_no_layer_holds_the_day_of_its_build(tmp_path: Path, engine: DockerEngine) -> None:
    """No file, folder or whiteout has a time of the build, and no account says on which day it was made."""
    name = "tf2.20.0-py311-cpu-bookworm-runtime"
    built = ensure(environment(name), load(), HERE, engine, lambda _: None)
    started = datetime.fromisoformat(built.record.started).timestamp()
    saved = tmp_path / "image.tar"
    with engine.export(built.record.image) as pieces, saved.open("wb") as file:
        file.writelines(pieces)
    accounts = []
    with tarfile.open(saved) as image:
        for layer in (member for member in image if member.name.endswith("/layer.tar")):
            content = image.extractfile(layer)
            assert content is not None
            with tarfile.open(fileobj=content) as files:
                for one in files:
                    assert one.mtime < started - 3600, f"{one.name} has a time of the build"
                    if one.name == "etc/shadow" and (shadow := files.extractfile(one)) is not None:
                        lines = shadow.read().decode().splitlines()
                        accounts += [line for line in lines if line.startswith("envbuilder:")]
    assert [line.split(":")[2] for line in accounts] == ["18262"], "2020-01-01"
