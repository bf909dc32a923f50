"""The very command of an exported manifest, in the very image, by the engine with the pod's restrictions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pods import run_pod, runner_image
from registries import docker_registry

from envbuilder.attest.keys import PRIVATE, PUBLIC, create
from envbuilder.engine.docker import connect

pytestmark = [pytest.mark.engine, pytest.mark.long]

ENVIRONMENT = "tf2.20.0-py311-cpu-bookworm"
TAG = "envbuilder-test/runner:latest"


def test_a_job_proves_its_image_from_within(tmp_path: Path) -> None:
    """Exported, run and attached: `verify` accepts the digest by what the pod said; run again, it finds that it stands.

    The image under test has a root that it cannot write, no capability, no privilege to gain, and no secret.
    """
    engine = connect()
    image = engine.image(f"envbuilder/tensorflow:{ENVIRONMENT}")
    if image is None:
        pytest.skip(f"{ENVIRONMENT} is not built here: envbuilder run quickstart")
    create(tmp_path / "keys")
    key = ("--key", str(tmp_path / "keys" / PUBLIC))
    (tmp_path / "matrix.yaml").write_text(
        "name: proof\ninclude:\n  - {tensorflow: 2.20.0, flavor: cpu, python: '3.11', os: debian-bookworm}\n"
    )
    (tmp_path / "fleet.yaml").write_text("- {name: plain, arch: x86_64, labels: {kubernetes.io/arch: amd64}}\n")
    with docker_registry(tmp_path / "registry") as address:
        repository, tag = f"{address}/team/image", f"{address}/team/image:{ENVIRONMENT}"
        engine.tag(image.id, tag)
        try:
            digest = engine.push(tag)
            runner = runner_image(tmp_path / "runner", "envbuilder/base:debian-bookworm", TAG)
            words = ("--fleet", "fleet.yaml", "--from", repository, *key, "--runner", runner, "-o", "jobs")
            exported = envbuilder(tmp_path, "fleet", "export", "kubernetes", "matrix.yaml", *words)
            assert exported.returncode == 0, exported.stderr
            assert "missing" in exported.stdout, exported.stdout
            (path,) = (tmp_path / "jobs").iterdir()
            order, job = yaml.safe_load_all(path.read_text())
            contents = {
                "order": {"order.json": order["data"]["order.json"].encode()},
                "key": {"envbuilder.key": (tmp_path / "keys" / PRIVATE).read_bytes()},
            }
            spec = job["spec"]["template"]["spec"]
            code, said = run_pod(spec, tmp_path / "first", contents)
            assert code == 0, said
            assert "attached" in said
            verified = envbuilder(tmp_path, "verify", f"{repository}@{digest}", *key)
            assert verified.returncode == 0, verified.stdout
            assert ENVIRONMENT in verified.stdout
            again, said = run_pod(spec, tmp_path / "second", contents)
            assert (again, "stands" in said) == (0, True), said
        finally:
            for name in (tag, f"{repository}@{digest}"):
                engine.remove(name)
            engine.remove(TAG)


def envbuilder(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "envbuilder", *words)
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
