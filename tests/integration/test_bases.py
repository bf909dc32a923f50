"""Bases from real registries: with a password and an own authority, by a mirror, and refused with the reason."""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from apt_repository import Archive, Signer, served
from certificates import certificate
from command_line import ran
from factories import resolved
from made_objects import cudnn_part, run_time, shared_object
from registries import SECRET_BCRYPT, docker_registry, login, own_address

from envbuilder.catalog.store import load
from envbuilder.engine import archive
from envbuilder.engine.docker import connect
from envbuilder.engine.port import BuildRequest
from envbuilder.errors import BuildFailedError
from envbuilder.image import system_lock
from envbuilder.image.bases import ensure_base
from envbuilder.image.context import templates
from envbuilder.image.host_settings import host_files
from envbuilder.image.render import render_context
from envbuilder.image.system_lock import CUDNN_LOCK, SYSTEM_LOCK
from envbuilder.probes.suite import loader
from envbuilder.support import dpkg_status
from envbuilder.validation.image_files import read_image

pytestmark = pytest.mark.engine

LIB = "usr/lib/x86_64-linux-gnu"
DEBIAN: dict[str, archive.Source] = {
    "etc/os-release": b'ID=debian\nVERSION_ID="12"\n',
    "usr/bin/apt-get": b"#!",
    f"{LIB}/libc.so.6": Path(loader.Search().find("libc.so.6")[0] or "").resolve(),
    "usr/lib/python3.11/venv/__init__.py": b"",
}
CUDA: dict[str, archive.Source] = {
    f"{LIB}/libcudart.so.11.0": run_time(11080),
    f"{LIB}/libcudnn.so.8": shared_object("libcudnn.so.8"),
    f"{LIB}/libcudnn_ops_infer.so.8": cudnn_part((8, 6, 0)),
    **{
        f"{LIB}/{name}": shared_object(name)
        for name in (
            *("libcublas.so.11", "libcublasLt.so.11", "libcufft.so.10"),
            *("libcurand.so.10", "libcusolver.so.11", "libcusparse.so.11"),
        )
    },
}


@dataclass
class Desk:
    folder: Path
    capsys: pytest.CaptureFixture[str]
    made: list[str]

    def run(self, *words: str) -> tuple[int, str, str]:
        return ran(self.capsys, *words)

    def push(self, name: str, files: dict[str, archive.Source]) -> None:
        programs = self.folder / "python"
        programs.write_bytes(b"#!/bin/sh\n")
        programs.chmod(0o755)
        tar = self.folder / "root.tar"
        with tar.open("wb") as file:
            for chunk in archive.stream({**files, "usr/bin/python3.11": programs}):
                file.write(chunk)
        engine = connect()
        engine.import_base(tar, name, {"org.envbuilder.test": "bases"})
        self.made.append(name)
        moved: list[int] = []
        engine.push(name, lambda done, _: moved.append(done))
        assert moved[-1] > 1 << 20
        engine.remove(name)
        assert engine.image(name) is None


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Desk]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "nobody"))
    made: list[str] = []
    yield Desk(tmp_path, capsys, made)
    engine = connect()
    for name in made:
        engine.remove(name)


@pytest.fixture
def private(tmp_path: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """Run a registry with a password and its own authority; yields its host, and what makes the engine forget that."""
    address = own_address()
    if address.startswith("127.") or os.geteuid() != 0:
        pytest.skip("the engine takes loopback on trust, and its authorities are root's to place")
    folder = tmp_path / "private"
    folder.mkdir()
    (folder / "users").write_text(f"ann:{SECRET_BCRYPT}\n")
    extra = f"  tls: {{certificate: {certificate(folder, address)}, key: {folder / 'key.pem'}}}\n"
    extra += f"auth: {{htpasswd: {{realm: here, path: {folder / 'users'}}}}}\n"
    with docker_registry(folder, extra=extra, address=address) as host:
        trusted = Path("/etc/docker/certs.d") / host
        trusted.mkdir(parents=True)
        shutil.copy(folder / "cert.pem", trusted / "ca.crt")
        try:
            yield host, (trusted / "ca.crt").unlink
        finally:
            shutil.rmtree(trusted)


def test_private_registry_with_a_password_and_its_own_authority(
    desk: Desk, private: tuple[str, Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    host, forget = private
    name = f"{host}/hardened/debian:12"
    (desk.folder / "logged-in").mkdir()
    monkeypatch.setenv("DOCKER_CONFIG", login(desk.folder / "logged-in", host, "ann:secret")["DOCKER_CONFIG"])
    desk.push(name, DEBIAN)
    monkeypatch.setenv("DOCKER_CONFIG", str(desk.folder / "nobody"))
    code, _, said = desk.run("catalog", "inspect", name)
    assert code == 5
    assert "auth" in said
    monkeypatch.setenv("DOCKER_CONFIG", str(desk.folder / "logged-in"))
    code, answer, _ = desk.run("catalog", "inspect", name, "--format", "json")
    assert code == 0, answer
    found = json.loads(answer)
    assert (found["system"], found["pythons"][0]["version"]) == ("debian", "3.11")
    assert found["image"].startswith(f"{host}/hardened/debian@sha256:")
    assert (desk.folder / "bases" / f"{found['digest'].replace(':', '-')}.json").is_file()
    connect().remove(name)
    forget()
    code, _, said = desk.run("catalog", "look", name)
    assert code == 5
    assert "certificate" in said


def test_from_a_registry_to_a_plan(desk: Desk) -> None:
    with docker_registry(desk.folder / "mirror") as host:
        os.environ["TF_ENVBUILDER_MIRRORS"] = f"registry.example.org={host}/proxied"
        try:
            desk.push(f"{host}/proxied/team/cuda:1", {**DEBIAN, **CUDA})
            found = json.loads(desk.run("catalog", "look", "registry.example.org/team/cuda:1", "--format", "json")[1])
        finally:
            del os.environ["TF_ENVBUILDER_MIRRORS"]
    assert found["image"].startswith("registry.example.org/team/cuda@sha256:")
    assert (found["cuda"], found["cudnn"], found["refused"]) == ("11.8", "8.6.0", "")
    include = [{"tensorflow": "2.13.1", "os": "corp", "flavor": "gpu"}]
    bases = {"corp": {"image": found["image"]}}
    (desk.folder / "matrix.yaml").write_text(json.dumps({"name": "ours", "bases": bases, "include": include}))
    code, answer, _ = desk.run("plan", "matrix.yaml", "--format", "json")
    planned = json.loads(answer)
    assert code == 0
    assert [(one["os"], one["cuda"], one["cuda_wheels"]) for one in planned["environments"]] == [("corp", "11.8", [])]


NVIDIA = (
    *("cuda-cudart-12-5", "libcublas-12-5", "libcufft-12-5", "libcurand-12-5", "libcusolver-12-5"),
    *("libcusparse-12-5", "cuda-cupti-12-5", "libnvjitlink-12-5", "cuda-nvrtc-12-5"),
)


@pytest.mark.network
@pytest.mark.full
def test_cuda_of_a_vendors_repository(desk: Desk) -> None:
    folder = "usr/local/cuda-12.5/targets/x86_64-linux/lib"
    (desk.folder / "www").mkdir()
    vendor = Archive(desk.folder / "www", Signer(desk.folder / "gpg"), "NVIDIA")
    for name in NVIDIA:
        needs = "Depends: cuda-toolkit-config-common\n" if name == "cuda-cudart-12-5" else ""
        vendor.add(name, "12.5.82-1", {f"{folder}/{name}.so.12": name.encode()}, more=needs)
    vendor.add("cuda-toolkit-config-common", "12.5.82-1", arch="all")
    vendor.publish()
    found = resolved(tensorflow="2.18.1", os="debian-bookworm-nvidia", flavor="gpu")
    config = desk.folder / "config/envbuilder/config.toml"
    config.parent.mkdir(parents=True)
    key = vendor.signer.public(desk.folder / "vendor.gpg")
    engine, system = connect(), load().system("debian-bookworm")
    assert system is not None
    with served(desk.folder / "www", own_address()) as address:
        config.write_text(f'[apt.repositories.nvidia-bookworm]\nurl = "{address}"\nkey = "{key}"\n')
        text = system_lock.resolve("bookworm", found.pinned_packages, repository="nvidia-bookworm")
        assert {package.name for package in system_lock.parse(text)} == {*NVIDIA, "cuda-toolkit-config-common"}
        lock = "tensorflow==2.18.1\n"
        locks = {SYSTEM_LOCK: text, CUDNN_LOCK: "nvidia-cudnn-cu12==9.3.0.75\n"}
        context = render_context(found, lock, templates(), system=locks)
        whole = context[f"{found.id}/Dockerfile"].decode()
        base = ensure_base(engine, system, Path(tempfile.gettempdir()), lambda *_: None)

        def request(name: str) -> BuildRequest:
            """Its steps are those of no other build: Docker 20.10 may end if one without a cache runs beside it."""
            text = re.sub(r"(FROM \$\{BASE\} AS .*)", rf"\1\nRUN : {desk.folder}/{name}", whole)
            return BuildRequest(
                context={**context, "Dockerfile": text.partition("\n# cuDNN")[0].encode()},
                tag="envbuilder-test/nvidia:1",
                extra=host_files(repository="nvidia-bookworm", folder="shared/host"),
                build_args={"BASE": base.reference},
            )

        image = engine.build(request("first"), lambda _: None)
        desk.made.append("envbuilder-test/nvidia:1")
        files = read_image(engine, image)
        assert f"{folder}/cuda-cudart-12-5.so.12" in files.paths
        installed = dpkg_status.versions((files.content("var/lib/dpkg/status") or b"").decode())
        assert {installed[package.name] for package in system_lock.parse(text)} == {"12.5.82-1"}
        below = len((engine.image(base.id) or image).layers)
        added = {row.path for record in files.records[below:] for row in record.rows if row.kind == "file"}
        assert not [path for path in added if path.startswith(("run/", "etc/apt/", "var/lib/apt/lists/"))]
        vendor.held.clear()
        shutil.rmtree(vendor.root / "made")
        for name in (*NVIDIA, "cuda-toolkit-config-common"):
            vendor.add(name, "12.5.82-1", {f"{folder}/{name}.so.12": b"another's"})
        vendor.publish()
        with pytest.raises(BuildFailedError) as failed:
            engine.build(request("other-packages"), lambda _: None)
    assert "not in system.lock" in str(failed.value)
