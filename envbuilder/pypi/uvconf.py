"""Read uv's settings of package indexes as uv does: variables, then the project's, the user's, the system's file."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envbuilder.errors import UsageError
from envbuilder.support import decoding


@dataclass(frozen=True)
class UvIndexes:
    """What uv is set to: the main index ('' for uv's default), whether a variable says so, further ones in order."""

    main: str = ""
    from_variable: bool = False
    extra: tuple[str, ...] = ()


def indexes(environ: Mapping[str, str] = os.environ, folder: Path | None = None) -> UvIndexes:
    """Return the indexes that ``uv pip`` uses in a folder (default: the current one).

    The main one is the first that is called the default: ``UV_DEFAULT_INDEX``, ``UV_INDEX_URL``, the files' rows of
    ``index``, their ``index-url``. Raises UsageError for a file that cannot be parsed.
    """
    tables = [_table(path) for path in files(environ, folder or Path.cwd())]
    flat = [part for table in tables for part in (table.get("pip", {}), table) if isinstance(part, dict)]
    rows = [row for part in tables for row in _sequence(part.get("index")) if isinstance(row, dict) and row.get("url")]
    set_here = [*_words(environ, "UV_DEFAULT_INDEX"), *_words(environ, "UV_INDEX_URL")]
    mains = set_here + [str(row["url"]) for row in rows if row.get("default")]
    mains += [str(part["index-url"]) for part in flat if part.get("index-url")]
    extra = [*_words(environ, "UV_INDEX"), *_words(environ, "UV_EXTRA_INDEX_URL")]
    extra += [str(row["url"]) for row in rows if not row.get("default") and not row.get("explicit")]
    extra += [str(url) for part in flat for url in _sequence(part.get("extra-index-url"))]
    return UvIndexes(main=mains[0] if mains else "", from_variable=bool(set_here), extra=tuple(dict.fromkeys(extra)))


def files(environ: Mapping[str, str], folder: Path) -> tuple[Path, ...]:
    """Name the files that uv reads, each outranking those after it.

    ``UV_CONFIG_FILE`` alone where it is set; none with ``UV_NO_CONFIG``. Else the project's (the nearest
    ``uv.toml``, or ``pyproject.toml`` with a table ``tool.uv``, from the folder upwards), the user's, and the first of
    the system's.
    """
    if environ.get("UV_CONFIG_FILE"):
        return (Path(environ["UV_CONFIG_FILE"]),)
    if environ.get("UV_NO_CONFIG", "").lower() in {"1", "true", "yes", "on", "t", "y"}:
        return ()
    home = Path(environ.get("HOME") or Path.home())
    user = Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "uv/uv.toml"
    dirs = (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep)
    system = next((path for path in (*(Path(one, "uv/uv.toml") for one in dirs if one), _ETC) if path.is_file()), None)
    found = (_project(folder), user if user.is_file() else None, system)
    return tuple(path for path in found if path is not None)


_ETC = Path("/etc/uv/uv.toml")


def _project(folder: Path) -> Path | None:
    for place in (folder, *folder.parents):
        if (place / "uv.toml").is_file():
            return place / "uv.toml"
        if (place / "pyproject.toml").is_file() and _table(place / "pyproject.toml"):
            return place / "pyproject.toml"
    return None


def _table(path: Path) -> dict[str, Any]:
    try:
        with decoding.damaged(f"{path} is no TOML"):
            found: dict[str, Any] = tomllib.loads(decoding.text(decoding.small_file(path)))
    except PermissionError:
        return {}
    except (OSError, decoding.DamagedError) as error:
        raise UsageError(f"{path}: {error}", hint="mend uv's configuration file") from error
    if path.name != "pyproject.toml":
        return found
    tool = found.get("tool", {})
    table = tool.get("uv", {}) if isinstance(tool, dict) else {}
    return table if isinstance(table, dict) else {}


def _sequence(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _words(environ: Mapping[str, str], name: str) -> list[str]:
    return [_unnamed(word) for word in environ.get(name, "").split()]


def _unnamed(word: str) -> str:
    """Drop the name that uv lets an index have: ``internal=https://…``."""
    return re.sub(r"^[A-Za-z0-9._-]+=(?=[a-z]+://)", "", word)


def lines(urls: Sequence[str], main: str, *, proxy: str = "", links: str = "") -> Iterator[str]:
    """Write a ``uv.toml`` that makes uv use these indexes as pip would: the best version over all of them."""
    yield from [f'find-links = ["{links}"]'] if links else []
    yield from ['index-strategy = "unsafe-best-match"'] if urls else []
    yield from [f'http-proxy = "{proxy}"', f'https-proxy = "{proxy}"'] if proxy else []
    for url in urls:
        yield from ("[[index]]", f'url = "{url}"')
    yield from ["[[index]]", f'url = "{main}"', "default = true"] if main else []
