"""What is left in an image, what it claims of itself, and what it demands of a host."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from envbuilder.probes.suite import claims, layers_left, secrets_left

PEM = b"-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
OTHER = b"-----BEGIN CERTIFICATE-----\nREVG\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("path", "head", "severity"),
    [
        ("/root/.netrc", b"machine example.com login a password b", "error"),
        ("/home/a/.ssh/id_ed25519", b"-----BEGIN OPENSSH PRIVATE KEY-----", "error"),
        ("/etc/pip.conf", b"[global]\nindex-url = https://user:word@example.com/simple\n", "error"),
        ("/etc/pip.conf", b"[global]\nindex-url = https://example.com/simple\n", None),
        ("/root/.config/pip/pip.conf", b"index-url = https://builder:hunter2@packages.example.com/simple", "error"),
        ("/opt/server.key", b"-----BEGIN RSA PRIVATE KEY-----", "error"),
        ("/opt/venv/lib/python3.11/site-packages/x/test.pem", b"-----BEGIN PRIVATE KEY-----", "warning"),
        ("/opt/venv/lib/python3.11/site-packages/certifi/cacert.pem", PEM, None),
        ("/root/.docker/config.json", b'{"auths": {"example.com": {"password": "x"}}}', None),
        ("/root/.npmrc", b"//example.com/:_authToken=abc", "error"),
        ("/srv/readme.txt", b"password = hunter2", None),
    ],
)
def test_files(path: str, head: bytes, severity: str | None) -> None:
    """Keys and credentials are found by name and content; templates, certificates and prose are not."""
    found = secrets_left.judge_file(path, head)
    assert (found and found["severity"]) == severity
    assert found is None or (found["code"], found["subject"]) == ("SECRET_IN_IMAGE", path)


@pytest.mark.parametrize(
    ("env", "names"),
    [
        ({"PATH": "/bin", "PYTHON_VERSION": "3.11", "GPG_KEY": "A035C8"}, []),
        (
            {"HF_TOKEN": "hf_x", "AWS_SECRET_ACCESS_KEY": "x", "DB_PASSWORD": "y"},
            ["AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "HF_TOKEN"],
        ),
        ({"HTTPS_PROXY": "http://me:word@proxy.example.com:3128"}, ["HTTPS_PROXY"]),
        ({"API_TOKEN": ""}, []),
    ],
)
def test_variables(env: dict[str, str], names: list[str]) -> None:
    """Variables that hold credentials are named; a fingerprint or an empty one is not."""
    assert [found["subject"] for found in secrets_left.variables(env)] == names


def test_authorities_that_the_system_did_not_bring(tmp_path: Path) -> None:
    """A certificate in the bundle and not in the system's package was added by somebody."""
    packaged = tmp_path / "packaged"
    packaged.mkdir()
    (packaged / "a.crt").write_bytes(PEM)
    bundle = tmp_path / "bundle.crt"
    bundle.write_bytes(PEM)
    assert secrets_left.added_to_bundle(str(bundle), str(packaged)) == []
    bundle.write_bytes(PEM + OTHER)
    assert len(secrets_left.added_to_bundle(str(bundle), str(packaged))) == 1


@pytest.mark.parametrize(
    ("env", "severities"),
    [
        ({"NVIDIA_REQUIRE_CUDA": "cuda>=12.0"}, []),
        ({}, []),
        ({"NVIDIA_REQUIRE_CUDA": "cuda>=12.0 brand=tesla,driver>=470,driver<471"}, []),
        ({"NVIDIA_REQUIRE_CUDA": "cuda>=12.9"}, ["error"]),
        ({"NVIDIA_REQUIRE_CUDA": "cuda>=12.5"}, ["warning"]),
        ({"NVIDIA_REQUIRE_CUDA": "cuda >= 12.0"}, ["error"]),
        ({"NVIDIA_REQUIRE_CUDA": "cuda>=12.0", "NVIDIA_DISABLE_REQUIRE": "1"}, ["warning"]),
    ],
)
def test_start_up_requirement(env: dict[str, str], severities: list[str]) -> None:
    """A requirement must be readable, ask for no more than the image's CUDA, and be in force."""
    answer = claims.requirement({"image_env": env, "cuda": "12.5"})
    assert [found["severity"] for found in answer["findings"]] == severities
    assert answer["outcome"] == ("failed" if "error" in severities else "passed")


def archive(*layers: dict[str, bytes]) -> io.BytesIO:
    """Make what an engine exports: a tar of layers, each a tar, beside a manifest."""
    outer = io.BytesIO()
    with tarfile.open(fileobj=outer, mode="w") as tar:
        for index, files in enumerate(layers):
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as layer:
                for name, content in files.items():
                    put(layer, name, content)
            put(tar, f"{index:064x}/layer.tar", inner.getvalue())
        put(tar, "manifest.json", b"[]" * 1000)
    outer.seek(0)
    return outer


def put(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add one file to a tar."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def test_a_secret_that_a_later_layer_deletes_is_found() -> None:
    """What one layer brings and the next deletes is still in the image; the finding names the layer."""
    secret = b"[global]\nindex-url = https://user:word@example.com/simple\n"
    found = layers_left.search(archive({"etc/hostname": b"x"}, {"etc/pip.conf": secret}, {"etc/.wh.pip.conf": b""}))
    assert (found["layers"], found["files"]) == (3, 3)
    (one,) = found["findings"]
    assert (one["code"], one["subject"]) == ("SECRET_IN_IMAGE", "/etc/pip.conf")
    assert "layer 2" in one["message"]
    assert layers_left.search(archive({"etc/pip.conf": b"[global]\n"}))["findings"] == []
