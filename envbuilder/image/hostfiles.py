"""Files of this host for build steps that reach the network: its certificate bundle and its package indexes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from envbuilder.image import user_config
from envbuilder.pypi.index_config import configured, is_remote, uv_toml
from envbuilder.workspace import read_users


def host_files(
    environ: Mapping[str, str] = os.environ,
    wheels: Path | None = None,
    indexes: tuple[str, ...] = (),
    repository: str = "",
    folder: str = "host",
) -> dict[str, bytes]:
    """Return the files of the build host, by path in the context, for its ``folder``.

    ``wheels`` is a folder of wheels to install from, ``indexes`` are those of a matrix, ``repository`` names one of
    apt's in the user's configuration. Certificates and indexes are those that pip and uv are configured for here;
    only ``https`` and ``http`` are passed on, because a step cannot see this host's files. The files may hold
    credentials: they are mounted into steps, and are in no folder of this host and in no layer.
    """
    config = configured(environ)
    main, proxy = (url if is_remote(url) else "" for url in (config.url, config.proxy))
    extra = list(dict.fromkeys((*indexes, *filter(is_remote, config.extra))))
    options = {"index-url": main, "extra-index-url": " ".join(extra), "proxy": proxy}
    pip = [f"{name} = {value}" for name, value in options.items() if value]
    uv = list(uv_toml(extra, main, proxy=proxy, links="/run/host/wheels" if wheels else ""))
    texts = {"pip.conf": ["[global]", *pip] if pip else [], "uv.toml": uv}
    files = {name: "".join(f"{line}\n" for line in lines).encode() for name, lines in texts.items() if lines}
    if config.certificates:
        files["ca-certificates.crt"] = read_users(Path(config.certificates))
    if repository:
        found = user_config.repository(repository, environ)
        files |= {"apt/further.list": found.line("/run/host/apt").encode(), f"apt/{found.key_file}": found.key}
    for wheel in sorted(wheels.glob("*.whl")) if wheels else ():
        files[f"wheels/{wheel.name}"] = read_users(wheel)
    return {f"{folder}/{name}": content for name, content in files.items()}
