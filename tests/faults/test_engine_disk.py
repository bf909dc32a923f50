"""An engine whose disk is full, has no inodes left, or stands still: another dockerd, its data on a disk of its own."""

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from command_line import envbuilder
from factories import workspace
from own_engine import OwnEngine, own_engine
from tiny_image import write_tiny_root

from envbuilder.engine.port import BuildRequest, ContainerSpec
from envbuilder.errors import InfrastructureError

pytestmark = pytest.mark.engine

MEGABYTES = 160
INODES = 1500
"""Enough for the engine itself and a small image."""


class SmallEngine(OwnEngine):
    """An engine of its own on a small disk, and what fills that."""

    def fill(self) -> None:
        with (self.folder / "disk" / "filling").open("wb") as file, suppress(OSError):
            while True:
                file.write(b"\0" * (1 << 16))

    def free(self) -> None:
        (self.folder / "disk" / "filling").unlink()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallEngine]:
    """Run another engine, its data on a disk in a file; only root can."""
    folder = tmp_path_factory.mktemp("engine")
    image, mount = folder / "disk.img", folder / "disk"
    image.touch()
    os.truncate(image, MEGABYTES << 20)
    mount.mkdir()
    if os.geteuid() != 0 or not shutil.which("mkfs.ext4"):
        pytest.skip("needs a disk of its own: only root may make one")
    subprocess.run(["mkfs.ext4", "-q", "-F", "-N", str(INODES), image], check=True)
    if subprocess.run(["mount", "-o", "loop", image, mount], check=False).returncode:
        pytest.skip("no loop device here")
    try:
        with own_engine(SmallEngine(folder, mount / "docker")) as made:
            yield made
    finally:
        subprocess.run(["umount", "-l", mount], check=True)


@pytest.fixture(scope="module")
def base(small: SmallEngine, tmp_path_factory: pytest.TempPathFactory) -> str:
    tar = tmp_path_factory.mktemp("base") / "base.tar"
    write_tiny_root(tar)
    small.connect().import_base(tar, "tiny:base", {})
    return "tiny:base"


def request(base: str, folder: Path, line: str) -> BuildRequest:
    (folder / "Dockerfile").write_text(f"FROM {base}\nRUN {line}\n")
    return BuildRequest(context=folder, tag="tiny:built")


def test_build_that_fills_the_disk_says_so_and_leaves_nothing(small: SmallEngine, base: str, tmp_path: Path) -> None:
    engine = small.connect()
    with pytest.raises(InfrastructureError, match="disk is full") as told:
        engine.build(request(base, tmp_path, "dd if=/dev/zero of=/big bs=1M count=400"), lambda _: None)
    assert "envbuilder clean" in told.value.hint
    assert engine.build(request(base, tmp_path, "touch /small"), lambda _: None).id


def test_build_without_inodes_says_so(small: SmallEngine, base: str, tmp_path: Path) -> None:
    many = "i=0; while [ $i -lt 5000 ]; do : >/f$i || exit 1; i=$((i+1)); done"
    with pytest.raises(InfrastructureError, match="disk is full"):
        small.connect().build(request(base, tmp_path, many), lambda _: None)


def test_container_on_a_full_disk_is_no_verdict_and_leaves_nothing(small: SmallEngine, base: str) -> None:
    spec = ContainerSpec(
        base, ("/bin/sh", "-c", "cat /envbuilder/a | wc -c || echo ran"), files={"a": b"x" * (4 << 20)}
    )
    engine = small.connect()
    small.fill()
    try:
        with pytest.raises(InfrastructureError):
            engine.run(spec, lambda _: None, lambda _: None)
    finally:
        small.free()
    assert small.left() == ""
    assert engine.run(spec, lambda _: None, lambda _: None).exit_code == 0
    assert small.left() == ""


def test_base_on_a_full_disk_is_our_error(small: SmallEngine, base: str, tmp_path: Path) -> None:
    engine = small.connect()
    write_tiny_root(tmp_path / "base.tar")
    small.fill()
    try:
        with pytest.raises(InfrastructureError):
            engine.import_base(tmp_path / "base.tar", "tiny:other", {"other": "1"})
    finally:
        small.free()
    assert engine.image("tiny:other") is None


def test_command_says_beforehand_that_there_is_no_room(small: SmallEngine, tmp_path: Path) -> None:
    workspace(tmp_path, "tf2.20.0-py311-cpu-bookworm")
    done = envbuilder(tmp_path, "build", DOCKER_HOST=small.host)
    assert done.returncode == 5, done.stdout + done.stderr
    assert "GB" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_slow_disk_is_waited_for(small: SmallEngine, base: str, tmp_path: Path) -> None:
    """While every write waits, a build waits too; it continues with the disk, and its image is right."""
    frozen = subprocess.run(["fsfreeze", "-f", small.folder / "disk"], check=False).returncode == 0
    if not frozen:
        pytest.skip("this file system cannot be frozen")
    threading.Timer(4.0, subprocess.run, (["fsfreeze", "-u", small.folder / "disk"],)).start()
    began = time.monotonic()
    assert small.connect().build(request(base, tmp_path, f"touch /late{os.getpid()}"), lambda _: None).id
    assert time.monotonic() - began > 2.0
