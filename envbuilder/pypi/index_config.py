"""Which package index this user's pip and uv are configured for."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envbuilder.errors import UsageError
from envbuilder.image.hostfiles import certificate_bundle


@dataclass(frozen=True)
class IndexConfig:
    """Where packages come from: the main index, further ones in order, and the certificate bundle to trust."""

    url: str
    extra: tuple[str, ...] = ()
    certificates: str | None = None

    @property
    def urls(self) -> tuple[str, ...]:
        """Every index, the main one first, each once and without a closing slash."""
        return tuple(dict.fromkeys(url.rstrip("/") for url in (self.url, *self.extra)))


def read(environ: Mapping[str, str] = os.environ, files: tuple[Path, ...] | None = None) -> IndexConfig:
    """Read the configuration: uv's variables, then pip's, then their files, then the library's own default.

    ``files`` replaces the files that are looked at (``pip.conf`` and ``uv.toml`` by name).
    """
    places = _files(environ) if files is None else files
    settings = [settings for path in places if (settings := _settings(path)) is not None]
    main = _first(environ, "UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
    main = main or next((url for url, _ in settings if url), "") or default_index()
    extra = [word for name in _EXTRA for word in environ.get(name, "").split()]
    extra += [url for _, more in settings for url in more]
    bundle = certificate_bundle(environ)
    return IndexConfig(url=main, extra=tuple(map(_unnamed, extra)), certificates=str(bundle) if bundle else None)


_EXTRA = ("UV_INDEX", "UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL")


def default_index() -> str:
    """Return the index that pip, or else uv, uses when nothing is configured. Raises UsageError where neither says."""
    with suppress(ImportError, AttributeError):
        from pip._internal.models.index import PyPI  # noqa: PLC0415 - the constant is pip's, and pip may be absent

        return str(PyPI.simple_url)
    with suppress(ImportError, OSError, subprocess.SubprocessError):
        from uv import find_uv_bin  # noqa: PLC0415 - only asked where pip is absent

        told = subprocess.run(
            [find_uv_bin(), "pip", "install", "--help"], capture_output=True, text=True, timeout=20, check=True
        ).stdout
        if found := re.search(r"by\s+default:\s+<(https://[^>\s]+)>", told):
            return found[1]
    raise UsageError("no package index is configured", hint="set UV_DEFAULT_INDEX to an index's simple API")


def _first(environ: Mapping[str, str], *names: str) -> str:
    return next((_unnamed(environ[name]) for name in names if environ.get(name)), "")


def _unnamed(word: str) -> str:
    """Drop the name that uv lets an index have: ``internal=https://…``."""
    return re.sub(r"^[A-Za-z0-9._-]+=(?=[a-z]+://)", "", word)


def _files(environ: Mapping[str, str]) -> tuple[Path, ...]:
    home = Path(environ.get("HOME", "~")).expanduser()
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    pip = [Path(environ["PIP_CONFIG_FILE"])] if environ.get("PIP_CONFIG_FILE") else []
    pip += [Path(sys.prefix, "pip.conf"), config / "pip/pip.conf", home / ".pip/pip.conf"]
    uv = [Path(environ["UV_CONFIG_FILE"])] if environ.get("UV_CONFIG_FILE") else [config / "uv/uv.toml"]
    return (*uv, Path("/etc/uv/uv.toml"), *pip, Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf"))


def _settings(path: Path) -> tuple[str, tuple[str, ...]] | None:
    """Return a file's main index ('' where it names none) and its further ones; None where there is no such file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return None
    return _from_uv(text, path) if path.suffix == ".toml" else _from_pip(text, path)


def _from_pip(text: str, path: Path) -> tuple[str, tuple[str, ...]]:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise UsageError(f"{path}: {error}", hint="mend pip's configuration file") from error
    found = {
        name: value
        for part in ("global", "install")
        if parser.has_section(part)
        for name, value in parser[part].items()
    }
    return found.get("index-url", ""), tuple(found.get("extra-index-url", "").split())


def _from_uv(text: str, path: Path) -> tuple[str, tuple[str, ...]]:
    try:
        found: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: {error}", hint="mend uv's configuration file") from error
    rows = list(_uv_rows(found))
    main = next((url for url, default in rows if default), "") or str(found.get("index-url", ""))
    more = [url for url, default in rows if not default] + list(found.get("extra-index-url", []))
    return main, tuple(map(str, more))


def _uv_rows(found: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    for row in found.get("index", []):
        if isinstance(row, dict) and "url" in row:
            yield str(row["url"]), bool(row.get("default"))
