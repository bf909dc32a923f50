"""Which package index, proxy and certificates this user's pip and uv are set to: the one answer for every client.

Variables outrank files, and uv's word outranks pip's. Locking, building, the catalogue and ``scripts/setup`` ask here;
``python -m envbuilder.pypi.index_config`` prints for a shell what uv has to be told, since it does not read pip's
settings.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from envbuilder.errors import UsageError
from envbuilder.pypi import pipconf, uvconf
from envbuilder.support import subprocesses


@dataclass(frozen=True)
class IndexConfig:
    """Where packages come from: the main index, further ones in order, the proxy and the certificates on the way.

    ``url`` is '' where nothing is set and the clients' default holds. ``of_pip`` are those of them that only pip is set
    to. ``certificates`` is a bundle's path; ``proxy`` is pip's own setting, which outranks the usual variables;
    ``links`` are pip's further places on this machine. Addresses may hold credentials: they are for requests, never for
    messages or files that stay.
    """

    url: str
    extra: tuple[str, ...] = ()
    certificates: str | None = None
    proxy: str = ""
    of_pip: tuple[str, ...] = ()
    links: tuple[str, ...] = ()

    @property
    def urls(self) -> tuple[str, ...]:
        """Every index, the main one first, each once and without a closing slash."""
        return tuple(dict.fromkeys(url.rstrip("/") for url in (self.url, *self.extra) if url))

    @property
    def addresses(self) -> tuple[str, ...]:
        """Every index as in `urls`, without credentials."""
        return tuple(dict.fromkeys(map(without_credentials, self.urls)))

    @property
    def credentials(self) -> dict[str, tuple[str, str]]:
        """User and password by `origin`, of the addresses that hold some."""
        parts = [urlsplit(url) for url in self.urls]
        return {
            origin(url): (unquote(part.username or ""), unquote(part.password or ""))
            for url, part in zip(self.urls, parts, strict=True)
            if "@" in part.netloc
        }


def origin(url: str) -> str:
    """Return an address's scheme, host and port, without credentials; a scheme's own port is left out."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2].lower()
    return f"{parts.scheme}://{place.removesuffix(_PORTS.get(parts.scheme, ''))}"


_PORTS = {"http": ":80", "https": ":443"}


def without_credentials(url: str) -> str:
    """Return an address without user and password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def configured(
    environ: Mapping[str, str] = os.environ, *, folder: Path | None = None, prefix: Path | None = None
) -> IndexConfig:
    """Read what is set for uv and pip in a folder and a Python environment (default: the current ones).

    Raises UsageError for a configuration file that cannot be parsed.
    """
    uv, pip = uvconf.indexes(environ, folder), pipconf.settings(environ, prefix)
    wanted = pip.get("index-url", "")
    pip_outranks = not uv.main or bool(environ.get("PIP_INDEX_URL") and not uv.from_variable)
    by_pip = bool(wanted) and pip_outranks
    more = tuple(pip.get("extra-index-url", "").split())
    return IndexConfig(
        url=wanted if by_pip else uv.main,
        extra=tuple(dict.fromkeys((*uv.extra, *more))),
        certificates=_bundle(environ, pip.get("cert", "")),
        proxy=pip.get("proxy", ""),
        of_pip=tuple(dict.fromkeys((*([wanted] if by_pip else []), *(url for url in more if url not in uv.extra)))),
        links=tuple(pip.get("find-links", "").split()),
    )


def read(
    environ: Mapping[str, str] = os.environ, *, folder: Path | None = None, prefix: Path | None = None
) -> IndexConfig:
    """Return `configured` with the clients' own default where no main index is set. Raises UsageError as both."""
    found = configured(environ, folder=folder, prefix=prefix)
    return found if found.url else replace(found, url=default_index())


_BUNDLE_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_SYSTEM_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"


def _bundle(environ: Mapping[str, str], of_pip: str) -> str | None:
    """Find the certificates that this host's clients trust: the variables', then pip's files', then the system's."""
    named = (environ.get(name, "") for name in _BUNDLE_VARIABLES)
    return next((path for path in (*named, of_pip, _SYSTEM_BUNDLE) if path and Path(path).is_file()), None)


def is_remote(url: str) -> bool:
    """Tell whether another machine, or a step in a container, can use an address: HTTP, and nothing but one address."""
    return url.startswith(("https://", "http://")) and not set(url) & set(" \"'\n\r\t\\")


def for_uv(config: IndexConfig, environ: Mapping[str, str] = os.environ, *, local: bool = False) -> dict[str, str]:
    """Return the variables that tell uv what only pip's settings say; what uv finds by itself is not among them.

    ``local`` adds the places on this machine: a lock must not take from them what no build step could fetch.
    """
    told: dict[str, str] = {}
    main = config.url if config.url in config.of_pip else ""
    more = [url for url in config.extra if url in config.of_pip and (local or is_remote(url))]
    if main:
        told["UV_DEFAULT_INDEX"] = main
    if more:
        told["UV_EXTRA_INDEX_URL"] = " ".join([*environ.get("UV_EXTRA_INDEX_URL", "").split(), *more])
        told["UV_INDEX_STRATEGY"] = environ.get("UV_INDEX_STRATEGY") or "unsafe-best-match"  # as pip chooses
    if local and config.links and not environ.get("UV_FIND_LINKS"):
        told["UV_FIND_LINKS"] = ",".join(config.links)
    if config.certificates and not environ.get("SSL_CERT_FILE"):
        told["SSL_CERT_FILE"] = config.certificates
    if config.proxy:
        told |= dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), config.proxy)
    return told


def default_index() -> str:
    """Return the index that pip, or else uv, uses when nothing is configured. Raises UsageError where neither says."""
    with suppress(ImportError, AttributeError):
        from pip._internal.models.index import PyPI  # noqa: PLC0415 - the constant is pip's, and pip may be absent

        return str(PyPI.simple_url)
    with suppress(ImportError, OSError, subprocesses.ProgramError):
        from uv import find_uv_bin  # noqa: PLC0415 - only asked where pip is absent

        told = subprocesses.run([find_uv_bin(), "pip", "install", "--help"], within=20, brief=True).text
        if found := re.search(r"by\s+default:\s+<(https://[^>\s]+)>", told):
            return found[1]
    raise UsageError("no package index is configured", hint="set UV_DEFAULT_INDEX to an index's simple API")


if __name__ == "__main__":
    for name, value in for_uv(configured(), local=True).items():
        print(f"export {name}={shlex.quote(value)}")  # noqa: T201 - for a shell's eval
