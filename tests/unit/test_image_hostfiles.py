"""What a host hands to build steps: its certificates and its index, and nothing that a step could misread."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from envbuilder.image.host_settings import host_files
from envbuilder.pypi.index_config import configured

UNSET = {"PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1"}
"""No configuration file is read."""


def test_the_named_bundle_wins(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_bytes(b"-----BEGIN CERTIFICATE-----\n")
    assert host_files({"SSL_CERT_FILE": str(bundle)})["host/ca-certificates.crt"] == bundle.read_bytes()


@pytest.mark.parametrize("name", ["UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"])
def test_the_users_index_reaches_both_installers(name: str) -> None:
    files = host_files({name: "https://index.example/simple", **UNSET})
    assert b"index-url = https://index.example/simple\n" in files["host/pip.conf"]
    assert b'url = "https://index.example/simple"\n' in files["host/uv.toml"]


@pytest.mark.parametrize("index", ["file:///opt/index", "https://x\n[evil]", 'https://x"', "", "ftp://x"])
def test_an_index_that_a_step_cannot_use_is_left_out(index: str) -> None:
    files = host_files({"PIP_INDEX_URL": index, **UNSET})
    assert not {"host/pip.conf", "host/uv.toml"} & files.keys()


def test_further_indexes_those_of_a_matrix_and_the_proxy_reach_both_installers(tmp_path: Path) -> None:
    """What a lock may take packages from, a step may too: in pip's order of choice, and over pip's proxy."""
    config = tmp_path / "pip.conf"
    extra = "extra-index-url = https://one.example/simple\n  file:///opt/index [evil] https://two.example/simple\n"
    config.write_text(f"[global]\nindex-url = https://main.example/simple\n{extra}proxy = http://proxy.example:3128\n")
    files = host_files({**UNSET, "PIP_CONFIG_FILE": str(config)}, indexes=("https://team.example/simple",))
    pip = {**UNSET, "PIP_CONFIG_FILE": str(tmp_path / "host.conf")}
    (tmp_path / "host.conf").write_bytes(files["host/pip.conf"])
    (tmp_path / "uv.toml").write_bytes(files["host/uv.toml"])
    for environ in (pip, {"PIP_CONFIG_FILE": os.devnull, "UV_CONFIG_FILE": str(tmp_path / "uv.toml")}):
        found = configured(environ)
        assert found.url == "https://main.example/simple"
        assert found.extra == tuple(f"https://{name}.example/simple" for name in ("team", "one", "two"))
    uv = tomllib.loads(files["host/uv.toml"].decode())
    assert uv["http-proxy"] == uv["https-proxy"] == configured(pip).proxy == "http://proxy.example:3128"
    assert uv["index-strategy"] == "unsafe-best-match"
