"""Every layer is the same bytes wherever, whenever and however it is built: by envbuilder, and by `docker build`."""

import os
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest
from own_engine import wait_for_engine

from envbuilder.catalog.store import load
from envbuilder.choice import choose
from envbuilder.engine.docker import DockerEngine, connect
from envbuilder.environment import Environment
from envbuilder.image.build import Built, ensure
from envbuilder.image.context import build_files
from envbuilder.image.host_settings import host_files
from envbuilder.validation import known_image
from envbuilder.validation.image_files import read_image
from envbuilder.validation.layer_scan import FileRow
from envbuilder.workspace import Workspace, write_atomically

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.full, pytest.mark.timeout(3600)]
HERE = Workspace(Path(__file__).parents[2])
TAG = "envbuilder-test/layers"
LONG_AGO = 1_000_000_000
CPU, GPU = "tf2.20.0-py311-cpu-bookworm-runtime", "tf2.20.0-py311-cu12.5-cudnn9.3-bookworm-runtime"


def assert_recorded(other: DockerEngine, built: Built, engine: DockerEngine) -> None:
    """Compare an image of another engine with the committed record, or with envbuilder's own build if there is none.

    A layer with another digest may have its entries in another order only: Docker 20.10 writes them by path or folder
    by folder, by a race, if the engine has an equal layer below already.
    """
    image, base = other.image(TAG), other.image(built.record.base)
    assert image is not None
    if built.known:
        known = known_image.parse(built.known, known_image.key_of(built.record.context))
        assert known is not None, "image.json is of other build files"
        assert known_image.differences(known, image, base, (), lambda: read_image(other, image)) == ()
    elif [layer.diff_id for layer in image.layers] != [layer.diff_id for layer in built.record.layers]:
        assert files_of_layers(other, TAG) == files_of_layers(engine, built.record.image)


@pytest.fixture(scope="module")
def engine() -> DockerEngine:
    return connect()


def environment(name: str) -> Environment:
    (found,) = choose("tensorflow", (name,), HERE, load()).environments
    return found


@pytest.mark.parametrize("name", [CPU, GPU])
def test_docker_build_by_hand_gives_the_recorded_layers(name: str, tmp_path: Path, engine: DockerEngine) -> None:
    built = ensure(environment(name), load(), HERE, engine, lambda _: None)
    with second_engine(tmp_path, "mount -t tmpfs none /run") as host:
        assert_recorded(docker_build(built, host, tmp_path), built, engine)


BRIDGE, ADDRESS = "eb-second", "172.29.0.1/16"
"""With a bridge of the host's own, this engine would take it from the host's engine."""


@contextmanager
def second_engine(folder: Path, *before: str, chroot: str = "") -> Iterator[str]:
    """Start an empty engine beside the host's, after some shell commands; yield its address for DOCKER_HOST.

    Docker 20.10 may panic if builds that nothing holds apart have steps in common, and takes other tests with it.
    """
    if os.geteuid() != 0:
        pytest.skip("only root can run another engine")
    socket = folder / "engine.sock"
    words = [*before, f"exec {chroot} dockerd --bridge {BRIDGE}"]
    words[-1] += " --host unix:///engine.sock" if chroot else f" --host unix://{socket} --data-root {folder}/docker"
    _run("ip", "link", "add", BRIDGE, "type", "bridge")
    _run("ip", "address", "add", ADDRESS, "dev", BRIDGE)
    _run("ip", "link", "set", BRIDGE, "up")
    with (folder / "engine.log").open("wb") as log:
        daemon = subprocess.Popen(["unshare", "--mount", "sh", "-ec", "\n".join(words)], stdout=log, stderr=log)
        try:
            wait_for_engine(f"unix://{socket}", folder / "engine.log")
            yield f"unix://{socket}"
        finally:
            daemon.terminate()
            daemon.wait(60)
            _run("ip", "link", "delete", BRIDGE)


@contextmanager
def newer_docker(root: Path) -> Iterator[str]:
    """Install the engine of a newer Debian below ``root`` and start it."""
    packages = "--include=docker.io,iptables,ca-certificates"
    _run("mmdebstrap", "--quiet", "--variant=apt", packages, "trixie", str(root))
    (root / "etc/resolv.conf").write_bytes(Path("/etc/resolv.conf").read_bytes())
    mounts = [f"mount --bind {root} {root}"]  # the engine wants / to be a mount
    mounts += [f"mount --rbind /{name} {root}/{name}" for name in ("proc", "sys", "dev")]
    with second_engine(root, *mounts, chroot=f"chroot {root}") as host:
        yield host


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=600)


def test_newer_docker_makes_layers_of_the_same_files(tmp_path: Path, engine: DockerEngine) -> None:
    """Docker 20.10 writes the owner's name and the file's type into each tar header, Docker 26 does not."""
    built = ensure(environment(CPU), load(), HERE, engine, lambda _: None)
    with newer_docker(tmp_path / "debian") as host:
        newer = docker_build(built, host, tmp_path)
        assert int(newer.info().version.split(".")[0]) > int(engine.info().version.split(".")[0])
        assert files_of_layers(newer, TAG) == files_of_layers(engine, built.record.image)


def files_of_layers(engine: DockerEngine, name: str) -> list[dict[str, FileRow]]:
    image = engine.image(name)
    assert image is not None
    return [{row.path: row for row in layer.rows} for layer in read_image(engine, image).records]


def docker_build(built: Built, host: str, folder: Path) -> DockerEngine:
    """Build in another engine as images/README.md says, from a copy of images/ with other times and modes of files.

    The copy has this host's package index. A client from Docker 23 needs the plugin buildx for BuildKit; the one of
    Debian 12 has it inside.
    """
    name, base, images, saved = built.environment.id, built.record.base, folder / "images", folder / "base.tar"
    for path, content in {**build_files(name, HERE), **host_files(folder="shared/host")}.items():
        write_atomically(images / path, content)
        (images / path).chmod(0o755)
        os.utime(images / path, (LONG_AGO, LONG_AGO))
    _run("docker", "save", "--output", str(saved), base)
    _run("docker", "-H", host, "load", "--input", str(saved))
    words = ["/usr/bin/docker", "-H", host, "build", "--quiet", "--tag", TAG, "--build-arg", f"BASE={base}"]
    words += ["--file", f"{name}/Dockerfile", "."]
    subprocess.run(words, cwd=images, env={**os.environ, "DOCKER_BUILDKIT": "1"}, check=True, timeout=1800)
    return connect({**os.environ, "DOCKER_HOST": host})


def test_no_layer_holds_the_day_of_its_build(tmp_path: Path, engine: DockerEngine) -> None:
    """No file, folder or whiteout has a time of the build, and no account says on which day it was made."""
    built = ensure(environment(CPU), load(), HERE, engine, lambda _: None)
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
