"""Package index, proxy and certificates of this user's pip and uv: one answer for every client.

Variables precede files, and uv's settings precede pip's. Locking, building, the catalogue and ``scripts/setup`` use
this; ``python -m envbuilder.pypi.index_config`` prints pip's settings as variables for uv, which does not read them.
Only the standard library is imported: ``scripts/setup`` runs this before any package is installed.
"""

import configparser
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from envbuilder.errors import UsageError
from envbuilder.support import decoding, subprocesses

_BUNDLE_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_SYSTEM_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
_UV_SYSTEM_FILE = Path("/etc/uv/uv.toml")
_UV_MAIN = ("UV_DEFAULT_INDEX", "UV_INDEX_URL")
_PIP_SECTIONS = ("global", "install")
"""pip's sections, whatever their file: the command's own precedes the other, and variables precede both."""


@dataclass(frozen=True)
class IndexConfig:
    """The main index, further ones in order, and the proxy and certificates for them.

    ``url`` is '' if nothing is set. ``of_pip`` are the addresses that only pip's settings have. ``certificates`` is the
    path of a bundle; ``proxy`` is pip's own setting; ``links`` are pip's ``find-links``. Addresses may hold
    credentials: they are for requests, never for messages or files that stay.
    """

    url: str
    extra: tuple[str, ...] = ()
    certificates: str | None = None
    proxy: str = ""
    of_pip: tuple[str, ...] = ()
    links: tuple[str, ...] = ()

    @property
    def urls(self) -> tuple[str, ...]:
        """Every index, the main one first, each once and without a trailing slash."""
        return tuple(dict.fromkeys(url.rstrip("/") for url in (self.url, *self.extra) if url))

    @property
    def addresses(self) -> tuple[str, ...]:
        """As `urls`, without credentials."""
        return tuple(dict.fromkeys(map(without_credentials, self.urls)))

    @property
    def credentials(self) -> dict[str, tuple[str, str]]:
        """User and password by `origin`."""
        return {
            origin(url): (unquote(part.username or ""), unquote(part.password or ""))
            for url in self.urls
            if "@" in (part := urlsplit(url)).netloc
        }


def origin(url: str) -> str:
    """Return the scheme, host and port of an address; a scheme's default port is omitted."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2].lower()
    return f"{parts.scheme}://{host.removesuffix(_DEFAULT_PORTS.get(parts.scheme, ''))}"


def without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def is_remote(url: str) -> bool:
    """Return True for a single HTTP address, which another machine or a step in a container can use."""
    return url.startswith(("https://", "http://")) and not set(url) & set(" \"'\n\r\t\\")


def configured(
    environ: Mapping[str, str] = os.environ, *, folder: Path | None = None, prefix: Path | None = None
) -> IndexConfig:
    """Read the settings of uv and pip for a folder and a Python environment (default: the current ones).

    Raises UsageError for a configuration file that cannot be parsed.
    """
    (uv_url, uv_extra), pip = _uv_indexes(environ, folder or Path.cwd()), pip_settings(environ, prefix)
    pip_url, pip_extra = pip.get("index-url", ""), tuple(pip.get("extra-index-url", "").split())
    is_pip_variable = bool(environ.get("PIP_INDEX_URL")) and not any(_addresses(environ, name) for name in _UV_MAIN)
    is_pip = bool(pip_url) and (not uv_url or is_pip_variable)
    bundles = (*(environ.get(name, "") for name in _BUNDLE_VARIABLES), pip.get("cert", ""), _SYSTEM_BUNDLE)
    return IndexConfig(
        url=pip_url if is_pip else uv_url,
        extra=tuple(dict.fromkeys((*uv_extra, *pip_extra))),
        certificates=next((path for path in bundles if path and Path(path).is_file()), None),
        proxy=pip.get("proxy", ""),
        of_pip=tuple(dict.fromkeys((*([pip_url] if is_pip else []), *(u for u in pip_extra if u not in uv_extra)))),
        links=tuple(pip.get("find-links", "").split()),
    )


def read(environ: Mapping[str, str] = os.environ) -> IndexConfig:
    """Return `configured`, with uv's default index if no main index is set. Raises UsageError as both."""
    found = configured(environ)
    return found if found.url else replace(found, url=default_index())


@cache
def default_index() -> str:
    """Return the index that uv's help names as its default. Raises UsageError if it names none."""
    from uv import find_uv_bin  # noqa: PLC0415 - not there yet when scripts/setup runs this module

    usage = subprocesses.run([find_uv_bin(), "pip", "install", "--help"], within=20).text
    if found := re.search(r"by\s+default:\s+<(https://[^>\s]+)>", usage):
        return found[1]
    raise UsageError("no package index is configured", hint="set UV_DEFAULT_INDEX to the simple API of an index")


def for_uv(config: IndexConfig, environ: Mapping[str, str] = os.environ, *, local: bool = False) -> dict[str, str]:
    """Return the variables that give uv those settings that only pip has.

    ``local`` adds places on this machine: a lock must not use them, because no build step can fetch from them.
    """
    found: dict[str, str] = {}
    extra = [url for url in config.extra if url in config.of_pip and (local or is_remote(url))]
    if config.url in config.of_pip:
        found["UV_DEFAULT_INDEX"] = config.url
    if extra:
        found["UV_EXTRA_INDEX_URL"] = " ".join([*environ.get("UV_EXTRA_INDEX_URL", "").split(), *extra])
        found["UV_INDEX_STRATEGY"] = environ.get("UV_INDEX_STRATEGY") or "unsafe-best-match"  # as pip chooses
    if local and config.links and not environ.get("UV_FIND_LINKS"):
        found["UV_FIND_LINKS"] = ",".join(config.links)
    if config.certificates and not environ.get("SSL_CERT_FILE"):
        found["SSL_CERT_FILE"] = config.certificates
    if config.proxy:
        found |= dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), config.proxy)
    return found


def pip_settings(environ: Mapping[str, str] = os.environ, prefix: Path | None = None) -> dict[str, str]:
    """Return the settings of ``pip install`` by option (``index-url``); empty ones are omitted.

    ``prefix`` is the Python environment with its own file (default: this one). Raises UsageError for a file that cannot
    be parsed.
    """
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = _pip_option  # type: ignore[assignment, method-assign]
    for path in pip_files(environ, prefix):
        with suppress(OSError):  # pip skips files that it cannot open
            try:
                parser.read_string(decoding.text(decoding.file_content(path)), str(path))
            except (configparser.Error, decoding.DamagedError) as error:
                raise UsageError(f"{path}: {error}", hint="fix pip's configuration file") from error
    pairs = [pair for section in _PIP_SECTIONS if parser.has_section(section) for pair in parser.items(section)]
    pairs += [(_pip_option(name[4:]), value) for name, value in environ.items() if name.startswith("PIP_")]
    return {option: value for option, value in pairs if value.strip() and option not in {"version", "help"}}


def pip_files(environ: Mapping[str, str], prefix: Path | None = None) -> Iterator[Path]:
    """Yield the files that pip reads; later ones precede earlier ones. None if ``PIP_CONFIG_FILE`` is /dev/null.

    The system's (``$XDG_CONFIG_DIRS``, then ``/etc``), the user's (the legacy one, then ``$XDG_CONFIG_HOME``), the
    environment's, ``PIP_CONFIG_FILE``. If that last one exists, the user's are not read.
    """
    explicit = environ.get("PIP_CONFIG_FILE")
    if explicit == os.devnull:
        return
    home = Path(environ.get("HOME") or Path.home())
    for folder in (environ.get("XDG_CONFIG_DIRS", "").strip() or "/etc/xdg").split(os.pathsep):
        yield Path(folder, "pip/pip.conf")
    yield Path("/etc/pip.conf")
    if not (explicit and Path(explicit).exists()):
        yield home / ".pip/pip.conf"
        yield Path(environ.get("XDG_CONFIG_HOME", "").strip() or home / ".config") / "pip/pip.conf"
    yield (prefix or Path(sys.prefix)) / "pip.conf"
    if explicit:
        yield Path(explicit)


def _pip_option(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")


def _uv_indexes(environ: Mapping[str, str], folder: Path) -> tuple[str, tuple[str, ...]]:
    """Return the main index that ``uv pip`` uses in a folder ('' for uv's default), and further ones in order.

    The main one is the first of ``UV_DEFAULT_INDEX``, ``UV_INDEX_URL``, the files' default row of ``index``, their
    ``index-url``. Raises UsageError for a file that cannot be parsed.
    """
    tables = [_uv_table(path) for path in _uv_files(environ, folder)]
    flat = [part for table in tables for part in (table.get("pip", {}), table) if isinstance(part, dict)]
    rows = [row for part in tables for row in _list(part.get("index")) if isinstance(row, dict) and row.get("url")]
    mains = [url for name in _UV_MAIN for url in _addresses(environ, name)]
    mains += [str(row["url"]) for row in rows if row.get("default")]
    mains += [str(part["index-url"]) for part in flat if part.get("index-url")]
    extra = [*_addresses(environ, "UV_INDEX"), *_addresses(environ, "UV_EXTRA_INDEX_URL")]
    extra += [str(row["url"]) for row in rows if not row.get("default") and not row.get("explicit")]
    extra += [str(url) for part in flat for url in _list(part.get("extra-index-url"))]
    return next(iter(mains), ""), tuple(dict.fromkeys(extra))


def _uv_files(environ: Mapping[str, str], folder: Path) -> tuple[Path, ...]:
    """Return the files that uv reads; earlier ones precede later ones.

    Only ``UV_CONFIG_FILE`` if it is set; none with ``UV_NO_CONFIG``. Otherwise the project's (the nearest ``uv.toml``,
    or ``pyproject.toml`` with a table ``tool.uv``, from the folder upwards), the user's, and the first of the system's.
    """
    if environ.get("UV_CONFIG_FILE"):
        return (Path(environ["UV_CONFIG_FILE"]),)
    if environ.get("UV_NO_CONFIG", "").lower() in {"1", "true", "yes", "on", "t", "y"}:
        return ()
    user = Path(environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or Path.home()) / ".config") / "uv/uv.toml"
    folders = (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep)
    system = (*(Path(one, "uv/uv.toml") for one in folders if one), _UV_SYSTEM_FILE)
    names = (place / name for place in (folder, *folder.parents) for name in ("uv.toml", "pyproject.toml"))
    project = next((path for path in names if path.is_file() and (path.name == "uv.toml" or _uv_table(path))), None)
    found = (project, user, next(filter(Path.is_file, system), None))
    return tuple(path for path in found if path is not None and path.is_file())


def _uv_table(path: Path) -> dict[str, Any]:
    try:
        with decoding.damaged(f"{path} is not TOML"):
            found: dict[str, Any] = tomllib.loads(decoding.text(decoding.file_content(path)))
    except PermissionError:
        return {}
    except (OSError, decoding.DamagedError) as error:
        raise UsageError(f"{path}: {error}", hint="fix uv's configuration file") from error
    for name in ("tool", "uv") if path.name == "pyproject.toml" else ():
        found = table if isinstance(table := found.get(name), dict) else {}
    return found


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _addresses(environ: Mapping[str, str], name: str) -> list[str]:
    """Read a variable of uv; an index may have a name there (``internal=https://…``)."""
    return [re.sub(r"^[A-Za-z0-9._-]+=(?=[a-z]+://)", "", word) for word in environ.get(name, "").split()]


if __name__ == "__main__":
    for name, value in for_uv(configured(), local=True).items():
        print(f"export {name}={shlex.quote(value)}")  # noqa: T201 - for a shell's eval
