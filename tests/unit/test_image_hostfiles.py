"""What a host hands to build steps: its certificates and its index, and nothing that a step could misread."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuilder.image.hostfiles import certificate_bundle, configured_index, host_files


def test_the_named_bundle_wins(tmp_path: Path) -> None:
    """The bundle that the user's variables name goes in, byte for byte."""
    bundle = tmp_path / "ca.pem"
    bundle.write_bytes(b"-----BEGIN CERTIFICATE-----\n")
    assert certificate_bundle({"SSL_CERT_FILE": str(bundle)}) == bundle
    assert host_files({"SSL_CERT_FILE": str(bundle)})["host/ca-certificates.crt"] == bundle.read_bytes()


@pytest.mark.parametrize("name", ["UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"])
def test_the_users_index_reaches_both_installers(name: str) -> None:
    """An index from any of the usual variables is written for pip and for uv."""
    files = host_files({name: "https://index.example/simple", "PIP_CONFIG_FILE": "/dev/null"})
    assert b"index-url = https://index.example/simple\n" in files["host/pip.conf"]
    assert b'url = "https://index.example/simple"\n' in files["host/uv.toml"]


def test_pips_own_file_is_read(tmp_path: Path) -> None:
    """Without a variable, pip's configuration names the index."""
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nindex-url = https://mirror.example/simple\n")
    assert configured_index({"PIP_CONFIG_FILE": str(config)}) == "https://mirror.example/simple"


@pytest.mark.parametrize("index", ["file:///opt/index", "https://x\n[evil]", 'https://x"', "", "ftp://x"])
def test_an_index_that_a_step_cannot_use_is_left_out(index: str) -> None:
    """A path of this host, or anything that could break out of its line, is not passed on."""
    assert configured_index({"PIP_INDEX_URL": index, "PIP_CONFIG_FILE": "/dev/null"}) is None
