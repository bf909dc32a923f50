"""A manifest's very containers, in the very image, by the engine with the pod's restrictions: exported, and run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from pods import run_pod, runner_image
from registries import docker_registry
from small_kubernetes import small_kubernetes

from envbuilder.attest.keys import PRIVATE, PUBLIC, create
from envbuilder.engine.docker import connect

pytestmark = [pytest.mark.engine, pytest.mark.full]

ENVIRONMENT = "tf2.20.0-py311-cpu-bookworm-runtime"
TAG = "envbuilder-test/runner:latest"


def test_a_job_proves_its_image_from_within(tmp_path: Path) -> None:
    """Exported, run and attached: `verify` accepts the digest by what the pod said; run again, it finds that it stands.

    `fleet run --kubernetes` comes to the same by the real kubectl, for whoever trusts another key.
    The image under test has a root that it cannot write, no capability, no privilege to gain, and no secret.
    """
    engine = connect()
    image = engine.image(f"envbuilder/tensorflow:{ENVIRONMENT}")
    if image is None:
        pytest.skip(f"{ENVIRONMENT} is not built here: envbuilder run quickstart")
    create(tmp_path / "keys")
    key = ("--key", str(tmp_path / "keys" / PUBLIC))
    (tmp_path / "matrix.yaml").write_text(
        "name: proof\ninclude:\n"
        "  - {tensorflow: 2.20.0, flavor: cpu, python: '3.11', os: debian-bookworm, form: runtime}\n"
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
            if shutil.which("kubectl") is not None:
                run_in_cluster(tmp_path, repository, digest, runner)
        finally:
            for name in (tag, f"{repository}@{digest}"):
                engine.remove(name)
            engine.remove(TAG)


def run_in_cluster(folder: Path, repository: str, digest: str, runner: str) -> None:
    """Prove the digest by `fleet run --kubernetes`, for whoever trusts another key than before."""
    anew = folder / "anew"
    create(anew)
    key = ("--key", str(anew / PUBLIC))
    words = ("--fleet", "fleet.yaml", "--from", repository, *key, "--kubernetes", "--runner", runner)
    nodes = {"plain": {"kubernetes.io/arch": "amd64"}}
    with small_kubernetes(folder, nodes, partial(Pod.of, folder, anew)) as (cluster, variables):
        ran = envbuilder(folder, "fleet", "run", "matrix.yaml", *words, **variables)
    assert (ran.returncode, "1 passed" in ran.stdout) == (0, True), (ran.stdout, ran.stderr)
    assert list(cluster.begun.values()) == [1]
    assert envbuilder(folder, "verify", f"{repository}@{digest}", *key).returncode == 0


@dataclass
class Pod:
    """A pod that the engine runs, with the pod's restrictions; it is waited for in a thread of its own."""

    came: Future[tuple[int, str]]

    @classmethod
    def of(
        cls, folder: Path, keys: Path, node: str, spec: Mapping[str, Any], maps: Mapping[str, Mapping[str, str]]
    ) -> Pod:
        (order,) = maps.values()
        contents = {
            "order": {name: content.encode() for name, content in order.items()},
            "key": {"envbuilder.key": (keys / PRIVATE).read_bytes()},
        }
        pool = ThreadPoolExecutor(1)
        return cls(pool.submit(run_pod, spec, folder / f"pod-on-{node}", contents))

    def ended(self) -> int | None:
        return self.came.result()[0] if self.came.done() else None

    def said(self) -> str:
        return self.came.result()[1]

    def kill(self) -> None:
        """Leave it to end by itself: nothing here is killed."""


def envbuilder(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "envbuilder", *words)
    environment = {**os.environ, **variables}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
