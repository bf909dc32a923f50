"""What this host adds to build steps that reach the network: its certificate bundle and its package indexes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from envbuilder.image import apt_sources
from envbuilder.pypi.index_config import configured, is_remote, uv_toml
from envbuilder.workspace import read_users


def host_files(
    environ: Mapping[str, str] = os.environ,
    wheels: Path | None = None,
    indexes: tuple[str, ...] = (),
    repository: str = "",
    folder: str = "host",
) -> dict[str, bytes]:
    """Return what goes into a build context's ``folder`` for the build host, by path in the context.

    ``wheels`` is a folder of wheels to install from, ``indexes`` are a matrix's own, beside the indexes, and
    ``repository`` names one of apt's in the user's configuration. These are
    the ones that pip and uv are configured for here; nothing is written where both use their default, and nothing but
    ``https`` and ``http`` is passed on, since a step cannot see this host's files. The files may hold credentials: they
    are mounted into steps, and are in no folder of this host and in no layer.
    """
    config = configured(environ)
    main = config.url if is_remote(config.url) else ""
    extra = list(dict.fromkeys((*indexes, *(url for url in config.extra if is_remote(url)))))
    proxy = config.proxy if is_remote(config.proxy) else ""
    files: dict[str, bytes] = {}
    if config.certificates:
        files[f"{folder}/ca-certificates.crt"] = read_users(Path(config.certificates))
    options = {"index-url": main, "extra-index-url": " ".join(extra), "proxy": proxy}
    for_pip = [f"{name} = {value}" for name, value in options.items() if value]
    if for_pip:
        files[f"{folder}/pip.conf"] = _text(["[global]", *for_pip])
    for_uv = list(uv_toml(extra, main, proxy=proxy, links="/run/host/wheels" if wheels else ""))
    if for_uv:
        files[f"{folder}/uv.toml"] = _text(for_uv)
    if repository:
        found = apt_sources.repository(repository, environ)
        files[f"{folder}/apt/further.list"] = found.line("/run/host/apt").encode()
        files[f"{folder}/apt/{found.key_file}"] = found.key
    for wheel in sorted(wheels.glob("*.whl")) if wheels else ():
        files[f"{folder}/wheels/{wheel.name}"] = read_users(wheel)
    return files


def _text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
