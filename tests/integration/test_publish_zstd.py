"""An image in zstd, from a real engine through a real registry into a containerd of its own, which runs it."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from factories import gpu_environment, gpu_verdict
from publishing_world import ENVIRONMENT, World
from registries import docker_registry
from tiny_image import write_tiny_root

from envbuilder.attest.keys import create
from envbuilder.attest.requirements import EnvironmentRequirement, Requirement
from envbuilder.engine.docker import connect
from envbuilder.errors import InfrastructureError
from envbuilder.publish.publish_all import publish
from envbuilder.publish.zstd_push import ZstdPusher
from envbuilder.registry.reference import Reference
from envbuilder.verdict import ImageRef, Verdict

pytestmark = pytest.mark.engine

SCRATCH = "scratch-zstd:1"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with docker_registry(tmp_path / "registry") as host:
        made = World(connect(), create(tmp_path / "keys"), tmp_path, host, "team/image")
        write_tiny_root(tmp_path / "root.tar")
        made.engine.import_base(tmp_path / "root.tar", SCRATCH, {})
        yield made
        image = made.engine.image(SCRATCH)
        for name in (*image.tags, *image.digests):
            with suppress(InfrastructureError):
                made.engine.remove(name)


@contextmanager
def containerd(folder: Path) -> Iterator[list[str]]:
    """Run a containerd of its own, beside the engine's; yields how its client is called."""
    program = shutil.which("containerd")
    if os.geteuid() or program is None or shutil.which("ctr") is None:
        pytest.skip("needs containerd, and root, to run one")
    address = folder / "c.sock"
    config = folder / "config.toml"
    config.write_text(
        "version = 2\n"
        'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
        f'root = "{folder / "root"}"\nstate = "{folder / "state"}"\n'
        f'[grpc]\n  address = "{address}"\n'
    )
    with (folder / "containerd.log").open("wb") as log:
        process = subprocess.Popen([program, "--config", str(config)], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 20
        while not address.exists() and time.monotonic() < deadline:
            assert process.poll() is None, (folder / "containerd.log").read_text()[-2000:]
            time.sleep(0.1)
        yield ["ctr", "--address", str(address), "--namespace", "envbuilder-tests"]
    finally:
        process.terminate()
        process.wait(20)


def test_containerd_pulls_and_runs_the_image_in_zstd(world: World, tmp_path: Path) -> None:
    image = world.engine.image(SCRATCH)

    def judge(reference: Reference) -> Verdict:
        seen = ImageRef(id=image.id, digest=reference.digest, reference=str(reference))
        return gpu_verdict(image=seen, environment=gpu_environment(id=ENVIRONMENT))

    row = publish(world.publication(SCRATCH), world.tools(judge, zstd=ZstdPusher(world.client(), tmp_path)))
    assert not row.error
    demand = Requirement(level="gpu", environment=EnvironmentRequirement(ENVIRONMENT))
    assert world.verified(demand=demand).accepted
    with containerd(tmp_path) as ctr:
        name = f"{world.reference.name}:{ENVIRONMENT}"
        pull = ["images", "pull", "--snapshotter", "native", "--plain-http", name]
        pulled = subprocess.run([*ctr, *pull], capture_output=True, text=True, check=False, timeout=60)
        assert pulled.returncode == 0, pulled.stderr
        listed = subprocess.run([*ctr, "content", "ls", "-q"], capture_output=True, text=True, check=True, timeout=60)
        assert {image.id, row.digest} <= set(listed.stdout.split())
        run = ["run", "--rm", "--snapshotter", "native", name, "proof", "/bin/cat", "/etc/passwd"]
        ran = subprocess.run([*ctr, *run], capture_output=True, text=True, check=False, timeout=60)
        assert ran.stdout == "root:x:0:0:root:/:/bin/sh\n", ran.stderr
