"""What this host adds to build steps that reach the network: its certificate bundle and its package index."""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from pathlib import Path

_BUNDLE_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_SYSTEM_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
_PIP_FILES = (Path("/etc/pip.conf"), Path("~/.config/pip/pip.conf"), Path("~/.pip/pip.conf"))


def host_files(environ: Mapping[str, str] = os.environ, wheels: Path | None = None) -> dict[str, bytes]:
    """Return what goes into a build context's ``host/`` folder, by path in the context.

    ``wheels`` is a folder of wheels to install from, beside the index.
    The index is the one that pip or uv is configured for here; nothing is written where both use their default,
    and nothing but ``https`` and ``http`` is passed on, since a step cannot see this host's files.
    """
    files: dict[str, bytes] = {}
    bundle = certificate_bundle(environ)
    if bundle is not None:
        files["host/ca-certificates.crt"] = bundle.read_bytes()
    index = configured_index(environ)
    if index is not None:
        files["host/pip.conf"] = f"[global]\nindex-url = {index}\n".encode()
    links = 'find-links = ["/run/host/wheels"]\n' if wheels else ""
    if index is not None or wheels:
        files["host/uv.toml"] = (links + (f'[[index]]\nurl = "{index}"\ndefault = true\n' if index else "")).encode()
    for wheel in sorted(wheels.glob("*.whl")) if wheels else ():
        files[f"host/wheels/{wheel.name}"] = wheel.read_bytes()
    return files


def certificate_bundle(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Find the certificate bundle that this host's clients use; None where there is none."""
    named = (Path(environ[name]) for name in _BUNDLE_VARIABLES if environ.get(name))
    return next((path for path in (*named, _SYSTEM_BUNDLE) if path.is_file()), None)


def configured_index(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the package index that the user set for uv or pip; None where the clients' default holds."""
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        if _reachable(environ.get(name)):
            return environ[name]
    files = (Path(environ["PIP_CONFIG_FILE"]),) if environ.get("PIP_CONFIG_FILE") else _PIP_FILES
    for path in files:
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read(path.expanduser())
        except (configparser.Error, OSError, UnicodeDecodeError):
            continue
        index = parser.get("global", "index-url", fallback=None)
        if _reachable(index):
            return index
    return None


def _reachable(index: str | None) -> bool:
    return bool(index) and str(index).startswith(("https://", "http://")) and not set(str(index)) & set(' "\n\\')
